//! The transactional inbox (level L3): effect and record are written in one transaction of the store's database.
//!
//! It has three entry points with one implementation: `#[idempotent(…, transaction = tx)]`; [`Inbox`], for code
//! without the attribute; and `claim_in` and `complete_in` of a store, for a transaction of the caller.
//!
//! An [`InboxDatabase`] begins a transaction, claims and completes its key, and looks up a commit that was not answered.
//! `transactional_run` and `commit` contain the rest.
mod commit;
mod database;
mod step_transactions;
mod transactional_run;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use idempotent_core::{
    BorrowedTransaction, Call, ClaimMode, Codec, DefaultReply, Executor, Handler, Json, RejectStrategy, ReplyStrategy,
};
use sqlx::{Database, Transaction};

pub(crate) use self::database::{EffectClaim, FinalWrite, InboxDatabase, consumed, ended, in_place, rolled_back};
pub use self::step_transactions::StepTransaction;
pub(crate) use self::step_transactions::step_transactions;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use self::transactional_run::RECORD_CHANGED;
pub(crate) use self::transactional_run::transactional_run;

/// An inbox: runs handlers in a transaction of the executor's store. Effect and record are committed together, so
/// each key takes effect once, even if the process is killed at any point.
///
/// The store must be in the database of the effects: the handler uses the store's connections. A rollback is all that
/// a retry needs. Effects outside of the transaction are not covered.
///
/// ```no_run
/// use idempotent_core::{Call, Executor, Identity, Rejection, Scene};
/// use idempotent_sqlx::{Inbox, PostgresStore};
/// use sqlx::Postgres;
///
/// # type Error = Box<dyn std::error::Error + Send + Sync>;
/// # async fn example() -> Result<(), Error> {
/// let store = PostgresStore::connect("postgres://app:secret@db.internal/shop").await?;
/// let inbox = Inbox::<Postgres>::new(&Executor::new(store));
/// let call = Call::new(Identity::new(Scene::Mq, "orders", "o-17"));
/// let rows = inbox
///     .run(call, async |mut tx| {
///         let paid = sqlx::query("UPDATE account SET balance = balance - 5 WHERE id = 1");
///         Ok::<_, Error>(paid.execute(&mut **tx).await?.rows_affected())
///     })
///     .await?;
/// # let _ = rows;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct Inbox<Db> {
    executor: Executor,
    mode: ClaimMode,
    of: PhantomData<fn() -> Db>,
}

/// Implemented without `derive`, which would require `Db: Clone`.
impl<Db> Clone for Inbox<Db> {
    fn clone(&self) -> Self {
        Self { executor: self.executor.clone(), mode: self.mode, of: PhantomData }
    }
}

impl<Db> fmt::Debug for Inbox<Db> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("executor", &self.executor).field("mode", &self.mode).finish()
    }
}

impl<Db: Database> Inbox<Db> {
    /// Creates an inbox that claims in the transaction: [`ClaimMode::Inside`].
    pub fn new(executor: &Executor) -> Self {
        Self { executor: executor.clone(), mode: ClaimMode::Inside, of: PhantomData }
    }

    /// Creates an inbox that claims with a lease before the transaction: [`ClaimMode::Leased`].
    pub fn leased(executor: &Executor) -> Self {
        Self { mode: ClaimMode::Leased, ..Self::new(executor) }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn settings(&self) -> (&Executor, ClaimMode) {
        (&self.executor, self.mode)
    }

    /// Begins a transaction, claims the key, runs the handler, completes and commits; an error of the handler rolls
    /// back. Duplicates, rejections, outcomes and observers are as with [`Executor::run`]. A failed commit is a
    /// [`Rejection::RolledBack`](idempotent_core::Rejection::RolledBack), and the call can be retried. A commit whose
    /// answer was lost is looked up first.
    ///
    /// To use another reply strategy or codec, call [`Call::within`] and [`Executor::run`].
    ///
    /// # Cancellation
    /// Before the commit has started, dropping the future rolls back. After that, the commit continues, and a
    /// duplicate receives its result.
    pub async fn run<R>(&self, call: impl Into<Call>, handler: impl AsyncFnOnce(InboxTransaction<Db>) -> R) -> R
    where
        DefaultReply: RejectStrategy<R>,
        Json: Codec<<DefaultReply as ReplyStrategy<R>>::Value>,
    {
        let (call, lender) = call.into().within(&self.executor, self.mode);
        let run = || handler(InboxTransaction(lender.lend()));
        self.executor.run(call, Handler::<DefaultReply, Json, _, _>::new(run)).await
    }
}

/// The transaction of a run, borrowed by its handler. Dropping it returns it to the run, which ends it: the handler
/// cannot commit it. If the handler keeps it beyond its own end, the run rolls back.
#[derive(Debug)]
pub struct InboxTransaction<Db: Database>(BorrowedTransaction<Transaction<'static, Db>>);

impl<Db: Database> Deref for InboxTransaction<Db> {
    type Target = Transaction<'static, Db>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<Db: Database> DerefMut for InboxTransaction<Db> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
