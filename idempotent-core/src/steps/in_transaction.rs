//! Steps with a transaction of their own, which includes the record of the step.
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;

use super::journal::{StepStart, retry_until_guard};
use super::{Step, StepError, StepRecord, StepState};
use crate::clock::unless;
use crate::transaction::{StepTransactionSlot, step_transactions};
use crate::{BorrowedTransaction, Codec, Json, Lease, Rejection, StoreError, StoreErrorKind};

/// The marker of a [`Step`] with its own transaction of type `T`, which also records the step.
pub struct InTransaction<T>(PhantomData<fn() -> T>);

impl<T> fmt::Debug for InTransaction<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InTransaction")
    }
}

/// Creates a step that writes to the store's own database, in a short transaction that also records the step.
///
/// The effect and the record are committed together. So the effect happens **exactly once**, even if the process is
/// killed (level L3 for this step), and [`at_most_once`](Step::at_most_once) is not needed. Otherwise the step behaves
/// like [`step`](crate::step()).
///
/// `T` is the database's transaction, which the closure borrows; `idempotent-sqlx` calls the borrowed form
/// `StepTransaction<Db>`. An error rolls back, and is not recorded. Effects outside of the transaction are not covered.
/// Keep the transaction short: it uses a connection of the store. On SQLite it holds the only lock of the file, so
/// renewals wait.
///
/// Use this in handlers without a transaction. In a handler with one (`transaction = tx`), write in that transaction
/// with [`step(…).in_transaction()`](Step::in_transaction).
///
/// # Errors
/// The step's own error, or the handler's error made from a [`Rejection`], as for [`step`](crate::step()).
/// [`StepError::NoTransaction`] if the store does not begin transactions of this type. After [`StepError::Store`]
/// the next run reads what was committed, which is nothing if the kind is [`RolledBack`](StoreErrorKind::RolledBack).
///
/// # Cancellation
/// Dropping the step before its commit begins rolls back. After that the commit continues, and the next run reads its
/// result.
pub fn step_in<T, F, Fut>(name: &str, run: F) -> Step<'_, F, Json, InTransaction<T>>
where
    T: Send + 'static,
    F: FnOnce(BorrowedTransaction<T>) -> Fut,
    Fut: Future,
{
    Step::new(Lease::current(), name, run)
}

impl<F, C, W> Step<'_, F, C, InTransaction<W>>
where
    W: Send + 'static,
{
    async fn execute<Fut, T, E>(mut self) -> Result<T, E>
    where
        F: FnOnce(BorrowedTransaction<W>) -> Fut,
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
        let missing = |why: String| StepError::NoTransaction { step: step.name.into(), why: why.into() };
        let transactions = step_transactions::<W>(lease.store()).map_err(|why| E::from(missing(why).into()))?;
        let begun = retry_until_guard(&lease, step.name, || transactions.begin()).await?;
        let (slot, lent) = StepTransactionSlot::lend(transactions.clone(), begun);
        let failed = |cause| Rejection::from(StepError::Store { step: step.name.into(), cause });
        let value = match run(lent).await {
            Ok(value) => value,
            Err(error) => {
                let Some(transaction) = slot.take() else { return Err(error) };
                return Err(match transactions.roll_back(transaction).await {
                    // The more important error: a part of the step may be committed without its record.
                    Err(cause) if cause.kind() == StoreErrorKind::TransactionEnded => failed(cause).into(),
                    _ => error,
                });
            }
        };
        // An error drops the slot, which abandons the transaction.
        let encoded = step.encode(&lease, &value)?;
        let record = StepRecord { name: step.name.into(), place, state: StepState::Done, value: encoded };
        lease.steps().check_room(&record)?;
        let not_returned =
            || StoreError::new(StoreErrorKind::RolledBack).because("the step did not return its transaction");
        let transaction = slot.take().ok_or_else(|| failed(not_returned()))?;
        lease.steps().set_commit_unknown(true);
        let committed = transactions.commit(transaction, lease.held(), &record);
        let settled = match unless(committed, || lease.clock().sleep_until(lease.guard())).await {
            Ok(settled) => settled,
            Err(()) => Err(StoreError::new(StoreErrorKind::Ambiguous).because("no answer to the commit in time")),
        };
        // A known commit counts as recorded, and a known rollback needs no compensation.
        let is_unknown = settled.as_ref().is_err_and(|error| error.kind() != StoreErrorKind::RolledBack);
        lease.steps().set_commit_unknown(is_unknown);
        let settled = match settled {
            Ok(settled) => settled,
            Err(cause) => {
                lease.steps().add_unconfirmed_compensation(place, step.name, step.compensation.filter(|_| is_unknown));
                return Err(failed(cause).into());
            }
        };
        lease.steps().apply_recorded(&record, settled)?;
        lease.steps().add_compensation(place, step.name, step.compensation);
        Ok(value)
    }
}

impl<'a, F, C, W, Fut, T, E> IntoFuture for Step<'a, F, C, InTransaction<W>>
where
    W: Send + 'static,
    F: FnOnce(BorrowedTransaction<W>) -> Fut + Send + 'a,
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
