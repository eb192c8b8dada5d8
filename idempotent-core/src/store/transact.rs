//! Handlers that run in a transaction of the store's database.
use std::any::Any;
use std::fmt;

/// The time at which a run in a transaction claims its key. Complete by definition: before the transaction, or in it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClaimMode {
    /// The run claims the key in its transaction, as the first statement.
    ///
    /// This costs at most one extra round trip, and a rolled back run leaves no trace. There is no lease, and the
    /// record does not count attempts. Under a consumer, the delivery carries the count if the broker can store it
    /// ([`DeliveryContext::attempt`](crate::DeliveryContext::attempt)). Only the broker can count crashes. Other callers see a busy key.
    #[default]
    Inside,
    /// The run claims the key by a lease before its transaction, as without a transaction.
    ///
    /// Other callers see at once that the key is in flight, and the record counts attempts. The transaction completes
    /// the record if it still belongs to the owner. After a crash the key is blocked until the lease expires.
    Leased,
}

/// Begins transactions in which runs are claimed and completed: the [capability](crate::StoreCapabilities::transact) of a database
/// store.
pub trait Transactional: fmt::Debug + Send + Sync {
    /// Returns the transaction source of one run: an `Arc<dyn TransactionSource<T>>`, where `T` is the database's transaction type.
    fn transactional_run(&self, mode: ClaimMode) -> Box<dyn Any + Send>;

    /// Returns the transaction source of steps: an `Arc<dyn StepTransactionSource<T>>`.
    fn step_transactions(&self) -> Box<dyn Any + Send>;

    /// Returns the name of the transaction type `T`.
    fn transaction(&self) -> &'static str;
}
