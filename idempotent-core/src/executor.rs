//! The template: claim → proceed → flip | delete; replay or come back later where the claim was not won.
//!
//! Each step is a function of that name: [`Executor::run`] is the template, `claim` stands in `executor/claim.rs`,
//! `proceed` in `executor/attempt.rs`, `flip` and `delete` in `executor/settle.rs`, `come_back_later` in
//! `executor/handler.rs`. Before them `executor/prepare.rs` refuses what need not be asked; around them: the builder, the
//! heartbeat, waiting for a run in flight, what a drop leaves behind, batches, draining.
mod attempt;
mod batch;
mod builder;
mod call;
mod cancel;
mod claim;
mod deferrals;
mod detach;
mod drain;
mod handler;
mod heartbeat;
mod insist;
mod judge;
mod line;
mod prepare;
mod presence;

mod producer;
mod renewals;
mod report;
mod serve;
mod settle;
mod site;
mod take_back;
mod turn;
mod unprotected;
mod wait;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Semaphore;
use tracing::{Instrument, Span};

pub use self::batch::{Answer, BatchItem};
pub use self::builder::ExecutorBuilder;
pub use self::call::Call;
use self::claim::Turned;
use self::deferrals::Deferrals;
pub use self::detach::Begun;
pub use self::drain::Drained;
use self::drain::Gate;
pub use self::handler::Handler;
use self::heartbeat::Wheel;
pub use self::heartbeat::register;
use self::prepare::Prepared;
use self::report::Report;
pub use self::serve::{Served, Stopped};
pub use self::site::Site;
use crate::context::Frame;
use crate::observe::Counters;
use crate::policy::Terms;
use crate::waiters::Waiters;
use crate::{Clock, Codec, Counts, Entropy, Observer, Outcome, Policy, Rejection, Replies, Scene, Store};

/// Runs handlers once per key. Cheap to clone: clones share everything.
///
/// ```
/// use idempotent_core::{Auto, Call, Executor, Handler, Identity, Json, MemoryStore, Rejection, Scene};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let executor = Executor::new(MemoryStore::new());
/// let order = "o-17";
/// for _ in 0..2 {
///     let call = Call::new(Identity::new(Scene::Mq, "orders", order));
///     let handler = Handler::<Auto, Json, _, _>::new(|| async { Ok::<_, Rejection>(42) });
///     assert_eq!(executor.run(call, handler).await.unwrap(), 42); // the second time it is replayed
/// }
/// assert_eq!((executor.counts().of("ran"), executor.counts().of("replayed")), (1, 1));
/// # });
/// ```
#[derive(Clone)]
pub struct Executor(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    namespace: Box<str>,
    policies: HashMap<Scene, Policy>,
    /// The policies in force for the scenes that come built in: every run asks for one.
    mq: Policy,
    rest: Policy,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    observer: Arc<dyn Observer>,
    counters: Counters,
    wheel: Arc<Wheel>,
    waiters: Arc<Waiters>,
    deferrals: Deferrals,
    gate: Gate,
    /// For duplicates that wait for a run in flight.
    places: Semaphore,
    /// True once a timer could be made.
    has_timer: AtomicBool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.wheel.close();
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("namespace", &self.0.namespace)
            .field("store", &self.0.store)
            .finish_non_exhaustive()
    }
}

impl AsRef<Self> for Executor {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Executor {
    /// With defaults.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self::builder(store).build_unchecked()
    }

    /// To set a namespace, policies, clock or observer.
    pub fn builder(store: impl Store) -> ExecutorBuilder {
        ExecutorBuilder::new(Arc::new(store))
    }

    /// Runs `handler` unless `call` was consumed or is in flight. The future keeps the room for `call` to its end: for less
    /// of it, box the call.
    ///
    /// # Cancellation
    /// Dropping the returned future drops the handler and stops the heartbeat. A handler that had not started
    /// frees the key; one that had leaves it to its lease, since its effect is unknown (unless the policy says
    /// `release_on_cancel`).
    ///
    /// # Panics
    /// A panic of the handler frees the key, then goes on.
    pub async fn run<P, C, R, F, Fut>(&self, call: impl Into<Call>, handler: Handler<P, C, R, F>) -> P::Output<R>
    where
        P: Replies<R>,
        C: Codec<P::Value>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = R>,
    {
        let (run, span) = match self.begin(call.into(), handler) {
            Ok(begun) => begun,
            Err(output) => return output,
        };
        match span {
            Some(span) => run.instrument(span).await,
            None => run.await,
        }
    }

