//! A delay queue. Each message is delivered at least once and never before its time.
//!
//! A topic is divided into slots. In a slot, `due` and `rank` contain the pending messages, by time and by priority.
//! `held` contains the messages in delivery. In the terms of RocketMQ-style queues, the first two form the store queue
//! and `held` is the prepare queue. Members are numbers that the slot assigns to its messages. The rest of a message is
//! in the hashes `msg` and, from the second delivery on, `state`. `layout.rs` defines the keys, and `scripts` contains
//! the operations.
mod builder;
mod counts;
mod dead_letters;
mod layout;
mod message;
mod payload;
mod producer;
mod queue;
mod received;
mod receiver;
mod replies;
mod scripts;
mod send;
mod servers;
mod settler;
mod slot_calls;
mod source;

pub use self::builder::{DelayQueueBuilder, Server};
pub use self::counts::DelayCounts;
pub use self::dead_letters::DelayDeadLetters;
pub use self::message::{DelayMessage, SendReceipt};
pub use self::producer::DelayProducer;
pub use self::queue::{DelayQueue, RetryDelay, RollbackResult, SettleResult};
pub use self::received::DelayDelivery;
pub use self::receiver::{CommitAndReceive, DelayReceiver};
pub use self::settler::DelayTag;
pub use self::source::DelaySource;
