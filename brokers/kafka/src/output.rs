//! The handle by which handlers add messages to a transaction.
use std::fmt;
use std::sync::Arc;

use idempotent_mq::{Delivery, OutboundMessage, PublishError, PublishErrorKind};

use crate::assignment::Assignment;
use crate::message::Copy;
use crate::outputs::Output;

/// A handle that adds messages to the transaction in which the offset of a delivery is committed.
///
/// The messages are produced after the delivery is acknowledged, and become visible together with the committed offset. The messages
/// of a delivery that is retried, returned or dead-lettered are discarded. See [Transactions](crate#transactions) for the guarantee.
///
/// ```no_run
/// use idempotent_core::{Executor, MemoryStore};
/// use idempotent_kafka::KafkaSource;
/// use idempotent_mq::{Consumer, Message, Messages, OutboundMessage};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let source = KafkaSource::builder("kafka://127.0.0.1", "orders", "billing").transactions("billing-0").connect().await?;
/// let output = source.output();
/// // The transaction replaces the key: the handler has no other effect.
/// let handling = Messages::raw().unprotected(move |message: Message<()>| {
///     let receipt = OutboundMessage::new("receipts", "r-1", message.delivery.body.clone());
///     let added = output.add(&message.delivery, &receipt);
///     async move { added }
/// });
/// let executor = Executor::new(MemoryStore::new());
/// let consumer = Consumer::builder(source, "billing", &executor).build(handling)?;
/// consumer.run(async { drop(tokio::signal::ctrl_c().await) }).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct KafkaOutput(Arc<Assignment>);

impl KafkaOutput {
    pub(crate) fn new(assignment: Arc<Assignment>) -> Self {
        Self(assignment)
    }

    /// Adds a message, which is produced if the delivery is acknowledged. Its topic must exist. The record key and the headers are the
    /// same as with a [`KafkaPublisher`](crate::KafkaPublisher).
    ///
    /// # Errors
    /// - `Refused`: the source has no [transactions](crate::KafkaSourceBuilder::transactions), the message has `deliver_at`, or a header
    ///   has an invalid name.
    /// - `Unsent`: this member no longer holds the delivery. Another member delivers the message again.
    pub fn add(&self, delivery: &Delivery, message: &OutboundMessage) -> Result<(), PublishError> {
        if !self.0.is_transactional {
            let text = "the source has no transactions; call `transactions` on its builder";
            return Err(PublishError::new(PublishErrorKind::Refused, text));
        }
        let output = Output { topic: message.topic.clone(), copy: Copy::of(message)? };
        if self.0.add_output(&delivery.position, output) {
            return Ok(());
        }
        let text = "the delivery is settled, or its partition was revoked; another member delivers the message again";
        Err(PublishError::new(PublishErrorKind::Unsent, text))
    }
}

impl fmt::Debug for KafkaOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaOutput").field("is_transactional", &self.0.is_transactional).finish_non_exhaustive()
    }
}
