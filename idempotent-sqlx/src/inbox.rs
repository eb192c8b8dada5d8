//! The transactional inbox (level L3): effect and marker in one transaction of the store's database.
//!
//! Three ways in, one machinery: `#[idempotent(…, transaction = tx)]`; [`Inbox`], where there is no attribute; and
//! `claim_in` and `complete_in` of a store, for a transaction that is the caller's own.
//!
//! A dialect says how a transaction begins, how its key is claimed and completed in it, and whether a commit without an
//! answer was one ([`Dialect`]); everything else is written once, in `run`.
mod commit;
mod dialect;
mod step_transactions;
mod transactional_run;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use idempotent_core::{
    BorrowedTransaction, Call, ClaimMode, Codec, DefaultReply, Executor, Handler, Json, RejectStrategy, ReplyStrategy,
};
use sqlx::{Database, Transaction};

pub(crate) use self::dialect::{Dialect, Last, consumed, in_place, rolled_back};
pub use self::step_transactions::StepTransaction;
pub(crate) use self::step_transactions::step_transactions;
pub(crate) use self::transactional_run::transactional_run;

/// Runs handlers in a transaction of the executor's store: effect and marker are committed together, so each key has its
/// effect once, whatever is killed when.
///
/// The store has to lie in the database of the effects: its connections are the handler's. A rollback is all that is
/// needed for a retry. What the handler writes elsewhere is no part of it.
///
/// ```no_run
/// use idempotent_core::{Call, Executor, Identity, Rejection, Scene};
/// use idempotent_sqlx::{Inbox, PostgresStore};
/// use sqlx::Postgres;
///
/// # type Error = Box<dyn std::error::Error + Send + Sync>;
/// # async fn example() -> Result<(), Error> {
/// let store = PostgresStore::open("postgres://app:secret@db.internal/shop").await?;
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

/// Of the same executor, and so of the same connections; derived, it would ask the database's type for it.
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
    /// One that claims in the transaction: [`ClaimMode::Inside`].
    pub fn new(executor: &Executor) -> Self {
        Self { executor: executor.clone(), mode: ClaimMode::Inside, of: PhantomData }
    }

    /// One that claims by a lease before it: [`ClaimMode::Leased`].
    pub fn leased(executor: &Executor) -> Self {
        Self { mode: ClaimMode::Leased, ..Self::new(executor) }
    }

    /// Begins, claims, runs, completes and commits; an error of the handler's rolls back. Duplicates, rejections, outcomes
    /// and observers are as with [`Executor::run`]. A commit that failed is a
    /// [`Rejection::RolledBack`](idempotent_core::Rejection::RolledBack), and the call is worth a retry; one whose answer got
    /// lost is looked up before it is judged.
    ///
    /// For a reply strategy or codec other than the default ones: [`Call::within`] and [`Executor::run`].
    ///
    /// # Cancellation
    /// Dropped before its commit is under way, it is rolled back. From then on the commit goes on, and a duplicate learns
    /// what it came to.
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

/// The transaction of a run, in its handler's hands. It is given back as it is dropped, and ends with the run: it cannot be
/// committed here. A handler that keeps it beyond its own end is rolled back.
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
