//! The state that all clones of an executor share, and the operations on it that every run needs.
mod deadlines;
mod deferrals;
mod drain_state;
mod in_flight_keys;
mod policies;
mod waiting;

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::Semaphore;

use self::deadlines::{DeadlineGuard, Deadlines};
use self::deferrals::Deferrals;
pub(crate) use self::drain_state::{DrainPhase, DrainState};
pub(crate) use self::in_flight_keys::{HeldKey, InFlightKeys, KeyLookup, KnownInFlight, PendingClaim};
use self::policies::PolicyTable;
use self::waiting::MAX_WAITERS;
use crate::backoff::delay;
use crate::clock::pause;
use crate::entropy::GuardedEntropy;
use crate::lease::{LeaseRenewer, renewal_thread};
use crate::observe::{Counters, GuardedObserver};
use crate::policy::ResolvedPolicy;
use crate::waiters::Waiters;
use crate::{
    Clock, DuplicateMessages, Entropy, EntropyError, InFlight, Key, Observer, OwnerToken, Policy, PolicyError,
    Rejection, Scene, Store, StoreError, StoreErrorKind,
};

/// The shared state of an [`Executor`](crate::Executor).
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) namespace: Box<str>,
    pub(crate) policies: PolicyTable,
    pub(crate) duplicate_messages: Option<DuplicateMessages>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) observer: Arc<GuardedObserver>,
    pub(crate) counters: Counters,
    pub(crate) renewer: Arc<LeaseRenewer>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) deferrals: Deferrals,
    /// The keys known to be in flight, if the executor defers their duplicates without a claim.
    pub(crate) in_flight_keys: Option<Arc<InFlightKeys>>,
    pub(crate) drain: DrainState,
    deadlines: Arc<Deadlines>,
    /// The permits of duplicates that wait for a run in flight.
    pub(crate) wait_permits: Semaphore,
    /// True once a timer of real time could be created.
    has_timer: AtomicBool,
}

/// The limit of a pending store request.
enum RequestLimit<'e> {
    /// Watched together with the limits of all other requests.
    Shared(DeadlineGuard<'e>),
    /// Watched by timers of its own.
    Own(Pin<Box<dyn Future<Output = ()> + Send + 'e>>),
}

impl RequestLimit<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Shared(guard) => guard.poll(context),
            Self::Own(timers) => timers.as_mut().poll(context),
        }
    }
}

/// The time that a settling step may take after the grace of a drain.
const SETTLE_AFTER_GRACE: Duration = Duration::from_secs(1);

