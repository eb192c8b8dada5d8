//! A step as a handler writes it.
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;

use super::journal::{Compensation, StepStart};
use super::{JournalError, MAX_STEP_BYTES, MAX_STEP_NAME, StepState};
use crate::{Codec, Json, Lease, Rejection};

/// A step of the run that this stands in: it runs once, however often the handler does.
///
/// Its result is kept under the run's key before the handler goes on. Where the handler runs again, by a retry or a
/// takeover, a step that is kept does not run: its result comes back. An error of the step is not kept: the next run tries
/// it again. What lies between the effect of a step and its note can still be cut: a process that dies there runs the step
/// again. So give what can recognise a repetition the [`step_key`] (level L4), or say
/// [`at_most_once`](Step::at_most_once).
///
/// The names of a run's steps differ; which steps are called, and in which order, depends on the message and on results of
/// steps only. A run that calls other steps than before is parked: [`JournalError::NonDeterminism`].
///
/// ```
/// use idempotent_core::{Auto, Call, Executor, Handler, Identity, Json, MemoryStore, Rejection, Scene, step, step_key};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let executor = Executor::new(MemoryStore::new());
/// let call = Call::new(Identity::new(Scene::Mq, "orders", "o-17"));
/// let handler = Handler::<Auto, Json, _, _>::new(|| async {
///     let key = step_key("lock_stock")?; // the same in every run of this message
///     let locked: u32 = step("lock_stock", || async move { Ok::<_, Rejection>(key.len() as u32) }).await?;
///     step("charge", || async move { Ok::<_, Rejection>(locked) }).at_most_once().await
/// });
/// assert_eq!(executor.run(call, handler).await.unwrap(), 43);
/// # });
/// ```
///
/// # Errors
/// The step's own; or the handler's error made of a [`Rejection`]: [`Rejection::Journal`] where the step cannot be,
/// [`Rejection::LeaseLost`] where another worker may have taken over.
///
/// # Cancellation
/// Dropped while the step runs, nothing is kept of it but the intent of one that may be begun only once.
pub fn step<F, Fut>(name: &str, run: F) -> Step<'_, F>
where
    F: FnOnce() -> Fut,
    Fut: Future,
{
    Step::new(Lease::current(), name, run)
}

/// A key for a far side that recognises repetitions: the same for every run of this key and step, another for every other
/// key or step. See [`Lease::step_key`].
///
/// # Errors
/// [`JournalError::NotInRun`] outside of a run.
pub fn step_key(step: &str) -> Result<String, Rejection> {
    let lease = Lease::current().ok_or_else(|| JournalError::NotInRun { step: step.into() })?;
    Ok(lease.step_key(step))
}

impl Lease {
    /// A step of this run, where [`Lease::current`] does not know it: in a task of its own, or in a batch. Elsewhere say
    /// [`step`](crate::step()), which tells more.
    pub fn step<'a, F, Fut>(&self, name: &'a str, run: F) -> Step<'a, F>
    where
        F: FnOnce() -> Fut,
        Fut: Future,
    {
        Step::new(Some(self.clone()), name, run)
    }
}

/// A step that waits to be awaited; see [`step`].
#[must_use = "a step runs when it is awaited"]
pub struct Step<'a, F, C = Json, W = Beside> {
    lease: Option<Lease>,
    pub(super) name: &'a str,
    run: F,
    at_most_once: bool,
    pub(super) undo: Option<Compensation>,
    /// Its effect is in the transaction of its run.
    in_run_transaction: bool,
    codec: PhantomData<fn() -> (C, W)>,
}

/// A [`Step`] that is noted beside its effect, once that is there.
#[derive(Debug)]
pub enum Beside {}

impl<F, C, W> fmt::Debug for Step<'_, F, C, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("name", &self.name)
            .field("at_most_once", &self.at_most_once)
            .finish_non_exhaustive()
    }
}

impl<'a, F, W> Step<'a, F, Json, W> {
    pub(crate) fn new(lease: Option<Lease>, name: &'a str, run: F) -> Self {
        Self { lease, name, run, at_most_once: false, undo: None, in_run_transaction: false, codec: PhantomData }
    }
}

impl<F, C> Step<'_, F, C> {
    /// Never begun twice: that it is about to begin is written down first. A run that finds that without a result is
    /// parked ([`JournalError::Uncertain`]), and so is one in which the step fails: after an error, too, nobody knows
    /// whether the effect happened. For what must not happen twice and cannot recognise a repetition.
    pub fn at_most_once(mut self) -> Self {
        self.at_most_once = true;
        self
    }

    /// All it does is written in the transaction of its run (`transaction = tx`, `Inbox`): it stands and falls with that, so its
    /// effect is there once, and nothing has to be kept of it. After a rollback it runs again, as the whole run does. Neither an
    /// intent ([`at_most_once`](Self::at_most_once)) nor a [compensation](Self::compensate) is needed, and none is made. What it
    /// does elsewhere is repeated with the run.
    ///
    /// In a run without a transaction: [`step_in`](crate::step_in()), which has one of its own.
    pub fn in_transaction(mut self) -> Self {
        self.in_run_transaction = true;
        self
    }
}

