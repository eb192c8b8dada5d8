//! Runs whose effect and marker are one transaction of the store's database (level L3).
//!
//! The template of a run stays as it is: such a run brings a store of its own ([`OneRun`]), whose claim begins a
//! transaction, whose completion commits it, and whose release rolls it back. In between the handler borrows it.
use std::any::type_name;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::policy::{OnStoreError, ResolvedPolicy};
use crate::{ClaimMode, Held, Rejection, Settled, StepRecord, Store, StoreError, Transact};

/// Begins and commits the transactions of steps, for [`step_in`](crate::step_in()).
#[async_trait]
pub trait StepsWithin<T: Send>: fmt::Debug + Send + Sync {
    /// Begins one.
    ///
    /// # Errors
    /// Nothing was begun.
    ///
    /// # Cancellation
    /// What has begun is rolled back.
    async fn begin(&self) -> Result<T, StoreError>;

    /// Notes the step in it, guarded as [`Journal::note`](crate::Journal::note) is, and commits it. Where that is not
    /// answered, it is found out: it ends only when it knows. [`Settled::Lost`] says that nothing was committed by this owner
    /// that a later one does not find.
    ///
    /// # Errors
    /// Of kind [`RolledBack`](crate::StoreErrorKind::RolledBack): neither the effect nor the note is there. Others: nobody knows.
    ///
    /// # Cancellation
    /// The commit goes on; the next run finds what it came to.
    async fn commit(&self, transaction: T, held: &Held, step: &StepRecord) -> Result<Settled, StoreError>;
}

/// The store of one run, with its transaction.
///
/// [`claim`](Store::claim) begins it; whatever the answer, a transaction without a grant is over when it returns.
/// [`complete`](Store::complete) commits it, and finds out what became of a commit that was not answered; an error of kind
/// [`RolledBack`](crate::StoreErrorKind::RolledBack) says that neither the effect nor the record is there.
/// [`release`](Store::release) rolls it back. Dropped, it rolls back.
pub trait OneRun: Store {
    /// Told before the claim: how long duplicates are to be recognised.
    fn retains(&self, retain: Duration);

    /// Whether its lease is to be renewed in the store. Not where nobody can take over while the transaction is open.
    fn renews(&self) -> bool;
}

/// Lends the transaction to the handler.
pub trait Lends<T: 'static>: OneRun {
    /// The transaction, between its claim and its end.
    fn lend(&self) -> Option<T>;

    /// Takes it back.
    fn take_back(&self, transaction: T);
}

/// Where a handler gets the transaction of its run from; made by [`Call::within`](crate::Call::within).
pub struct Lender<T: 'static>(pub(crate) Option<Arc<dyn Lends<T>>>);

impl<T: 'static> Clone for Lender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: 'static> fmt::Debug for Lender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lender").field(&self.0).finish()
    }
}

impl<T: 'static> Lender<T> {
    /// The transaction, until this is dropped: once for each run.
    ///
    /// # Panics
    /// Outside of the handler of the call it was made with: there is no transaction then.
    #[must_use]
    #[allow(clippy::expect_used, reason = "a handler runs only when its claim, which begins it, was granted")]
    pub fn lend(self) -> Lent<T> {
        let of = self.0.expect("the call was refused: its handler does not run");
        let transaction = of.lend();
        assert!(transaction.is_some(), "the transaction of a run is lent to its handler, once");
        Lent { back: ReturnTo::Run(of), transaction }
    }
}

/// The transaction of a run or step, in its handler's hands. It ends with the run or step: it cannot be committed here.
pub struct Lent<T: 'static> {
    back: ReturnTo<T>,
    /// None only while it is dropped.
    transaction: Option<T>,
}

impl<T: 'static> fmt::Debug for Lent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").finish_non_exhaustive()
    }
}

impl<T: 'static> Deref for Lent<T> {
    type Target = T;

    #[allow(clippy::expect_used, reason = "taken out only while it is dropped")]
    fn deref(&self) -> &T {
        self.transaction.as_ref().expect("it is here until this is dropped")
    }
}

impl<T: 'static> DerefMut for Lent<T> {
    #[allow(clippy::expect_used, reason = "taken out only while it is dropped")]
    fn deref_mut(&mut self) -> &mut T {
        self.transaction.as_mut().expect("it is here until this is dropped")
    }
}

impl<T: 'static> Drop for Lent<T> {
    fn drop(&mut self) {
        if let Some(transaction) = self.transaction.take() {
            match &self.back {
                ReturnTo::Run(run) => run.take_back(transaction),
                ReturnTo::Step(step) => *step.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(transaction),
            }
        }
    }
}

/// Where it goes when it is dropped.
enum ReturnTo<T: 'static> {
    Run(Arc<dyn Lends<T>>),
    Step(StepTransactionSlot<T>),
}

/// The transaction of a step, while nobody has it.
pub(crate) struct StepTransactionSlot<T: 'static>(Arc<Mutex<Option<T>>>);

impl<T: 'static> StepTransactionSlot<T> {
    pub(crate) fn lend(transaction: T) -> (Self, Lent<T>) {
        let slot = Arc::new(Mutex::new(None));
        (Self(slot.clone()), Lent { back: ReturnTo::Step(Self(slot)), transaction: Some(transaction) })
    }

    /// None if its borrower has kept it.
    pub(crate) fn take(self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The transactions of type `T` for steps under this store, or why there are none.
pub(crate) fn steps_within<T: Send + 'static>(store: &Arc<dyn Store>) -> Result<Arc<dyn StepsWithin<T>>, String> {
    let transact = store.abilities().transact;
    let own = transact.and_then(|transact| transact.steps_within().downcast::<Arc<dyn StepsWithin<T>>>().ok());
    own.map(|own| *own)
        .ok_or_else(|| format!("it wants `{}`, and the store is {}", type_name::<T>(), describe_store(store)))
}

/// The store a call brings for its run, or why there is none.
#[derive(Clone, Debug)]
pub(crate) enum CallStore {
    Own(Arc<dyn OneRun>, ClaimMode),
    /// The transaction that was wanted, and who has none such.
    Missing {
        wanted: &'static str,
        store: Arc<str>,
    },
}

impl CallStore {
    /// The store, told of the terms of its run. There is no running without it: the handler needs its transaction.
    pub(crate) fn resolve(self, policy: &mut ResolvedPolicy) -> Result<Arc<dyn OneRun>, Rejection> {
        match self {
            Self::Own(own, _) => {
                own.retains(policy.retain);
                policy.on_store_error = OnStoreError::Fail;
                Ok(own)
            }
            Self::Missing { wanted, store } => Err(Rejection::NoTransaction { wanted, store }),
        }
    }

    /// Whether its record, and the count in it, is rolled back with it.
    pub(crate) fn forgets_attempts(&self) -> bool {
        matches!(self, Self::Own(_, ClaimMode::Inside))
    }

    /// A batch is one handler for many keys: whose transaction should it be given?
    pub(crate) fn for_batch(self) -> Self {
        let wanted = match self {
            Self::Own(..) => "transaction",
            Self::Missing { wanted, .. } => wanted,
        };
        Self::Missing { wanted, store: "asked for a whole batch at once".into() }
    }
}

/// Its name, and which transactions it has.
pub(crate) fn describe_store(store: &Arc<dyn Store>) -> String {
    let has = store.abilities().transact.map_or("none at all", Transact::transaction);
    format!("{}, which has {has}", debug_name(&format!("{store:?}")))
}

/// The name of a type, which its `Debug` begins with.
fn debug_name(debug: &str) -> &str {
    debug.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or(debug)
}
