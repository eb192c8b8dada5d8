//! Messages as rows of a queue.
use std::fmt;

use idempotent_mq::{Delivery, Position, SourceError};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::body;
use crate::carrier::StoredHeaders;
use crate::error::unreadable;
use crate::queue_name::QueueName;

/// The handle that settles a message. It identifies one read of the message: if another consumer has read the message since, the
/// handle settles nothing.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct PgmqTag {
    pub(crate) id: i64,
    /// The number of reads, which increases with each read.
    pub(crate) reads: i32,
    /// The number of reads that ended by a settlement which returned the message to the queue.
    pub(crate) settled: i32,
    /// The number of the attempt.
    pub(crate) attempt: u32,
    /// The time at which PGMQ stored the message, in microseconds since 1970. Marks with this time are ours.
    pub(crate) sent: i64,
}

impl fmt::Debug for PgmqTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgmqTag").field("id", &self.id).field("reads", &self.reads).finish_non_exhaustive()
    }
}

/// A row of a queue.
#[derive(Debug)]
pub(crate) struct StoredMessage {
    pub(crate) delivery: Delivery,
    pub(crate) tag: PgmqTag,
    pub(crate) headers: StoredHeaders,
}

impl StoredMessage {
    /// Reads a row.
    ///
    /// # Errors
    /// A column is missing, or has another type.
    pub(crate) fn read(queue: &QueueName, row: &PgRow) -> Result<Self, SourceError> {
        let of = |error: sqlx::Error| unreadable("reading a message", &error);
        let message: Option<String> = row.try_get("message").map_err(of)?;
        let headers: Option<&str> = row.try_get("headers").map_err(of)?;
        let headers = StoredHeaders::parse(headers);
        let sent = row.try_get("enqueued").map_err(of)?;
        let mut envelope = headers.envelope(sent);
        let tag = PgmqTag {
            id: row.try_get("msg_id").map_err(of)?,
            reads: row.try_get("read_ct").map_err(of)?,
            settled: row.try_get("settled").map_err(of)?,
            attempt: envelope.attempt.unwrap_or(1),
            sent,
        };
        let body = body::load(message.unwrap_or_default(), headers.is_body_encoded());
        let mut delivery = Delivery::new(Position::of(queue.shared()).offset(tag.id), body);
        // A queue that was dropped and created again uses the same ids again, but not at the same time.
        let origin = || format!("{queue}/{}-{sent}", tag.id);
        envelope.id = Some(envelope.id.unwrap_or_else(origin));
        envelope.open(&mut delivery);
        delivery.headers.clone_from(&headers.headers);
        let delivered = u32::try_from(tag.reads.saturating_sub(tag.settled)).unwrap_or(0);
        delivery.delivered = Some(delivered);
        delivery.redelivered = tag.reads > 1;
        Ok(Self { delivery, tag, headers })
    }
}
