//! A delay queue: topics in slots, each message delivered at least once and never before its time.
//!
//! Of a slot, `due` and `rank` are what is to be delivered, by time and by priority (together the store queue of such
//! queues elsewhere), and `held` is what somebody has (their prepare queue). Members of these are numbers that a slot
//! gives its messages; what else there is of a message lies in hashes beside, `msg` and, from its second delivery on,
//! `state`. `layout.rs` has the keys, `scripts` what happens to them.
mod builder;
mod commit_and_receive;
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
mod reply_items;
mod scripts;
mod send;
mod servers;
mod settler;
mod slot_calls;
mod source;

pub use self::builder::DelayQueueBuilder;
pub use self::commit_and_receive::Next;
pub use self::counts::DelayCounts;
pub use self::dead_letters::DelayDeadLetters;
pub use self::message::{DelayMessage, Sent};
pub use self::producer::DelayProducer;
pub use self::queue::{Back, Closing, DelayQueue, RolledBack};
pub use self::received::Taken;
pub use self::receiver::Taker;
pub use self::settler::DelayTag;
pub use self::source::DelaySource;
