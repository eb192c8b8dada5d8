//! Leases on messages: a lease is stored in the row, so it outlives the statement that took it. A database lock would
//! end with its transaction, while the message is still being sent.
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_mq::OutboundMessage;

use super::database::{OutboxDb, SqlValue};
use super::queue_offset::QueueOffset;
use super::record::{self, LEASED_SHAPE, OutboxRecord, OutboxStatus};
use super::resend_policy::ConsumerProgress;
use super::statements::OF_QUEUE;
use super::{Outbox, OutboxError};
pub(super) use crate::sql_database::micros;

/// The id of one round of one relay.
pub(super) type LeaseOwner = [u8; 16];

/// A message that only this relay may send until its lease expires.
#[derive(Debug)]
pub(super) struct LeasedMessage {
    pub(super) record: OutboxRecord,
    /// The message; `None` if the row is damaged.
    pub(super) message: Option<OutboundMessage>,
    pub(super) id: String,
    /// The time of the database.
    pub(super) now: Timestamp,
}

/// The result of a send, as it is written to the row.
#[derive(Debug)]
pub(super) struct SendResult {
    pub(super) seq: i64,
    pub(super) accepted: bool,
    /// 1 if the broker may have accepted the message.
    pub(super) sends: u32,
    pub(super) failures: u32,
    pub(super) status: OutboxStatus,
    pub(super) queue: Option<String>,
    pub(super) place: Option<QueueOffset>,
    /// The delay before the next check.
    pub(super) rest: Duration,
    pub(super) error: Option<String>,
}

/// The maximum number of rows in one statement: SQLite accepts at most 500.
const MAX_ROWS: usize = 400;

impl<Db: OutboxDb> Outbox<Db> {
    /// Leases at most `most` due messages, in the order in which they were written. Two relays never hold the same
    /// message. A message of an aggregate is leased only together with, or after, the messages before it.
    pub(super) async fn lease(
        &self,
        owner: &LeaseOwner,
        most: u32,
        lease: Duration,
    ) -> Result<Vec<LeasedMessage>, OutboxError> {
        let now = || self.now();
        let args = vec![now(), now(), now(), SqlValue::from(i64::from(most))];
        let rows = self.fetch(self.0.statements.plan(), args, "ii").await?;
        let mut planned: Vec<_> = rows.into_iter().map(|mut row| (row.int(), row.int_or_null())).collect();
        if planned.is_empty() {
            return Ok(Vec::new());
        }
        planned.sort_unstable();
        let leased = self.take(owner, &planned, lease).await?;
        let got = leased.iter().map(|leased| leased.record.seq).collect();
        let fit = in_order(&planned, &got);
        let (kept, others): (Vec<_>, Vec<_>) = leased.into_iter().partition(|leased| fit.contains(&leased.record.seq));
        if !others.is_empty() {
            let mut args: Vec<_> = others.iter().map(|other| SqlValue::from(other.record.seq)).collect();
            args.push(SqlValue::from(&owner[..]));
            self.execute(self.0.statements.free(others.len()), args).await?;
        }
        Ok(kept)
    }

    async fn take(
        &self,
        owner: &LeaseOwner,
        planned: &[(i64, Option<i64>)],
        lease: Duration,
    ) -> Result<Vec<LeasedMessage>, OutboxError> {
        let statements = &self.0.statements;
        let seqs = || planned.iter().map(|(seq, _)| SqlValue::from(*seq));
        let mut args = vec![self.now(), SqlValue::from(micros(lease)), SqlValue::from(&owner[..])];
        args.extend(seqs());
        args.extend([self.now(), self.now()]);
        let rows = if statements.take_answers() {
            args.push(self.now());
            self.fetch(statements.take(planned.len()), args, LEASED_SHAPE).await?
        } else {
            if self.execute(statements.take(planned.len()), args).await? == 0 {
                return Ok(Vec::new());
            }
            let mut args = vec![self.now()];
            args.extend(seqs());
            args.push(SqlValue::from(&owner[..]));
            self.fetch(statements.taken(planned.len()), args, LEASED_SHAPE).await?
        };
        let mut leased: Vec<_> = rows
            .into_iter()
            .map(|mut row| {
                let record = OutboxRecord::read(&mut row);
                let (id, message) = record::content(&mut row);
                LeasedMessage { record, message, id, now: Timestamp(row.int().unsigned_abs()) }
            })
            .collect();
        leased.sort_unstable_by_key(|leased| leased.record.seq);
        Ok(leased)
    }

