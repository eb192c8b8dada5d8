//! Consumers of a real broker, which delivers, retries and dead-letters.
//!
//! Read in this order: `flaw` (deliberate bugs), `copy` (a message), `broker` (the interface of `rabbit`,
//! `streams`, `nats`, `pgmq`, `kafka`, `rocket` and `sqs`), `store`, `worker` and `recording_source` (a process that consumes), `publisher`, `harness` (one run), `judge`
//! (the final contents of the queues). A new broker needs a variant of [`Kind`] and a file.
mod broker;
mod copy;
mod flaw;
mod harness;
mod judge;
#[cfg(feature = "kafka")]
mod kafka;
mod leftovers;
mod nats;
mod pgmq;
mod publisher;
pub(crate) mod rabbit;
mod recording_source;
#[cfg(feature = "rocketmq")]
pub(crate) mod rocket;
#[cfg(feature = "sqs")]
mod sqs;
mod store;
pub(crate) mod streams;
mod worker;

pub use self::broker::Kind;
pub(crate) use self::broker::QUEUE;
pub use self::flaw::Flaw;
pub(crate) use self::harness::play;
pub(crate) use self::worker::work;
