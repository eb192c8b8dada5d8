//! The message log: the messages that consumers are processing, and how far the consumers have read each queue.
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;

use async_trait::async_trait;
use idempotent_mq::{DeliveryResult, LogError, LogErrorKind, LoggedDelivery, MessageLog, SenderState};
use sha2::{Digest, Sha256};

use super::database::{OutboxDb, SqlValue};
use super::nonce::{Nonce, nonce_of};
use super::queue_offset::{QueueOffset, place_of, queue_of};
use super::record::OutboxStatus;
use super::statements::{OF_CONSUMER, OF_MESSAGE, OF_QUEUE};
use super::{Outbox, OutboxError};

/// The maximum number of rows in one statement.
const MAX_ROWS: usize = 1_000;
/// The maximum length of an id or queue in bytes; a longer one does not belong to this outbox.
const LONGEST: usize = 255;

/// An outbox that is the log of a consumer sees which of its messages have arrived, and confirms those that are
/// processed. A message of another producer changes nothing, whatever its id. The outbox recognizes its own messages
/// by a random value in the header [`OUTBOX_HEADER`](idempotent_mq::OUTBOX_HEADER), so the broker must preserve
/// headers.
///
/// A message that several groups receive is confirmed by the first group that has processed it: set the log on the
/// group that matters. The outbox remembers which messages each group has consumed, so no group skips a message
/// because of another group.
#[async_trait]
impl<Db: OutboxDb> MessageLog for Outbox<Db> {
    async fn received(&self, receipts: &[LoggedDelivery]) -> Result<Vec<SenderState>, LogError> {
        let states = self.states(receipts).await.map_err(failed)?;
        let rows = rows(receipts, &states);
        let rows: Vec<_> = rows.into_iter().collect();
        for part in rows.chunks(MAX_ROWS) {
            let mut args = Vec::with_capacity(part.len() * 5);
            for ((kind, id), (run, place)) in part {
                args.extend([
                    SqlValue::from(*kind),
                    SqlValue::from(id.as_bytes()),
                    SqlValue::from(&run.to_be_bytes()[..]),
                    SqlValue::from(place.map(QueueOffset::to_bytes).as_ref().map(|bytes| &bytes[..])),
                    self.now(),
                ]);
            }
            self.execute(self.0.statements.log(part.len()), args).await.map_err(failed)?;
        }
        Ok(states)
    }

    async fn concluded(&self, receipt: &LoggedDelivery, how: DeliveryResult) -> Result<(), LogError> {
        self.end(receipt, how).await.map_err(failed)
    }
}

impl<Db: OutboxDb> Outbox<Db> {
    /// Returns the state of each message: foreign, unless this outbox has given it the nonce that it carries.
    async fn states(&self, receipts: &[LoggedDelivery]) -> Result<Vec<SenderState>, OutboxError> {
        let carried: Vec<_> = receipts.iter().map(nonce_of).collect();
        let asked: BTreeSet<_> = receipts
            .iter()
            .zip(&carried)
            .filter(|(_, nonce)| nonce.is_some())
            .map(|(receipt, _)| &*receipt.id)
            .collect();
        let asked: Vec<_> = asked.into_iter().filter(|id| id.len() <= LONGEST).collect();
        let mut known = HashMap::new();
        for part in asked.chunks(MAX_ROWS) {
            let args = part.iter().map(|id| SqlValue::from(id.as_bytes())).collect();
            for mut row in self.fetch(self.0.statements.known(part.len()), args, "bbi").await? {
                known.insert(row.text(), (row.bytes(), OutboxStatus::of(row.int())));
            }
        }
        let state = |(receipt, nonce): (&LoggedDelivery, &Option<Nonce>)| match (known.get(&receipt.id), nonce) {
            (Some((given, status)), Some(nonce)) if given[..] == nonce[..] => status.into(),
            _ => SenderState::Foreign,
        };
        let mut states: Vec<_> = receipts.iter().zip(&carried).map(state).collect();
        self.mark_consumed(receipts, &mut states).await?;
        Ok(states)
    }

    /// Turns `Confirmed` into `Consumed` where the consumer itself has consumed the message.
    async fn mark_consumed(&self, receipts: &[LoggedDelivery], states: &mut [SenderState]) -> Result<(), OutboxError> {
        let confirmed = |state: SenderState| state == SenderState::Confirmed;
        let row = |(receipt, state): (&LoggedDelivery, &SenderState)| {
            confirmed(*state).then(|| consumer_row(receipt, &nonce_of(receipt)?)).flatten()
        };
        let asked: Vec<_> = receipts.iter().zip(&*states).map(row).collect();
        let ids: BTreeSet<_> = asked.iter().flatten().collect();
        let ids: Vec<_> = ids.into_iter().collect();
        let mut consumed = BTreeSet::new();
        for part in ids.chunks(MAX_ROWS) {
            let args = [SqlValue::from(OF_CONSUMER)].into_iter().chain(part.iter().map(|id| SqlValue::from(&id[..])));
            let rows = self.fetch(self.0.statements.consumed(part.len()), args.collect(), "b").await?;
            consumed.extend(rows.into_iter().map(|mut row| row.bytes()));
        }
        for (state, row) in states.iter_mut().zip(&asked) {
            if row.is_some_and(|row| consumed.contains(&row[..])) {
                *state = SenderState::Consumed;
            }
        }
        Ok(())
    }
}

/// The id of the row that records that a consumer has consumed a message.
pub(super) type ConsumerRow = [u8; 32];

/// Returns the id of the row for the consumer that received this delivery, or `None` for a consumer that does not ask.
///
/// The nonce belongs to one message, while an id can be used again after a purge. The queue or topic is part of the
/// id, since two consumers may use the same group name for two queues.
pub(super) fn consumer_row(receipt: &LoggedDelivery, nonce: &Nonce) -> Option<ConsumerRow> {
    let consumer = receipt.consumer.as_deref()?;
    let length = u64::try_from(consumer.len()).unwrap_or(u64::MAX).to_be_bytes();
    let parts = [&nonce[..], &length, consumer.as_bytes(), receipt.position.source.as_bytes()];
    Some(parts.iter().fold(Sha256::new(), Digest::chain_update).finalize().into())
}

impl From<&OutboxStatus> for SenderState {
    fn from(status: &OutboxStatus) -> Self {
        match status {
            OutboxStatus::Unconfirmed => Self::Unconfirmed,
            OutboxStatus::Confirmed => Self::Confirmed,
            OutboxStatus::Void => Self::Void,
            OutboxStatus::Dead => Self::Dead,
        }
    }
}

type LogRows = BTreeMap<(i64, String), (u128, Option<QueueOffset>)>;

/// Returns one row for each message of this outbox and for each queue. No statement may write a row twice, and the
/// same order in every process prevents deadlocks.
fn rows(receipts: &[LoggedDelivery], states: &[SenderState]) -> LogRows {
    let mut rows = LogRows::new();
    for (receipt, state) in receipts.iter().zip(states) {
        let (queue, place) = (queue_of(&receipt.position), place_of(&receipt.position));
        if *state != SenderState::Foreign {
            rows.entry((OF_MESSAGE, receipt.id.clone())).or_insert((receipt.number, place));
        }
        if place.is_some() && queue.len() <= LONGEST {
            let reached = rows.entry((OF_QUEUE, queue)).or_insert((0, place));
            reached.1 = reached.1.max(place);
        }
    }
    rows
}

fn failed(error: impl Error + Send + Sync + 'static) -> LogError {
    LogError::new(LogErrorKind::Transient, "recording the delivery in the outbox failed").with_cause(error)
}