    /// Returns the information that consumers have recorded about these messages, as far as the messages were sent
    /// before.
    pub(super) async fn seen(&self, leased: &[LeasedMessage]) -> Result<HashMap<i64, ConsumerProgress>, OutboxError> {
        let sent: Vec<_> = leased.iter().filter(|leased| leased.record.sends > 0).collect();
        if sent.is_empty() {
            return Ok(HashMap::new());
        }
        let queues: HashSet<_> = sent.iter().filter_map(|leased| leased.record.queue.as_deref()).collect();
        let ids = sent.iter().map(|leased| leased.id.as_str());
        let args = ids.chain(queues.iter().copied()).map(|id| SqlValue::from(id.as_bytes())).collect();
        let rows = self.fetch(self.0.statements.seen(sent.len(), queues.len()), args, "ibbi").await?;
        let (mut reached, mut logged) = (HashMap::new(), HashMap::new());
        for mut row in rows {
            let (kind, id) = (row.int(), row.text());
            let (place, at) = (row.bytes_or_null(), Timestamp(row.int().unsigned_abs()));
            match kind {
                OF_QUEUE => drop(reached.insert(id, place.and_then(|bytes| QueueOffset::from_bytes(&bytes)))),
                _ => drop(logged.insert(id, at)),
            }
        }
        let seen = |leased: &&LeasedMessage| {
            let reached = leased.record.queue.as_ref().and_then(|queue| reached.get(queue).copied().flatten());
            (leased.record.seq, ConsumerProgress { logged_at: logged.get(&leased.id).copied(), reached })
        };
        Ok(sent.iter().map(seen).collect())
    }

    /// Writes the results of messages whose leases are still valid, and ends the leases.
    pub(super) async fn record(&self, owner: &LeaseOwner, results: &[SendResult]) -> Result<(), OutboxError> {
        for part in results.chunks(MAX_ROWS) {
            self.record_part(owner, part).await?;
        }
        Ok(())
    }

    async fn record_part(&self, owner: &LeaseOwner, results: &[SendResult]) -> Result<(), OutboxError> {
        let rows = results.iter().flat_map(|result| {
            [
                SqlValue::from(result.seq),
                SqlValue::from(i64::from(result.accepted)),
                SqlValue::from(i64::from(result.sends)),
                SqlValue::from(i64::from(result.failures)),
                SqlValue::from(result.status.number()),
                SqlValue::from(result.queue.as_ref().map(|queue| queue.as_bytes())),
                SqlValue::from(result.place.map(QueueOffset::to_bytes).as_ref().map(|bytes| &bytes[..])),
                SqlValue::from(micros(result.rest)),
                SqlValue::from(result.error.as_ref().map(|error| error.as_bytes())),
            ]
        });
        let times = [self.now(), self.now(), self.now()];
        let mut args: Vec<_> = match self.0.statements.rows_before_times() {
            true => rows.chain(times).collect(),
            false => times.into_iter().chain(rows).collect(),
        };
        args.push(SqlValue::from(&owner[..]));
        self.execute(self.0.statements.record(results.len()), args).await.map(drop)
    }
}

/// Returns the leased messages whose predecessors in the aggregate were leased as well, or are sent. `planned`
/// contains each message with its predecessor, in order.
fn in_order(planned: &[(i64, Option<i64>)], got: &HashSet<i64>) -> HashSet<i64> {
    let mut fit = HashSet::new();
    for (seq, behind) in planned {
        if got.contains(seq) && behind.is_none_or(|behind| fit.contains(&behind)) {
            fit.insert(*seq);
        }
    }
    fit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_whose_predecessors_are_leased_are_kept() {
        let planned = [(1, None), (2, None), (3, Some(1)), (4, Some(3)), (6, Some(5))];
        let fit = |got: &[i64]| {
            let mut fit: Vec<_> = in_order(&planned, &got.iter().copied().collect()).into_iter().collect();
            fit.sort_unstable();
            fit
        };
        assert_eq!(fit(&[1, 2, 3, 4, 6]), [1, 2, 3, 4], "5 was not planned: it is behind the limit, or just came");
        assert_eq!(fit(&[2, 3, 4]), [2], "somebody else has 1");
        assert_eq!(fit(&[1, 4]), [1]);
    }
}
