//! The transactional outbox: messages are written in the transaction of the state change that they announce, and a
//! relay sends each one until a consumer has confirmed it.
//!
//! Read in this order: `record` (the stored form of a message), `resend_policy` (the decision to send), `statements`
//! (the SQL), `database` (the supported databases), `lease` (the relay that may send a message), `relay` (sending),
//! `message_log` and `confirm` (the consumers' side).
mod administration;
mod backlog;
mod builder;
mod confirm;
mod confirmation_queue;
mod count_statements;
mod counts;
mod database;
mod delivery_time;
mod digest;
mod enqueue;
mod error;
mod handle;
mod lease;
mod message_log;
mod nonce;
mod queue_offset;
mod record;
mod relay;
mod resend_policy;
mod statement_list;
mod statements;

pub use self::administration::{AuditEntry, OutboxEntry};
pub use self::backlog::OutboxBacklog;
pub use self::builder::OutboxBuilder;
pub use self::counts::OutboxCounts;
pub use self::database::OutboxDb;
pub use self::enqueue::Enqueued;
pub use self::error::{OutboxError, OutboxErrorKind};
pub use self::handle::Outbox;
pub use self::queue_offset::QueueOffset;
pub use self::record::{OutboxRecord, OutboxStatus};
pub use self::relay::{Relay, RelayCounters, RelayCounts, RelayRound};
pub use self::resend_policy::{ConsumerProgress, DeferReason, ResendDecision, ResendPolicy};

/// The columns that the statements name.
pub(crate) const COLUMNS: [&str; 22] = [
    "seq",
    "id",
    "topic",
    "business_key",
    "aggregate",
    "headers",
    "body",
    "digest",
    "nonce",
    "status",
    "sends",
    "failures",
    "queue",
    "place",
    "due_at",
    "holds",
    "created_at",
    "sent_at",
    "settled_at",
    "last_error",
    "lease_until",
    "lease_by",
];
