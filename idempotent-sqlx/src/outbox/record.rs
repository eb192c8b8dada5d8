//! What is known of a message that was put into the outbox.
use idempotent_core::Timestamp;
use idempotent_mq::{OUTBOX_HEADER, OutboundMessage};

use super::database::Cells;
use super::delivery_time;
use super::digest::unpack;
use super::nonce;
use super::queue_offset::QueueOffset;

/// What has become of a message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum OutboxStatus {
    /// No consumer has said that it is done: it is sent, and sent again.
    Unconfirmed,
    /// A consumer has done what it asks for.
    Confirmed,
    /// A person has called it off.
    Void,
    /// It was given up: sent as often as is allowed, or put aside by its consumer.
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

    /// One that a later version adds is not known to be unconfirmed, and so never sent by this one.
    pub(crate) fn of(number: i64) -> Self {
        match number {
            0 => Self::Unconfirmed,
            1 => Self::Confirmed,
            3 => Self::Dead,
            _ => Self::Void,
        }
    }
}

/// A message's stub: what the outbox keeps of it, without its content.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct OutboxRecord {
    /// Its number in the order of writing.
    pub seq: i64,
    /// What has become of it.
    pub status: OutboxStatus,
    /// How often it was sent, as far as the broker may have taken it.
    pub sends: u32,
    /// How often in a row it was not accepted.
    pub failures: u32,
    /// The queue it was last confirmed to lie in: topic, and partition where there is one.
    pub queue: Option<String>,
    /// Its place there, where places can be compared.
    pub place: Option<QueueOffset>,
    /// When it is looked at next; `None` once nothing is to be done any more.
    pub due_at: Option<Timestamp>,
    /// When it was written.
    pub created_at: Timestamp,
    /// When the broker last confirmed it.
    pub sent_at: Option<Timestamp>,
    /// Why it was not accepted the last time.
    pub last_error: Option<String>,
}

/// The columns of [`OutboxRecord`], and those of its content behind them.
pub(crate) const RECORD_COLUMNS: &str =
    "t.seq,t.status,t.sends,t.failures,t.queue,t.place,t.due_at,t.created_at,t.sent_at,t.last_error";
pub(crate) const CONTENT_COLUMNS: &str = "t.id,t.topic,t.business_key,t.aggregate,t.headers,t.body,t.nonce";
/// Both, and the database's time.
pub(crate) const LEASED_SHAPE: &str = "iiiibbiiibbbbbbbbi";

impl OutboxRecord {
    pub(crate) fn read(cells: &mut Cells) -> Self {
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
pub(crate) fn content(cells: &mut Cells) -> (String, Option<OutboundMessage>) {
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
