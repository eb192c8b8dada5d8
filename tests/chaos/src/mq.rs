//! Consumers of a real broker: their deliveries, their retries and their dead letters are its.
//!
//! Read in this order: `flaw` (what may be wrong on purpose), `copy` (a message), `broker` (what all of them are to the
//! harness; `rabbit`, `streams` and `rocket`), `store`, `worker` and `told` (a process that consumes), `publisher`, `harness` (one run),
//! `judge` (what lies in the queues at the end). Another broker is another [`Kind`], and another file.
mod broker;
mod copy;
mod flaw;
mod harness;
mod judge;
mod leftovers;
mod publisher;
pub(crate) mod rabbit;
#[cfg(feature = "rocketmq")]
mod rocket;
mod store;
mod streams;
mod told;
mod worker;

pub use self::broker::Kind;
pub use self::flaw::Flaw;
pub(crate) use self::harness::play;
pub(crate) use self::worker::work;