    /// The run, if it is not refused before the store is asked. Boxed: what a caller awaits stays small, however deep
    /// its handlers nest.
    #[allow(clippy::type_complexity, reason = "a future that has no name")]
    fn begin<'e, P, C, R, F, Fut>(
        &'e self,
        mut call: Call,
        handler: Handler<P, C, R, F>,
    ) -> Result<(Pin<Box<impl Future<Output = P::Output<R>> + use<'e, P, C, R, F, Fut>>>, Option<Span>), P::Output<R>>
    where
        P: Replies<R>,
        C: Codec<P::Value>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = R>,
    {
        let frame = Frame::current();
        if let Some(needed) = P::policy() {
            call.policy = call.policy.or(self.policy(&call.identity.scene)).or(needed);
        }
        let mut report = Report::begin(self, &call.identity, &frame);
        match self.prepare(call, &frame, &mut report) {
            Ok(prepared) => {
                let span = report.span().cloned();
                Ok((Box::pin(self.template(prepared, frame, report, handler)), span))
            }
            Err(rejection) => Err(handler.come_back_later(&mut report, rejection)),
        }
    }

    async fn template<P, C, R, F, Fut>(
        &self,
        prepared: Box<Prepared>,
        frame: Frame,
        mut report: Report<'_>,
        handler: Handler<P, C, R, F>,
    ) -> P::Output<R>
    where
        P: Replies<R>,
        C: Codec<P::Value>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = R>,
    {
        // Boxed: what a claim needs is given back before the handler runs, however long that takes.
        match Box::pin(self.claim(prepared, &frame, &mut report)).await {
            // Boxed, as its end is: three small pieces cost less than one that allocators take for large.
            Ok(attempt) => Box::pin(attempt.proceed(frame, &mut report, handler)).await,
            Err(Turned::Replay(value)) => match C::decode(value.as_deref()) {
                Ok(value) => {
                    report.end(Outcome::Replayed);
                    P::replayed(value)
                }
                Err(cause) => {
                    handler.come_back_later(&mut report, Rejection::ConsumedWithoutResult { cause: Some(cause) })
                }
            },
            // Boxed: so rare a way must not make every run's future larger.
            Err(Turned::Unprotected(_, terms)) => Box::pin(self.unprotected(&terms, frame, report, handler)).await,
            Err(Turned::Away(rejection)) => handler.come_back_later(&mut report, rejection),
            Err(Turned::Duplicate(prepared)) => {
                let rejection = Box::pin(self.duplicate(&prepared)).await;
                handler.come_back_later(&mut report, rejection)
            }
        }
    }

    /// What the deliveries so far came to.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counters.read()
    }

    /// The store it works on.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// Where its time comes from: what settles deliveries beside it should go by the same.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// Where its randomness comes from.
    #[must_use]
    pub fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.0.entropy
    }

    /// The namespace of its keys.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// The policy in force for a scene: the executor's over the scene's default.
    pub fn policy(&self, scene: &Scene) -> Policy {
        match scene {
            Scene::Mq => self.0.mq,
            Scene::Rest => self.0.rest,
            Scene::Named(_) => {
                let scene = scene.clone().canonical();
                self.0.policies.get(&scene).copied().unwrap_or_default().or(Policy::of(&scene))
            }
        }
    }

    pub(crate) fn bits(&self) -> Result<u128, crate::EntropyError> {
        self.0.entropy.bits()
    }

    /// A store that does not answer in time is one that failed.
    pub(crate) async fn in_time<T>(
        &self,
        patience: std::time::Duration,
        asked: impl Future<Output = Result<T, crate::StoreError>>,
    ) -> Result<T, crate::StoreError> {
        let answer = self.before(self.0.clock.now() + patience, asked).await;
        answer.unwrap_or_else(|| Err(claim::unanswered()))
    }

    fn terms(&self, scene: &Scene, policy: Policy) -> Result<Terms, Rejection> {
        let terms = Terms::from(policy.or(self.policy(scene)));
        terms.check()?;
        Ok(terms)
    }
}

#[doc(hidden)]
pub async fn run<P, C, R, F, Fut>(with: Option<Executor>, call: Call, handler: Handler<P, C, R, F>) -> P::Output<R>
where
    P: Replies<R>,
    C: Codec<P::Value>,
    F: FnOnce() -> Fut,
    Fut: Future<Output = R>,
{
    let Some(executor) = with else {
        let rejection = Rejection::NoExecutor { scope: Arc::from(&*call.identity.scope) };
        report::without_executor(&call.identity, &rejection);
        return handler.reject(rejection);
    };
    // As `run`, not by it: its future would carry the call a second time.
    let (run, span) = match executor.begin(call, handler) {
        Ok(begun) => begun,
        Err(output) => return output,
    };
    match span {
        Some(span) => run.instrument(span).await,
        None => run.await,
    }
}