impl Engine {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        namespace: Box<str>,
        policies: HashMap<Scene, Policy>,
        duplicate_messages: Option<DuplicateMessages>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let observer = GuardedObserver::new(observer);
        let renewer = LeaseRenewer::new(store.clone(), clock.clone(), observer.clone());
        let deadlines = Deadlines::new(clock.clone());
        Self {
            store,
            namespace,
            policies: PolicyTable::new(policies),
            duplicate_messages,
            clock,
            entropy: Arc::new(GuardedEntropy(entropy)),
            observer,
            counters: Counters::default(),
            renewer,
            waiters: Arc::default(),
            deferrals: Deferrals::default(),
            in_flight_keys: None,
            drain: DrainState::default(),
            deadlines,
            wait_permits: Semaphore::new(MAX_WAITERS),
            has_timer: AtomicBool::new(false),
        }
    }

    /// Sets the shortest time between two claims of a key in flight. Without it, each duplicate is claimed.
    pub(crate) fn with_claim_interval(mut self, interval: Duration) -> Self {
        self.in_flight_keys = (!interval.is_zero()).then(|| Arc::new(InFlightKeys::new(interval)));
        self
    }

    /// Returns the policy in force for a scene: the executor's policy over the scene's default.
    pub(crate) fn policy(&self, scene: &Scene) -> Policy {
        self.policies.of(scene)
    }

    /// Merges `overrides` over the policy of the scene and checks the result.
    pub(crate) fn resolve_policy(
        &self,
        scene: &Scene,
        overrides: Option<&Policy>,
    ) -> Result<Arc<ResolvedPolicy>, PolicyError> {
        self.policies.resolve(scene, overrides)
    }

    /// Returns true if the caller runs in a tokio runtime with a timer.
    ///
    /// tokio reports a missing timer only by a panic when one is created, so the first call creates one before its
    /// claim.
    pub(crate) fn has_runtime(&self) -> bool {
        if tokio::runtime::Handle::try_current().is_err() {
            return false;
        }
        let clock = &*self.clock;
        if !self.has_timer.load(Ordering::Relaxed) && clock.is_real_time() {
            let made = catch_unwind(AssertUnwindSafe(|| drop(clock.sleep_until(clock.now()))));
            self.has_timer.store(made.is_ok(), Ordering::Relaxed);
            return made.is_ok();
        }
        true
    }

    /// Waits for a store request for at most `timeout`.
    ///
    /// # Errors
    /// The store's error, or an ambiguous error if the store does not answer in time.
    pub(crate) async fn with_timeout<T>(
        &self,
        timeout: Duration,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let now = self.clock.now();
        let answer = self.before(|| now + timeout, pin!(request)).await;
        answer.unwrap_or_else(|| Err(no_answer_in_time()))
    }

    /// Waits for `future`. Returns `None` at the deadline, or one second after the grace of a drain has ended.
    ///
    /// The extra second lets an almost finished step complete, and keeps a hanging store from blocking the shutdown.
    pub(crate) fn before<F: Future + Unpin>(
        &self,
        deadline: impl Fn() -> Instant,
        mut future: F,
    ) -> impl Future<Output = Option<F::Output>> {
        let mut limit = None;
        poll_fn(move |context| {
            if let Poll::Ready(output) = future.poll_unpin(context) {
                return Poll::Ready(Some(output));
            }
            // Created only for a pending future: a store in this process answers at once and needs no deadline.
            let limit = limit.get_or_insert_with(|| self.limit(deadline(), context.waker()));
            limit.poll(context).map(|()| None)
        })
    }

    /// Returns the limit of a pending store request.
    fn limit(&self, deadline: Instant, waker: &Waker) -> RequestLimit<'_> {
        // A virtual clock has no thread of its own, so the caller's runtime watches the deadline.
        let thread = if self.has_timer.load(Ordering::Relaxed) { renewal_thread::runtime() } else { None };
        match thread {
            Some(thread) => RequestLimit::Shared(self.deadlines.register(deadline, waker, thread)),
            None => RequestLimit::Own(Box::pin(async move {
                let drained = async {
                    self.grace_ended().await;
                    pause(&*self.clock, SETTLE_AFTER_GRACE).await;
                };
                tokio::select! {
                    biased;
                    () = self.clock.sleep_until(deadline) => {}
                    () = drained => {}
                }
            })),
        }
    }

    /// Ends the grace of a drain: running handlers are dropped, and a hanging store no longer blocks the shutdown.
    pub(crate) fn end_grace(&self) {
        self.drain.advance(DrainPhase::GraceEnded);
        self.deadlines.end_grace(SETTLE_AFTER_GRACE);
    }

    /// Waits until the grace of a drain has ended, after which running handlers are dropped.
    pub(crate) async fn grace_ended(&self) {
        self.drain.wait_for(DrainPhase::GraceEnded).await;
    }

    /// Returns the number of calls that wait for another run.
    pub(crate) fn waiting_calls(&self) -> usize {
        MAX_WAITERS.saturating_sub(self.wait_permits.available_permits())
    }

    /// Returns true after a drain has begun.
    pub(crate) fn is_draining(&self) -> bool {
        self.drain.is_draining()
    }

    /// Wakes this process's calls that wait for the key, after a change of its record.
    pub(crate) fn wake_waiters(&self, key: &Key) {
        self.deferrals.forget(key);
        self.forget_answer(key);
        self.waiters.wake(key.hash());
    }

    /// Removes what the store answered to claims of the key, after a change of its record.
    pub(crate) fn forget_answer(&self, key: &Key) {
        if let Some(known) = &self.in_flight_keys {
            known.forget_answer(key);
        }
    }

    /// Returns the delay before the next attempt of a failed run.
    pub(crate) fn retry_delay(&self, policy: &ResolvedPolicy, attempt: u32) -> Duration {
        delay(policy.retry_delay, policy.retry_delay_max, attempt.saturating_sub(1), policy.jitter, self.jitter_bits())
    }

    /// Returns the delay for a duplicate of a key in flight, which grows with each deferral of the key.
    ///
    /// The delay never exceeds the rest of the lease, so that a duplicate of a short run does not wait for a long
    /// lease.
    pub(crate) fn in_flight_delay(&self, key: &Key, in_flight: InFlight, policy: &ResolvedPolicy) -> Duration {
        let remaining = match in_flight {
            InFlight::Leased { rest } => rest.max(Duration::from_millis(1)),
            InFlight::Busy => policy.in_flight_delay,
        };
        self.deferral_delay(key, remaining, policy).min(remaining)
    }

    /// Counts one more deferral of the key and returns the delay that grows with the count. The count is kept for
    /// `remember_for`.
    pub(crate) fn deferral_delay(&self, key: &Key, remember_for: Duration, policy: &ResolvedPolicy) -> Duration {
        let times = self.deferrals.count(key, remember_for, self.clock.now());
        delay(policy.in_flight_delay, policy.in_flight_delay_max, times, policy.jitter, self.jitter_bits())
    }

    /// Creates an owner token.
    pub(crate) fn new_owner(&self) -> Result<OwnerToken, EntropyError> {
        // The value zero marks a token that was not kept, so no owner gets it.
        Ok(OwnerToken(self.entropy.bits()?.max(1)))
    }

    /// Returns random bits for jitter, or zero if no randomness is available.
    fn jitter_bits(&self) -> u128 {
        self.entropy.bits().unwrap_or_default()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.renewer.close();
        self.deadlines.close();
    }
}

/// Returns the rejection of a call that arrives during a drain.
pub(crate) fn draining_rejection() -> Rejection {
    Rejection::Draining { retry_after: Duration::from_secs(1) }
}

fn no_answer_in_time() -> StoreError {
    no_answer("within a third of the lease")
}

/// Creates the ambiguous error for a store that has not answered; `when` names the missed deadline.
pub(crate) fn no_answer(when: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Ambiguous).because(format!("no answer {when}"))
}
