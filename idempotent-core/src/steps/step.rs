//! The [`Step`] builder and the functions that handlers call.
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;

use super::journal::{Compensation, StepStart};
use super::{MAX_STEP_BYTES, MAX_STEP_NAME, StepError, StepState};
use crate::{Codec, Json, Lease, Rejection, codec};

/// Creates a step of the current run. A completed step is not repeated when the handler runs again.
///
/// The result is recorded under the run's key before the handler continues. If the handler runs again, after a retry or
/// a takeover, a recorded step returns its result without running. An error is not recorded, so the next run repeats
/// the step. If the process is killed between the effect of a step and its record, the step runs again. Pass the
/// [`step_key`] to services that recognise repetitions (level L4), or use [`at_most_once`](Step::at_most_once).
///
/// Each step of a run needs a unique name. The steps that a handler calls, and their order, may depend only on the
/// message and on results of steps. A run that calls other steps than an earlier one is parked:
/// [`StepError::NonDeterminism`].
///
/// ```
/// use idempotent_core::{DefaultReply, Call, Executor, Handler, Identity, Json, MemoryStore, Rejection, Scene, step, step_key};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let executor = Executor::new(MemoryStore::new());
/// let call = Call::new(Identity::new(Scene::Mq, "orders", "o-17"));
/// let handler = Handler::<DefaultReply, Json, _, _>::new(|| async {
///     let key = step_key("lock_stock")?; // the same in every run of this message
///     let locked: u32 = step("lock_stock", || async move { Ok::<_, Rejection>(key.len() as u32) }).await?;
///     step("charge", || async move { Ok::<_, Rejection>(locked) }).at_most_once().await
/// });
/// assert_eq!(executor.run(call, handler).await.unwrap(), 43);
/// # });
/// ```
///
/// # Errors
/// The step's own error, or the handler's error made from a [`Rejection`]: [`Rejection::Journal`] if the step cannot
/// run or be recorded, and [`Rejection::LeaseLost`] if another worker may have taken over.
///
/// # Cancellation
/// If the step is dropped while it runs, nothing is recorded, except the intent of an at-most-once step.
pub fn step<F, Fut>(name: &str, run: F) -> Step<'_, F>
where
    F: FnOnce() -> Fut,
    Fut: Future,
{
    Step::new(Lease::current(), name, run)
}

/// Derives a key for a service that recognises repetitions. The key is the same for every run of this key and step, and
/// different for every other key or step. See [`Lease::step_key`].
///
/// # Errors
/// [`StepError::NotInRun`] outside of a run.
pub fn step_key(step: &str) -> Result<String, Rejection> {
    let lease = Lease::current().ok_or_else(|| StepError::NotInRun { step: step.into() })?;
    Ok(lease.step_key(step))
}

impl Lease {
    /// Creates a step of this run where [`Lease::current`] does not return its lease: in a separate task, or in a
    /// batch. Otherwise use [`step`](crate::step()).
    pub fn step<'a, F, Fut>(&self, name: &'a str, run: F) -> Step<'a, F>
    where
        F: FnOnce() -> Fut,
        Fut: Future,
    {
        Step::new(Some(self.clone()), name, run)
    }
}

/// A step that runs when it is awaited; see [`step`].
#[must_use = "a step runs when it is awaited"]
pub struct Step<'a, F, C = Json, W = OutsideTransaction> {
    lease: Option<Lease>,
    pub(super) name: &'a str,
    run: F,
    at_most_once: bool,
    pub(super) compensation: Option<Compensation>,
    /// True if the effect is part of the run's transaction.
    in_run_transaction: bool,
    codec: PhantomData<fn() -> (C, W)>,
}

/// The marker of a [`Step`] that is recorded outside of a transaction, after its effect.
#[derive(Debug)]
pub enum OutsideTransaction {}

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
        Self {
            lease,
            name,
            run,
            at_most_once: false,
            compensation: None,
            in_run_transaction: false,
            codec: PhantomData,
        }
    }
}

impl<F, C> Step<'_, F, C> {
    /// Runs the step at most once, by recording its start first.
    ///
    /// A run that finds a start without a result is parked ([`StepError::Uncertain`]), and so is a run in which the
    /// step fails, since its effect may have happened. Use this for effects that must not be repeated and cannot be
    /// recognised as repetitions.
    pub fn at_most_once(mut self) -> Self {
        self.at_most_once = true;
        self
    }

    /// Declares that all effects of the step are written in the transaction of its run (`transaction = tx`, `Inbox`).
    ///
    /// The step commits or rolls back with the run, so its effect happens once, and nothing has to be recorded. After a
    /// rollback the step runs again, like the whole run. The step needs no recorded start
    /// ([`at_most_once`](Self::at_most_once)) and no [compensation](Self::compensate), so neither is made. Effects
    /// outside of the transaction are repeated with the run.
    ///
    /// In a run without a transaction use [`step_in`](crate::step_in()), which has a transaction of its own.
    pub fn in_transaction(mut self) -> Self {
        self.in_run_transaction = true;
        self
    }
}

