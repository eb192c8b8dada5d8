//! One call to be made idempotent.
use std::any::type_name;
use std::sync::Arc;
use std::time::Duration;

use super::Executor;
use super::site::Site;
use crate::ordering::OrderingRequest;
use crate::transaction::{CallStore, describe_store};
use crate::{ClaimMode, Fingerprint, Identity, KeyError, Lender, Lends, Policy, Predecessor, Stream};

/// What makes a call the same as another, and how it is to be treated.
#[derive(Clone, Debug)]
#[must_use]
pub struct Call {
    pub(crate) identity: Identity,
    pub(crate) fingerprint: Result<Option<Fingerprint>, KeyError>,
    pub(crate) policy: Policy,
    pub(crate) message: Option<Arc<str>>,
    pub(crate) token_ttl: Option<Duration>,
    /// What it comes after.
    pub(crate) ordering: Option<Box<OrderingRequest>>,
    /// A store of its own.
    pub(crate) transaction_store: Option<CallStore>,
    /// The attribute that made the call.
    pub(crate) site: Option<&'static Site>,
}

impl Call {
    /// A call of this identity, by the executor's policy.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            fingerprint: Ok(None),
            policy: Policy::new(),
            message: None,
            token_ttl: None,
            ordering: None,
            transaction_store: None,
            site: None,
        }
    }

    /// Refuses the key with another payload.
    pub fn fingerprint(mut self, fingerprint: Result<Fingerprint, KeyError>) -> Self {
        self.fingerprint = fingerprint.map(Some);
        self
    }

    /// Goes over the executor's.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Runs only if the key is a token that [`Tokens`](crate::Tokens) issued; after a run that failed it is good for
    /// `ttl` again. It is never run unprotected: without the store nobody can tell a token from a guess.
    pub fn issued(mut self, ttl: Duration) -> Self {
        self.identity = self.identity.token();
        self.token_ttl = Some(ttl);
        self
    }

    /// Runs only once that call is consumed; until then it is put off: [`Outcome::Waiting`](crate::Outcome::Waiting). Its
    /// own key is not held meanwhile, no attempt is spent, and duplicates of a call that is done are answered as ever. A
    /// policy that says to [wait](crate::OnInFlight::Wait) for a run in flight waits as long here, too.
    ///
    /// What if that call fails for good, dies or is never seen is said by
    /// [`on_broken_order`](crate::Policy::on_broken_order). That it was consumed is known as long as it is
    /// [retained](crate::Policy::retain): keep it for longer than the next one may be late. Such a call is never run
    /// unprotected: without the store nobody knows whose turn it is.
    ///
    /// ```
    /// use idempotent_core::{Auto, Call, Executor, Handler, Identity, Json, MemoryStore, Outcome, Rejection, Scene};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let executor = Executor::new(MemoryStore::new());
    /// let points = async |number: u64| {
    ///     let call = Call::new(Identity::new(Scene::Mq, "points", &("ann", number)))
    ///         .after(&number.checked_sub(1).map(|before| ("ann", before)));
    ///     let handler = Handler::<Auto, Json, _, _>::new(|| async { Ok::<_, Rejection>(()) });
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

    /// Runs as this number of a stream: once all smaller ones are over that the producer has
    /// [registered](Executor::register) or that were delivered before; until then it is put off as a call is that comes
    /// [`after`](Self::after) another. Two calls of one stream never run side by side. The last one said counts, this or
    /// `after`.
    ///
    /// A smaller number that failed for good, is dead or is not seen is dealt with by
    /// [`on_broken_order`](crate::Policy::on_broken_order), and one that comes when a larger one was let in by
    /// [`on_late`](crate::Policy::on_late). Numbers need not be consecutive. Of numbers that nobody registers only those
    /// wait for each other that have arrived: a gap is not seen.
    ///
    /// It needs a store that keeps order tables: the ability [`order`](crate::Abilities::order).
    ///
    /// ```
    /// use idempotent_core::{Auto, Call, Executor, Handler, Identity, Json, MemoryStore, Outcome, Rejection, Scene};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let executor = Executor::new(MemoryStore::new());
    /// // The producer, before it sends.
    /// executor.register(&Identity::new(Scene::Mq, "points", "ann"), [1, 2]).await.unwrap();
    ///
    /// let points = async |number: u64| {
    ///     let call = Call::new(Identity::new(Scene::Mq, "points", &("ann", number))).sequence("ann", number);
    ///     let handler = Handler::<Auto, Json, _, _>::new(|| async { Ok::<_, Rejection>(()) });
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

    /// Claims and completes the call in a transaction of type `T` that the executor's store begins, for
    /// [`Executor::run`] on that executor; its handler asks the [`Lender`] for it. For one run: a copy of the call is not to
    /// be run as well. A store that has no such transactions, or those of another database, is a
    /// [`Rejection::NoTransaction`](crate::Rejection::NoTransaction) of the run.
    ///
    /// This is what `transaction = tx` of the attribute is made of; `idempotent-sqlx` has a shorter form of it, `Inbox`.
    pub fn within<T: 'static>(mut self, executor: &Executor, mode: ClaimMode) -> (Self, Lender<T>) {
        let store = executor.store();
        let transact = store.abilities().transact;
        let own = transact.and_then(|transact| transact.one_run(mode).downcast::<Arc<dyn Lends<T>>>().ok());
        let (transaction_store, lender) = match own {
            Some(own) => (CallStore::Own((*own).clone(), mode), Lender(Some(*own))),
            None => {
                (CallStore::Missing { wanted: type_name::<T>(), store: describe_store(store).into() }, Lender(None))
            }
        };
        self.transaction_store = Some(transaction_store);
        (self, lender)
    }

    /// Sets the attribute that made the call.
    #[doc(hidden)]
    pub fn __at(mut self, site: &'static Site) -> Self {
        self.site = Some(site);
        self
    }

    /// What a duplicate that gets no result is told instead of the usual text.
    pub fn message(mut self, message: impl Into<Arc<str>>) -> Self {
        self.message = Some(message.into());
        self
    }
}

/// For [`Executor::run`](super::Executor::run), whose future is smaller by it.
impl From<Box<Call>> for Call {
    fn from(call: Box<Call>) -> Self {
        *call
    }
}

/// What the attribute's code calls; without an executor the run is refused before anything is asked of the call.
#[doc(hidden)]
pub fn within<T: 'static>(executor: Option<&Executor>, call: Call, mode: ClaimMode) -> (Call, Lender<T>) {
    match executor {
        Some(executor) => call.within(executor, mode),
        None => (call, Lender(None)),
    }
}
