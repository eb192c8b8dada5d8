//! The description of one call: its identity and options.
use std::any::type_name;
use std::sync::Arc;
use std::time::Duration;

use super::Executor;
use super::site::Site;
use crate::ordering::OrderingRequest;
use crate::transaction::{CallStore, describe_store};
use crate::{
    ClaimMode, DerivedKey, DuplicateMessages, Fingerprint, Identity, KeyError, Policy, Predecessor, Stream,
    TransactionHandle, TransactionSource,
};

/// A call to run idempotently: its identity, and the options of this call.
#[derive(Clone, Debug)]
#[must_use]
pub struct Call {
    pub(crate) identity: Identity,
    pub(crate) fingerprint: Result<Option<Fingerprint>, KeyError>,
    /// The settings of this call. Boxed, since most calls have none and a call is moved several times.
    pub(crate) policy: Option<Box<Policy>>,
    pub(crate) message: Option<DuplicateMessages>,
    pub(crate) token_ttl: Option<Duration>,
    /// The predecessor or position of the call.
    pub(crate) ordering: Option<Box<OrderingRequest>>,
    /// The store that runs this call in its transaction.
    pub(crate) transaction_store: Option<CallStore>,
    /// The attribute that made the call.
    pub(crate) site: Option<&'static Site>,
}