impl<'a, F, C, W> Step<'a, F, C, W> {
    /// Sets the action that undoes the step if the run fails permanently: by a permanent error, or out of attempts.
    ///
    /// The completed steps are compensated in reverse order, each at least once. If the process is killed during a
    /// compensation, the next run repeats it, if there is one, so a compensation must tolerate repetitions. A failed
    /// compensation stops the sequence. The next run, if there is one, continues there.
    ///
    /// A parked run is not compensated, nor is a run whose last attempt ended with its process. Both are left to an
    /// operator.
    pub fn compensate<U, Fut, E>(mut self, compensation: U) -> Self
    where
        U: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
    {
        self.compensation =
            Some(Box::new(|| Box::pin(compensation().map(|undone| undone.map_err(|_| std::any::type_name::<E>())))));
        self
    }

    /// Encodes the result with another codec.
    pub fn codec<D>(self) -> Step<'a, F, D, W> {
        let Self { lease, name, run, at_most_once, compensation, in_run_transaction, .. } = self;
        Step { lease, name, run, at_most_once, compensation, in_run_transaction, codec: PhantomData }
    }

    /// Decodes the recorded result of an earlier run.
    pub(super) fn replay<T>(&mut self, lease: &Lease, place: u32, value: Option<&[u8]>) -> Result<T, Rejection>
    where
        C: Codec<T>,
    {
        let (steps, name) = (lease.steps(), self.name);
        let value = codec::decode::<C, T>(value)
            .map_err(|cause| steps.reject(StepError::Codec { step: name.into(), cause }))?;
        steps.add_compensation(place, name, self.compensation.take());
        Ok(value)
    }

    /// Encodes a result for its record.
    pub(super) fn encode<T>(&self, lease: &Lease, value: &T) -> Result<Option<Arc<[u8]>>, Rejection>
    where
        C: Codec<T>,
    {
        let (steps, step) = (lease.steps(), || self.name.into());
        let encoded =
            codec::encode::<C, T>(value).map_err(|cause| steps.reject(StepError::Codec { step: step(), cause }))?;
        let bytes = encoded.as_ref().map_or(0, Vec::len);
        if bytes > MAX_STEP_BYTES {
            let of = "one step";
            return Err(steps.reject(StepError::TooLarge { step: step(), bytes, max: MAX_STEP_BYTES, of }));
        }
        Ok(encoded.map(Into::into))
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
        let unknown = || StepError::Uncertain { step: self.name.into() };
        let (run, step) = self.into_parts();
        let value = run().await.inspect_err(|_| {
            if step.at_most_once {
                steps.reject(unknown());
            }
        })?;
        let encoded = step.encode(&lease, &value)?;
        // The step is completed even if recording it fails.
        steps.add_compensation(place, step.name, step.compensation);
        steps.record(&lease, step.name, place, StepState::Done, encoded).await?;
        Ok(value)
    }

    /// Begins a step in its run's transaction, without reading or recording anything.
    fn begin_in_transaction(&mut self) -> Result<(), Rejection> {
        let lease = self.take_lease()?;
        if !lease.timing().in_transaction {
            let why = "its run has none; use `step_in` for a step with its own transaction".into();
            return Err(StepError::NoTransaction { step: self.name.into(), why }.into());
        }
        lease.steps().begin_in_transaction(self.name)
    }
}

impl<'a, F, C, W> Step<'a, F, C, W> {
    /// Splits the step into its closure and the rest.
    pub(super) fn into_parts(self) -> (F, Step<'a, (), C, W>) {
        let Self { lease, name, run, at_most_once, compensation, in_run_transaction, codec } = self;
        (run, Step { lease, name, run: (), at_most_once, compensation, in_run_transaction, codec })
    }

    /// Takes the lease, and checks the step's name.
    fn take_lease(&mut self) -> Result<Lease, Rejection> {
        let name = self.name;
        let lease = self.lease.take().ok_or_else(|| StepError::NotInRun { step: name.into() })?;
        if name.is_empty() || name.len() > MAX_STEP_NAME {
            let steps = lease.steps();
            return Err(steps.reject(StepError::Name { bytes: name.len(), max: MAX_STEP_NAME }));
        }
        Ok(lease)
    }

    /// Looks up the step in the journal.
    pub(super) async fn begin(&mut self) -> Result<(Lease, StepStart), Rejection> {
        let lease = self.take_lease()?;
        let begin = lease.steps().begin(&lease, self.name, self.at_most_once, &mut self.compensation).await?;
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
