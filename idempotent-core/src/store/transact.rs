//! The ability of a store to run handlers in transactions of its database.
use std::any::Any;
use std::fmt;

/// When the key of a run in a transaction is claimed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClaimMode {
    /// In the transaction, as its first statement: one more trip at most, and no trace of a run that was rolled back.
    /// So there is no lease, and the record counts no attempts: under a consumer the mark on the delivery does, where its
    /// broker has room for one ([`Executor::scope_of_attempt`]); crashes are the broker's to count. Others are told that the
    /// key is busy.
    #[default]
    Inside,
    /// By a lease before it, as everywhere: others see at once that the key is in flight, and attempts are counted. The
    /// record is completed in the transaction, by its owner only. A crash costs the rest of the lease.
    Leased,
}

/// Begins transactions that runs are claimed and completed in: the [ability](crate::Abilities::transact) of a store in a
/// database.
pub trait Transact: fmt::Debug + Send + Sync {
    /// The store of one run: an `Arc<dyn Lends<T>>`, where `T` is the database's type of a transaction.
    fn one_run(&self, mode: ClaimMode) -> Box<dyn Any + Send>;

    /// The transactions of steps: an `Arc<dyn StepsWithin<T>>`.
    fn steps_within(&self) -> Box<dyn Any + Send>;

    /// What that `T` is called.
    fn transaction(&self) -> &'static str;
}
