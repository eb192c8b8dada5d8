//! A step that is written in a transaction of its own, together with its note.
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;

use super::journal::{StepStart, retry_until_guard};
use super::{JournalError, Step, StepRecord, StepState};
use crate::clock::unless;
use crate::transaction::{StepTransactionSlot, steps_within};
use crate::{Codec, Json, Lease, Lent, Rejection, StoreError, StoreErrorKind};

/// A [`Step`] that is written in a transaction of type `T` of its own, together with its note.
pub struct Within<T>(PhantomData<fn() -> T>);

impl<T> fmt::Debug for Within<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Within")
    }
}

/// A step whose effect lies in the store's own database: it is given a short transaction, in which its effect and its note are
/// committed together. So the effect is there **exactly once**, whatever is killed when (level L3 for this step); there is no
/// moment for [`at_most_once`](Step::at_most_once) to guard. The rest is as with [`step`](crate::step()).
///
/// `T` is the database's transaction, which the closure is lent: `idempotent-sqlx` calls that `StepTransaction<Db>`. An error
/// rolls back, and is not kept. What the closure does elsewhere is no part of it. Keep it short: it holds a connection of the
/// store's, and on SQLite the file's only lock, for which renewals wait, too.
///
/// For handlers without a transaction of their own; in one that has it (`transaction = tx`) write in that, as
/// [`step(…).in_transaction()`](Step::in_transaction).
///
/// # Errors
/// The step's own; or the handler's error made of a [`Rejection`]: as with [`step`](crate::step()), and
/// [`JournalError::NoTransaction`] where the store begins no such transaction. After [`JournalError::Store`] the next run finds
/// out what is there: nothing if it is of kind [`RolledBack`](StoreErrorKind::RolledBack).
///
/// # Cancellation
/// Dropped before its commit is under way, it is rolled back. From then on the commit goes on, and the next run finds its note,
/// or not.
pub fn step_in<T, F, Fut>(name: &str, run: F) -> Step<'_, F, Json, Within<T>>
where
    T: Send + 'static,
    F: FnOnce(Lent<T>) -> Fut,
    Fut: Future,
{
    Step::new(Lease::current(), name, run)
}

impl<F, C, W> Step<'_, F, C, Within<W>>
where
    W: Send + 'static,
{
    async fn execute<Fut, T, E>(mut self) -> Result<T, E>
    where
        F: FnOnce(Lent<W>) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        C: Codec<T>,
        E: From<Rejection>,
    {
        let (lease, begin) = self.begin().await?;
        let place = match begin {
            StepStart::Run(place) => place,
            StepStart::Replay(place, value) => return Ok(self.replay(&lease, place, value.as_deref())?),
        };
        let (run, step) = self.into_parts();
        let missing = |why: String| JournalError::NoTransaction { step: step.name.into(), why: why.into() };
        let transactions = steps_within::<W>(lease.store()).map_err(|why| E::from(missing(why).into()))?;
        let (slot, lent) =
            StepTransactionSlot::lend(retry_until_guard(&lease, step.name, || transactions.begin()).await?);
        // With an error it is rolled back as it is dropped.
        let value = run(lent).await?;
        let kept = step.encode(&lease, &value)?;
        let record = StepRecord { name: step.name.into(), place, state: StepState::Done, value: kept };
        lease.steps().check_room(&record)?;
        let failed = |cause| Rejection::from(JournalError::Store { step: step.name.into(), cause });
        let not_returned =
            || StoreError::new(StoreErrorKind::RolledBack).because("the step has kept its transaction to itself");
        let transaction = slot.take().ok_or_else(|| failed(not_returned()))?;
        lease.steps().set_commit_unknown(true);
        let committed = transactions.commit(transaction, lease.held(), &record);
        let settled = match unless(committed, || lease.clock().sleep_until(lease.guard())).await {
            Ok(settled) => settled,
            Err(()) => Err(StoreError::new(StoreErrorKind::Ambiguous).because("its commit has not been answered")),
        };
        // What is known to be there counts as kept, and what is known not to be needs nothing.
        let is_unknown = settled.as_ref().is_err_and(|error| error.kind() != StoreErrorKind::RolledBack);
        lease.steps().set_commit_unknown(is_unknown);
        let settled = match settled {
            Ok(settled) => settled,
            Err(cause) => {
                lease.steps().add_unconfirmed_compensation(place, step.name, step.undo.filter(|_| is_unknown));
                return Err(failed(cause).into());
            }
        };
        lease.steps().apply_recorded(&record, settled)?;
        lease.steps().add_compensation(place, step.name, step.undo);
        Ok(value)
    }
}

impl<'a, F, C, W, Fut, T, E> IntoFuture for Step<'a, F, C, Within<W>>
where
    W: Send + 'static,
    F: FnOnce(Lent<W>) -> Fut + Send + 'a,
    Fut: Future<Output = Result<T, E>> + Send + 'a,
    C: Codec<T> + 'a,
    T: Send + 'a,
    E: From<Rejection> + Send + 'a,
{
    type Output = Result<T, E>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.execute())
    }
}
