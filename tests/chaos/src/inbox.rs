//! The transactional inbox: handlers whose effect and record are written in one transaction of PostgreSQL or MariaDB. Some handlers
//! end their transaction by a statement of their own.
//!
//! The invariant is simpler than for other stores, and the rows show it: each key has its effect exactly once,
//! whichever worker, server or connection fails.
//!
//! Read in this order: `wire` (the kill points of a worker, and the messages), `worker` and
//! `mortal` (a process that handles deliveries and kills itself), `workers` (the processes), `plan` (the times of the
//! faults), `harness` (one run), `judge`.
mod database;
mod dying_transactions;
mod harness;
mod judge;
mod plan;
mod wire;
mod worker;
mod workers;

pub use self::database::InboxDatabase;
pub(crate) use self::harness::play;
pub use self::worker::run as work;
use crate::named::named;

named! {
    /// A deliberate flaw of a worker, with which a run must violate an invariant.
    pub enum InboxFlaw {
        /// The worker claims and completes the key outside of the transaction of the effect.
        ClaimOutside = "claim-outside",
        /// A commit whose answer was lost counts as one.
        CommitIsDone = "commit-is-done",
    }
}