impl<'a, F, C, W> Step<'a, F, C, W> {
    /// What takes the step back if the run fails for good: by a permanent error, or out of attempts. Those of the steps
    /// that were done are run in reverse order, each at least once: one that the process dies in is run again by the next
    /// run, if there is one, so let it recognise a repetition. One that fails ends the row; the next run, if there is one,
    /// goes on there.
    ///
    /// A parked run, and one whose last attempt ended with its process, is left as it is, for a person.
    pub fn compensate<U, Fut, E>(mut self, undo: U) -> Self
    where
        U: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
    {
        self.undo = Some(Box::new(|| Box::pin(undo().map(|undone| undone.map_err(|_| std::any::type_name::<E>())))));
        self
    }

    /// Keeps the result by another codec.
    pub fn codec<D>(self) -> Step<'a, F, D, W> {
        let Self { lease, name, run, at_most_once, undo, in_run_transaction, .. } = self;
        Step { lease, name, run, at_most_once, undo, in_run_transaction, codec: PhantomData }
    }

    /// The result of an earlier run.
    pub(super) fn replay<T>(&mut self, lease: &Lease, place: u32, value: Option<&[u8]>) -> Result<T, Rejection>
    where
        C: Codec<T>,
    {
        let (steps, name) = (lease.steps(), self.name);
        let value = C::decode(value).map_err(|cause| steps.reject(JournalError::Codec { step: name.into(), cause }))?;
        steps.add_compensation(place, name, self.undo.take());
        Ok(value)
    }

    /// What is kept of a result.
    pub(super) fn encode<T>(&self, lease: &Lease, value: &T) -> Result<Option<Arc<[u8]>>, Rejection>
    where
        C: Codec<T>,
    {
        let (steps, step) = (lease.steps(), || self.name.into());
        let kept = C::encode(value).map_err(|cause| steps.reject(JournalError::Codec { step: step(), cause }))?;
        let bytes = kept.as_ref().map_or(0, Vec::len);
        if bytes > MAX_STEP_BYTES {
            let of = "one step";
            return Err(steps.reject(JournalError::TooLarge { step: step(), bytes, max: MAX_STEP_BYTES, of }));
        }
        Ok(kept.map(Into::into))
    }
}

impl<F, C> Step<'_, F, C> {
    async fn execute<Fut, T, E>(mut self) -> Result<T, E>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        C: Codec<T>,
        E: From<Rejection>,
    {
        if self.in_run_transaction {
            self.begin_in_transaction()?;
            return (self.run)().await;
        }
        let (lease, begin) = self.begin().await?;
        let steps = lease.steps();
        let place = match begin {
            StepStart::Run(place) => place,
            StepStart::Replay(place, value) => return Ok(self.replay(&lease, place, value.as_deref())?),
        };
        if self.at_most_once {
            steps.record(&lease, self.name, place, StepState::Intended, None).await?;
        }
        let unknown = || JournalError::Uncertain { step: self.name.into() };
        let (run, step) = self.into_parts();
        let value = run().await.inspect_err(|_| {
            if step.at_most_once {
                steps.reject(unknown());
            }
        })?;
        let kept = step.encode(&lease, &value)?;
        // It is done, whatever becomes of the note.
        steps.add_compensation(place, step.name, step.undo);
        steps.record(&lease, step.name, place, StepState::Done, kept).await?;
        Ok(value)
    }

    /// Nothing is read, and nothing noted.
    fn begin_in_transaction(&mut self) -> Result<(), Rejection> {
        let lease = self.take_lease()?;
        if !lease.is_in_transaction() {
            let why = "its run has none; `step_in` gives it one of its own".into();
            return Err(JournalError::NoTransaction { step: self.name.into(), why }.into());
        }
        lease.steps().begin_in_transaction(self.name)
    }
}

impl<'a, F, C, W> Step<'a, F, C, W> {
    /// What runs, and the rest of it.
    pub(super) fn into_parts(self) -> (F, Step<'a, (), C, W>) {
        let Self { lease, name, run, at_most_once, undo, in_run_transaction, codec } = self;
        (run, Step { lease, name, run: (), at_most_once, undo, in_run_transaction, codec })
    }

    /// Its lease, where its name is one.
    fn take_lease(&mut self) -> Result<Lease, Rejection> {
        let name = self.name;
        let lease = self.lease.take().ok_or_else(|| JournalError::NotInRun { step: name.into() })?;
        if name.is_empty() || name.len() > MAX_STEP_NAME {
            let steps = lease.steps();
            return Err(steps.reject(JournalError::Name { bytes: name.len(), max: MAX_STEP_NAME }));
        }
        Ok(lease)
    }

    /// What is to be done for it.
    pub(super) async fn begin(&mut self) -> Result<(Lease, StepStart), Rejection> {
        let lease = self.take_lease()?;
        let begin = lease.steps().begin(&lease, self.name, self.at_most_once, &mut self.undo).await?;
        match begin {
            StepStart::Run(_) if lease.is_lost() => Err(Rejection::LeaseLost),
            begin => Ok((lease, begin)),
        }
    }
}

impl<'a, F, C, Fut, T, E> IntoFuture for Step<'a, F, C>
where
    F: FnOnce() -> Fut + Send + 'a,
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
