//! The stored form of a message, and its status.
use idempotent_core::Timestamp;
use idempotent_mq::{OUTBOX_HEADER, OutboundMessage};

use super::database::RowValues;
use super::delivery_time;
use super::digest::unpack;
use super::nonce;
use super::queue_offset::QueueOffset;

/// The status of a message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum OutboxStatus {
    /// No consumer has confirmed the message. The relay sends it until one does.
    Unconfirmed,
    /// A consumer has processed the message.
    Confirmed,
    /// An operator has voided the message.
    Void,
    /// The message was given up: the maximum number of sends was reached, or its consumer dead-lettered it.
    Dead,
}

impl OutboxStatus {
    pub(crate) fn number(self) -> i64 {
        match self {
            Self::Unconfirmed => 0,
            Self::Confirmed => 1,
            Self::Void => 2,
            Self::Dead => 3,
        }
    }

    /// Converts a stored number. A number of a later version becomes `Void`, so that this version never sends the
    /// message.
    pub(crate) fn of(number: i64) -> Self {
        match number {
            0 => Self::Unconfirmed,
            1 => Self::Confirmed,
            3 => Self::Dead,
            _ => Self::Void,
        }
    }
}

/// The outbox's data about a message, without its content.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct OutboxRecord {
    /// The sequence number of the message, in the order of writing.
    pub seq: i64,
    /// The status of the message.
    pub status: OutboxStatus,
    /// The number of sends that the broker may have accepted.
    pub sends: u32,
    /// The number of consecutive sends that the broker did not accept.
    pub failures: u32,
    /// The queue in which the broker last stored the message: topic, and partition if the broker has partitions.
    pub queue: Option<String>,
    /// The offset of the message in `queue`, if offsets are comparable.
    pub place: Option<QueueOffset>,
    /// The time of the next check; `None` once the message needs no further action.
    pub due_at: Option<Timestamp>,
    /// The time at which the message was written.
    pub created_at: Timestamp,
    /// The time at which the broker last confirmed the message.
    pub sent_at: Option<Timestamp>,
    /// The error of the last send that the broker did not accept.
    pub last_error: Option<String>,
}

/// The columns of [`OutboxRecord`], which precede those of the content.
pub(crate) const RECORD_COLUMNS: &str =
    "t.seq,t.status,t.sends,t.failures,t.queue,t.place,t.due_at,t.created_at,t.sent_at,t.last_error";
pub(crate) const CONTENT_COLUMNS: &str = "t.id,t.topic,t.business_key,t.aggregate,t.headers,t.body,t.nonce";
/// The types of `RECORD_COLUMNS`, `CONTENT_COLUMNS` and the database's time.
pub(crate) const LEASED_SHAPE: &str = "iiiibbiiibbbbbbbbi";

impl OutboxRecord {
    pub(crate) fn read(cells: &mut RowValues) -> Self {
        let time = |number: Option<i64>| number.map(|number| Timestamp(number.unsigned_abs()));
        Self {
            seq: cells.int(),
            status: OutboxStatus::of(cells.int()),
            sends: u32::try_from(cells.int()).unwrap_or(u32::MAX),
            failures: u32::try_from(cells.int()).unwrap_or(u32::MAX),
            queue: cells.text_or_null(),
            place: cells.bytes_or_null().and_then(|bytes| QueueOffset::from_bytes(&bytes)),
            due_at: time(cells.int_or_null()),
            created_at: Timestamp(cells.int().unsigned_abs()),
            sent_at: time(cells.int_or_null()),
            last_error: cells.text_or_null(),
        }
    }
}

/// Returns a message's id, and the message as it is sent; `None` if the outbox did not write its headers.
pub(crate) fn content(cells: &mut RowValues) -> (String, Option<OutboundMessage>) {
    let (id, topic) = (cells.text(), cells.text());
    let (business_key, aggregate) = (cells.text_or_null(), cells.text_or_null());
    let headers = unpack(&cells.bytes());
    let mut message = OutboundMessage::new(topic, id.clone(), cells.bytes());
    message.business_key = business_key;
    message.aggregate = aggregate;
    let nonce = cells.bytes();
    let message = headers.and_then(|mut headers| {
        message.deliver_at = delivery_time::take(&mut headers)?;
        message.headers = headers;
        Some(message.header(OUTBOX_HEADER, nonce::to_header(&nonce)))
    });
    (id, message)
}
