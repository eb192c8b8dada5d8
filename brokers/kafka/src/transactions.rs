//! Transactions that commit offsets together with produced messages.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idempotent_mq::SourceError;
use rdkafka::ClientConfig;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use rdkafka::topic_partition_list::TopicPartitionList;

use crate::error::{failure, transaction_failure};
use crate::group_events::GroupEvents;
use crate::outputs::Output;
use crate::producer::QuietContext;

/// The producer of the transactions of a member.
pub(crate) struct Transactions(FutureProducer<QuietContext>);

/// The maximum time of one step of a transaction.
const LIMIT: Duration = Duration::from_secs(10);
/// The maximum number of attempts of a step that may be repeated.
const ATTEMPTS: u32 = 3;

impl Transactions {
    /// Connects, ends the open transaction of an earlier process with this id, and fences that process. Blocks the thread.
    ///
    /// # Errors
    /// - `Fatal`: the broker refuses the id.
    /// - `Transient`: the broker does not answer.
    pub(crate) fn open(config: &ClientConfig) -> Result<Self, SourceError> {
        let created = config.create_with_context(QuietContext::default());
        let producer: FutureProducer<QuietContext> =
            created.map_err(|error| failure("configuring the client", error))?;
        repeated(|| producer.init_transactions(LIMIT)).map_err(|error| failure("opening transactions", error))?;
        Ok(Self(producer))
    }

    /// Produces messages and commits offsets in one transaction. Blocks the thread.
    ///
    /// # Errors
    /// - `Transient`: the transaction is aborted, and may be repeated.
    /// - `Fatal`: another process has the same id, or the result is unknown.
    pub(crate) fn commit(
        &self,
        consumer: &StreamConsumer<GroupEvents>,
        offsets: &TopicPartitionList,
        outputs: &[Arc<Output>],
    ) -> Result<(), SourceError> {
        let Err(error) = self.attempt(consumer, offsets, outputs) else { return Ok(()) };
        let may_abort = match &error {
            KafkaError::Transaction(error) => error.txn_requires_abort() || error.is_retriable(),
            // A message was not accepted, or not confirmed before the commit.
            _ => true,
        };
        let is_aborted = may_abort && repeated(|| self.0.abort_transaction(LIMIT)).is_ok();
        Err(transaction_failure(error, is_aborted))
    }

    fn attempt(
        &self,
        consumer: &StreamConsumer<GroupEvents>,
        offsets: &TopicPartitionList,
        outputs: &[Arc<Output>],
    ) -> KafkaResult<()> {
        self.0.begin_transaction()?;
        for output in outputs {
            self.produce(output)?;
        }
        // Without metadata, the consumer has no group, and so no offsets.
        if let Some(group) = consumer.group_metadata() {
            repeated(|| self.0.send_offsets_to_transaction(offsets, &group, LIMIT))?;
        }
        // The commit waits for the confirmations of all messages, and fails without one.
        repeated(|| self.0.commit_transaction(LIMIT))
    }

    fn produce(&self, output: &Output) -> KafkaResult<()> {
        let mut record = FutureRecord::<[u8], [u8]>::to(&output.topic).headers(output.copy.headers.clone());
        (record.key, record.payload) = (output.copy.key.as_deref(), output.copy.body.as_deref());
        self.0.send_result(record).map(drop).map_err(|(error, _)| error)
    }
}

/// Repeats a step while its error permits that.
fn repeated(step: impl Fn() -> KafkaResult<()>) -> KafkaResult<()> {
    let mut attempt = 1;
    loop {
        match step() {
            Err(KafkaError::Transaction(error)) if error.is_retriable() && attempt < ATTEMPTS => attempt += 1,
            done => return done,
        }
    }
}

impl fmt::Debug for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transactions").finish_non_exhaustive()
    }
}
