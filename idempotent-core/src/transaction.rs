//! Runs whose effect and record are committed in one transaction of the store's database (level L3).
//!
//! Such a run uses the same protocol with a store of its own ([`TransactionalRun`]). The store's claim begins a transaction, its
//! completion commits, and its release rolls back. In between, the handler borrows the transaction.
use std::any::{Any, type_name};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::policy::{OnStoreError, ResolvedPolicy};
use crate::{ClaimHandle, ClaimMode, Rejection, Settled, StepRecord, Store, StoreError, Transactional};

/// Begins and commits the transactions of steps, for [`step_in`](crate::step_in()).
#[async_trait]
pub trait StepTransactionSource<T: Send + 'static>: fmt::Debug + Send + Sync {
    /// Begins a transaction.
    ///
    /// # Errors
    /// The store's error; no transaction was begun.
    ///
    /// # Cancellation
    /// A transaction that was begun is rolled back.
    async fn begin(&self) -> Result<T, StoreError>;

    /// Records the step in the transaction, guarded like [`StepStore::note`](crate::StepStore::note), and commits.
    ///
    /// If the commit is not acknowledged, its result is looked up before this method returns. After [`Settled::Lost`],
    /// a later owner finds everything that this owner has committed.
    ///
    /// # Errors
    /// An error of kind [`RolledBack`](crate::StoreErrorKind::RolledBack) means that neither the effect nor the record
    /// was committed. [`TransactionEnded`](crate::StoreErrorKind::TransactionEnded): the step ended the transaction
    /// itself, so its effect may be committed, and its record is not. After any other error, the result is unknown.
    ///
    /// # Cancellation
    /// The commit continues, and the next run reads its result.
    async fn commit(&self, transaction: T, held: &ClaimHandle, step: &StepRecord) -> Result<Settled, StoreError>;

    /// Rolls back the transaction of a step that failed.
    ///
    /// # Errors
    /// [`TransactionEnded`](crate::StoreErrorKind::TransactionEnded): the step ended the transaction itself. Other errors
    /// end the connection, and the transaction with it.
    ///
    /// # Cancellation
    /// The rollback continues.
    ///
    /// # Default
    /// Drops the transaction.
    async fn roll_back(&self, transaction: T) -> Result<(), StoreError> {
        drop(transaction);
        Ok(())
    }

    /// Rolls back the transaction of a step that was dropped.
    ///
    /// # Default
    /// Drops the transaction.
    fn abandon(&self, transaction: T) {
        drop(transaction);
    }
}

/// The store of one run, with its transaction.
///
/// [`claim`](Store::claim) begins the transaction. Without a grant, the transaction has ended when the claim returns.
/// [`complete`](Store::complete) commits, and looks up the result of a commit that was not acknowledged. An error of
/// kind [`RolledBack`](crate::StoreErrorKind::RolledBack) means that neither the effect nor the record was committed.
/// [`release`](Store::release) rolls back, and so does dropping the store.
///
/// An error of kind [`TransactionEnded`](crate::StoreErrorKind::TransactionEnded) means that the handler ended the
/// transaction itself, so the record is not consumed. If `release` returns this error, the key was released.
pub trait TransactionalRun: Store {
    /// Sets how long duplicates are recognised. Called before the claim.
    fn retains(&self, retain: Duration);

    /// Returns true if the lease has to be renewed in the store. Not needed if the open transaction excludes a
    /// takeover.
    fn renews(&self) -> bool;
}

/// A store that lends its transaction to the handler.
pub trait TransactionSource<T: 'static>: TransactionalRun {
    /// Lends the transaction, between its claim and its end.
    fn lend(&self) -> Option<T>;

    /// Takes the transaction back from the handler.
    fn take_back(&self, transaction: T);

    /// Executes this statement together with the claim, if the database can do both in one round trip. Called before the
    /// claim. The crate of the database defines the type of the statement.
    ///
    /// # Default
    /// Drops the statement. The handler then executes the statement in the transaction.
    fn join_claim(&self, statement: Box<dyn Any + Send>) {
        drop(statement);
    }

    /// Returns the number of rows that the statement of [`join_claim`](Self::join_claim) has affected, or `None` if it was
    /// not executed with the claim.
    ///
    /// # Default
    /// `None`
    fn joined(&self) -> Option<u64> {
        None
    }
}

/// A handle from which the handler gets the transaction of its run, created by [`Call::within`](crate::Call::within).
pub struct TransactionHandle<T: 'static>(pub(crate) Option<Arc<dyn TransactionSource<T>>>);

impl<T: 'static> Clone for TransactionHandle<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: 'static> fmt::Debug for TransactionHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TransactionHandle").field(&self.0).finish()
    }
}

impl<T: 'static> TransactionHandle<T> {
    /// Returns the transaction. Each run has one, and can get it once.
    ///
    /// # Panics
    /// If called outside of the handler of the call that the lender was created with, or a second time.
    #[must_use]
    #[allow(clippy::expect_used, reason = "a handler runs only when its claim, which begins it, was granted")]
    pub fn lend(self) -> BorrowedTransaction<T> {
        let of = self.0.expect("the call was rejected, so its handler does not run");
        let transaction = of.lend();
        assert!(transaction.is_some(), "the transaction of a run can be borrowed once, by its handler");
        BorrowedTransaction { back: ReturnTo::Run(of), transaction }
    }

    /// Calls [`TransactionSource::join_claim`]. Does nothing if the call has no transaction.
    pub fn join_claim(&self, statement: Box<dyn Any + Send>) {
        if let Some(source) = &self.0 {
            source.join_claim(statement);
        }
    }

    /// Returns [`TransactionSource::joined`].
    #[must_use]
    pub fn joined(&self) -> Option<u64> {
        self.0.as_ref().and_then(|source| source.joined())
    }
}

