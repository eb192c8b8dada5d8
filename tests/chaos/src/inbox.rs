//! The transactional inbox: handlers whose effect and record are written in one transaction of PostgreSQL or MariaDB. Some handlers
//! end their transaction by a statement of their own.
//!
//! The invariant is simpler than for other stores, and the rows show it: each key has its effect exactly once,
//! whichever worker, server or connection fails.
//!
//! Read in this order: `wire` (the kill points of a worker, and the messages), `flaw` (deliberate bugs), `worker` and
//! `mortal` (a process that handles deliveries and kills itself), `workers` (the processes), `plan` (the times of the
//! faults), `harness` (one run), `judge`.
mod database;
mod dying_transactions;
mod flaw;
mod harness;
mod judge;
mod plan;
mod wire;
mod worker;
mod workers;

pub use self::database::InboxDatabase;
pub use self::flaw::InboxFlaw;
pub(crate) use self::harness::play;
pub use self::worker::run as work;
