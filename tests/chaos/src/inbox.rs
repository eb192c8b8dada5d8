//! The transactional inbox: handlers whose effect and record are one transaction of PostgreSQL.
//!
//! What holds is simpler than for other stores, and judged by the rows themselves: each key has its effect exactly once,
//! whoever was killed where, whatever became of the server and its connections.
//!
//! Read in this order: `wire` (the points a worker dies at, and what is said), `flaw` (what may be wrong on purpose),
//! `worker` and `mortal` (a process that runs deliveries, and dies in the middle), `crew` (the processes), `plan` (what goes
//! wrong when), `harness` (one run), `judge`.
mod crew;
mod flaw;
mod harness;
mod judge;
mod mortal;
mod plan;
mod wire;
mod worker;

pub use self::flaw::InboxFlaw;
pub(crate) use self::harness::play;
pub use self::worker::run as work;