/// The transaction of a run or step, borrowed by its handler. The run or step ends the transaction, so the handler
/// cannot commit it.
pub struct BorrowedTransaction<T: 'static> {
    back: ReturnTo<T>,
    /// The transaction. `None` only during the drop.
    transaction: Option<T>,
}

impl<T: 'static> fmt::Debug for BorrowedTransaction<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BorrowedTransaction").finish_non_exhaustive()
    }
}

impl<T: 'static> Deref for BorrowedTransaction<T> {
    type Target = T;

    #[allow(clippy::expect_used, reason = "taken out only while it is dropped")]
    fn deref(&self) -> &T {
        self.transaction.as_ref().expect("it is here until this is dropped")
    }
}

impl<T: 'static> DerefMut for BorrowedTransaction<T> {
    #[allow(clippy::expect_used, reason = "taken out only while it is dropped")]
    fn deref_mut(&mut self) -> &mut T {
        self.transaction.as_mut().expect("it is here until this is dropped")
    }
}

impl<T: 'static> Drop for BorrowedTransaction<T> {
    fn drop(&mut self) {
        if let Some(transaction) = self.transaction.take() {
            match &self.back {
                ReturnTo::Run(run) => run.take_back(transaction),
                ReturnTo::Step(step) => step.put_back(transaction),
            }
        }
    }
}

/// The owner that gets the transaction back on drop.
enum ReturnTo<T: 'static> {
    Run(Arc<dyn TransactionSource<T>>),
    Step(Arc<SlotState<T>>),
}

/// The transaction of a step, after its closure has returned it. An unclaimed transaction is abandoned.
pub(crate) struct StepTransactionSlot<T: 'static>(Arc<SlotState<T>>);

struct SlotState<T: 'static> {
    transaction: Mutex<Option<T>>,
    abandon: Box<dyn Fn(T) + Send + Sync>,
}

impl<T: Send + 'static> StepTransactionSlot<T> {
    pub(crate) fn lend(source: Arc<dyn StepTransactionSource<T>>, transaction: T) -> (Self, BorrowedTransaction<T>) {
        let abandon = Box::new(move |transaction| source.abandon(transaction));
        let slot = Arc::new(SlotState { transaction: Mutex::new(None), abandon });
        (Self(slot.clone()), BorrowedTransaction { back: ReturnTo::Step(slot), transaction: Some(transaction) })
    }

    /// Takes the transaction, or returns `None` if the closure still has it.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.transaction().take()
    }
}

impl<T: 'static> SlotState<T> {
    fn transaction(&self) -> MutexGuard<'_, Option<T>> {
        // No code panics while it holds this lock.
        self.transaction.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_back(&self, transaction: T) {
        *self.transaction() = Some(transaction);
    }
}

impl<T: 'static> Drop for SlotState<T> {
    fn drop(&mut self) {
        if let Some(transaction) = self.transaction().take() {
            (self.abandon)(transaction);
        }
    }
}

/// Returns the step transactions of type `T` of this store, or a text with the reason why there are none.
pub(crate) fn step_transactions<T: Send + 'static>(
    store: &Arc<dyn Store>,
) -> Result<Arc<dyn StepTransactionSource<T>>, String> {
    let transact = store.capabilities().transact;
    let own =
        transact.and_then(|transact| transact.step_transactions().downcast::<Arc<dyn StepTransactionSource<T>>>().ok());
    own.map(|own| *own)
        .ok_or_else(|| format!("requires `{}`, but the store is {}", type_name::<T>(), describe_store(store)))
}

/// The store for a call in a transaction, or the reason why there is none.
#[derive(Clone, Debug)]
pub(crate) enum CallStore {
    Own(Arc<dyn TransactionalRun>, ClaimMode),
    /// The requested transaction type, and the store that does not have it.
    Missing {
        wanted: &'static str,
        store: Arc<str>,
    },
}

impl CallStore {
    /// Returns the store with the policy applied. Such a call never runs unprotected, since its handler needs the
    /// transaction.
    pub(crate) fn resolve(self, policy: &mut ResolvedPolicy) -> Result<Arc<dyn TransactionalRun>, Rejection> {
        match self {
            Self::Own(own, _) => {
                own.retains(policy.retain);
                policy.on_store_error = OnStoreError::Fail;
                Ok(own)
            }
            Self::Missing { wanted, store } => Err(Rejection::NoTransaction { wanted, store }),
        }
    }

    /// Returns true if the record, with its attempt count, is rolled back with the transaction.
    pub(crate) fn forgets_attempts(&self) -> bool {
        matches!(self, Self::Own(_, ClaimMode::Inside))
    }

    /// Rejects transactions in a batch: one handler has many keys, so no single transaction fits.
    pub(crate) fn for_batch(self) -> Self {
        let wanted = match self {
            Self::Own(..) => "transaction",
            Self::Missing { wanted, .. } => wanted,
        };
        Self::Missing { wanted, store: "asked for a whole batch at once".into() }
    }
}

/// Describes the store by its type name and transaction type.
pub(crate) fn describe_store(store: &Arc<dyn Store>) -> String {
    let has = store.capabilities().transact.map_or("none at all", Transactional::transaction);
    format!("{}, which has {has}", debug_name(&format!("{store:?}")))
}

/// Returns the type name at the start of a `Debug` text.
fn debug_name(debug: &str) -> &str {
    debug.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or(debug)
}