impl Call {
    /// Creates a call with this identity and the executor's policy.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            fingerprint: Ok(None),
            policy: None,
            message: None,
            token_ttl: None,
            ordering: None,
            transaction_store: None,
            site: None,
        }
    }

    /// Sets the fingerprint of the payload. The key is rejected if it was used with another payload.
    pub fn fingerprint(mut self, fingerprint: Result<Fingerprint, KeyError>) -> Self {
        self.fingerprint = fingerprint.map(Some);
        self
    }

    /// Adds the settings of a derived key. The call keeps the settings that it has.
    pub fn derived(mut self, derived: DerivedKey) -> Self {
        if matches!(self.fingerprint, Ok(None)) {
            self.fingerprint = derived.fingerprint;
        }
        self.set_policy(self.overrides().or(derived.policy));
        self
    }

    /// Overrides the executor's policy for this call.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.set_policy(policy);
        self
    }

    /// Accepts only a key that is a token issued by [`Tokens`](crate::Tokens). After a failed run, the token stays
    /// valid for another `ttl`.
    ///
    /// A call with a token never runs unprotected, because a token cannot be verified without the store.
    pub fn issued(mut self, ttl: Duration) -> Self {
        self.identity = self.identity.token();
        self.token_ttl = Some(ttl);
        self
    }

    /// Runs the call only after another call is consumed. Until then, the call is deferred with
    /// [`Outcome::Waiting`](crate::Outcome::Waiting).
    ///
    /// A deferred call does not hold its own key and spends no attempt. Duplicates of a settled call are answered as
    /// usual. A policy that [waits](crate::OnInFlight::Wait) for a run in flight also waits here, for the same time.
    ///
    /// If the other call fails permanently, is dead or is never seen,
    /// [`on_broken_order`](crate::Policy::on_broken_order) applies. The store remembers that the other call was
    /// consumed for as long as its record is [retained](crate::Policy::retain). Retain records for longer than the next
    /// call may be late. A call with a predecessor never runs unprotected, because the order cannot be checked without
    /// the store.
    ///
    /// ```
    /// use idempotent_core::{DefaultReply, Call, Executor, Handler, Identity, Json, MemoryStore, Outcome, Rejection, Scene};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let executor = Executor::new(MemoryStore::new());
    /// let points = async |number: u64| {
    ///     let call = Call::new(Identity::new(Scene::Mq, "points", &("ann", number)))
    ///         .after(&number.checked_sub(1).map(|before| ("ann", before)));
    ///     let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<_, Rejection>(()) });
    ///     Outcome::capture(executor.run(call, handler)).await.1
    /// };
    /// assert!(matches!(points(1).await, Some(Outcome::Waiting { .. })));
    /// assert_eq!(points(0).await, Some(Outcome::Ran)); // the first of its chain
    /// assert_eq!(points(1).await, Some(Outcome::Ran));
    /// # });
    /// ```
    pub fn after(mut self, call: &(impl Predecessor + ?Sized)) -> Self {
        self.ordering = call.named().map(OrderingRequest::After).map(Box::new);
        self
    }

    /// Runs the call at a position of a stream, after all smaller numbers that the producer has
    /// [registered](Executor::register) or that were delivered before.
    ///
    /// Until then, the call is deferred like a call [`after`](Self::after) another one. Two calls of one stream never
    /// run concurrently. The last call of `sequence` or `after` takes effect.
    ///
    /// If a smaller number fails permanently, is dead or is not seen,
    /// [`on_broken_order`](crate::Policy::on_broken_order) applies. If a larger number was admitted before,
    /// [`on_late`](crate::Policy::on_late) applies. Numbers need not be consecutive. Numbers that are not registered
    /// wait only for smaller numbers that have arrived: a gap is not detected.
    ///
    /// The store must keep order tables, see [`order`](crate::StoreCapabilities::order).
    ///
    /// ```
    /// use idempotent_core::{DefaultReply, Call, Executor, Handler, Identity, Json, MemoryStore, Outcome, Rejection, Scene};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let executor = Executor::new(MemoryStore::new());
    /// // The producer, before it sends.
    /// executor.register(&Identity::new(Scene::Mq, "points", "ann"), [1, 2]).await.unwrap();
    ///
    /// let points = async |number: u64| {
    ///     let call = Call::new(Identity::new(Scene::Mq, "points", &("ann", number))).sequence("ann", number);
    ///     let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<_, Rejection>(()) });
    ///     Outcome::capture(executor.run(call, handler)).await.1
    /// };
    /// assert!(matches!(points(2).await, Some(Outcome::Waiting { .. })));
    /// assert_eq!(points(1).await, Some(Outcome::Ran));
    /// assert_eq!(points(2).await, Some(Outcome::Ran));
    /// # });
    /// ```
    pub fn sequence(mut self, stream: &(impl Stream + ?Sized), number: u64) -> Self {
        self.ordering = Some(Box::new(OrderingRequest::Sequence(stream.stream(), number)));
        self
    }

    /// Claims and completes the call in a transaction of type `T` of the executor's store. Use the returned [`TransactionHandle`]
    /// in the handler to get the transaction, and [`Executor::run`] of the same executor to run the call.
    ///
    /// The call can run only once: do not run a clone of it. If the store has no such transactions, or those of another
    /// database, the run is rejected with [`Rejection::NoTransaction`](crate::Rejection::NoTransaction).
    ///
    /// The attribute's `transaction = tx` expands to this method. `idempotent-sqlx` offers a shorter form, `Inbox`.
    pub fn within<T: 'static>(mut self, executor: &Executor, mode: ClaimMode) -> (Self, TransactionHandle<T>) {
        let store = executor.store();
        let transact = store.capabilities().transact;
        let own = transact
            .and_then(|transact| transact.transactional_run(mode).downcast::<Arc<dyn TransactionSource<T>>>().ok());
        let (transaction_store, lender) = match own {
            Some(own) => (CallStore::Own((*own).clone(), mode), TransactionHandle(Some(*own))),
            None => (
                CallStore::Missing { wanted: type_name::<T>(), store: describe_store(store).into() },
                TransactionHandle(None),
            ),
        };
        self.transaction_store = Some(transaction_store);
        (self, lender)
    }

    /// Adds the settings that a reply strategy needs, for which neither the call nor the executor has a value.
    pub(crate) fn add_needed(&mut self, of_scene: Policy, needed: Policy) {
        self.set_policy(self.overrides().or(of_scene).or(needed));
    }

    fn set_policy(&mut self, policy: Policy) {
        self.policy = (policy != Policy::new()).then(|| Box::new(policy));
    }

    /// Returns the settings of this call.
    pub(crate) fn overrides(&self) -> Policy {
        self.policy.as_deref().copied().unwrap_or_default()
    }

    /// Sets the attribute that made the call.
    #[doc(hidden)]
    pub fn __at(mut self, site: &'static Site) -> Self {
        self.site = Some(site);
        self
    }

    /// Sets the text of the rejection of a duplicate without a result.
    ///
    /// # Default
    /// The [`duplicate_messages`](crate::ExecutorBuilder::duplicate_messages) of the executor
    pub fn message(mut self, message: impl Into<DuplicateMessages>) -> Self {
        self.message = Some(message.into());
        self
    }
}

/// Unboxes a call for [`Executor::run`](super::Executor::run), whose future is smaller with a boxed call.
impl From<Box<Call>> for Call {
    fn from(call: Box<Call>) -> Self {
        *call
    }
}

/// Moves a call into a transaction, for the attribute's code. Without an executor, the run is rejected later.
#[doc(hidden)]
pub fn within<T: 'static>(executor: Option<&Executor>, call: Call, mode: ClaimMode) -> (Call, TransactionHandle<T>) {
    match executor {
        Some(executor) => call.within(executor, mode),
        None => (call, TransactionHandle(None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scene;

    #[test]
    fn the_settings_of_a_strategy_apply_where_neither_call_nor_scene_has_a_value() {
        let own = Policy::new().max_result(1);
        let of_scene = Policy::new().max_result(2).max_retries(2);
        let needed = Policy::new().max_result(3).max_retries(3).lease(Duration::from_secs(3));
        let mut call = Call::new(Identity::new(Scene::Mq, "orders", "o-1")).policy(own);
        call.add_needed(of_scene, needed);
        assert_eq!(call.overrides(), own.max_retries(2).lease(Duration::from_secs(3)));
    }
}
