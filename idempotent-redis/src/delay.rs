//! A delay queue: topics in slots, each message delivered at least once and never before its time.
//!
//! Of a slot, `due` and `rank` are what is to be delivered, by time and by priority (together the store queue of such
//! queues elsewhere), and `held` is what somebody has (their prepare queue). Members of these are numbers that a slot
//! gives its messages; what else there is of a message lies in hashes beside, `msg` and, from its second delivery on,
//! `state`. `layout.rs` has the keys, `scripts` what happens to them.
mod ask;
mod builder;
mod counts;
mod dead;
mod layout;
mod message;
mod next;
mod payload;
mod producer;
mod queue;
mod reply;
mod scripts;
mod send;
mod servers;
mod settler;
mod source;
mod taken;
mod taker;

pub use self::builder::DelayQueueBuilder;
pub use self::counts::DelayCounts;
pub use self::dead::DelayDeadLetters;
pub use self::message::{DelayMessage, Sent};
pub use self::next::Next;
pub use self::producer::DelayProducer;
pub use self::queue::{Back, Closing, DelayQueue, RolledBack};
pub use self::settler::DelayTag;
pub use self::source::DelaySource;
pub use self::taken::Taken;
pub use self::taker::Taker;
