//! The lease of a run: the right to run the handler, which the executor renews.
pub(crate) mod renewal_thread;
mod renewer;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

pub(crate) use self::renewer::{LeaseRenewer, RenewalGuard};
use crate::key::Name;
use crate::outcome::{OutcomeSlot, Summary, SummarySlot};
use crate::steps::StepJournal;
use crate::{ClaimHandle, Clock, FencingToken, Grant, Key, Scene, Store};

/// The right to run a handler, held while the handler runs.
///
/// [`Lease::current`] returns the lease of the current run. The lease is also the handler's cancellation signal:
/// another worker can take over a lost lease at any time. Stop when [`lost`](Self::lost) completes, and pass
/// [`fencing`](Self::fencing) to resources that can reject a late writer.
#[derive(Clone)]
pub struct Lease(Arc<LeaseInner>);

struct LeaseInner {
    held: ClaimHandle,
    grant: Grant,
    handler_name: HandlerName,
    outer: Option<Lease>,
    clock: Arc<dyn Clock>,
    store: Arc<dyn Store>,
    /// The journal, created by the run's first step.
    steps: OnceLock<Box<StepJournal>>,
    timing: LeaseTiming,
    margin: Duration,
    /// The time at which the claim was sent.
    claim_sent: Instant,
    /// The local end of the lease, in ns after `claim_sent`. No other owner can hold the key before.
    guard: AtomicU64,
    /// The end of renewals, in ns after `claim_sent`.
    renewable_for: AtomicU64,
    /// True once a renewal was sent, which changes the record even if its answer is lost.
    renewal_sent: AtomicBool,
    /// The last time at which the run's task was polled, in ns after `claim_sent`.
    last_poll: AtomicU64,
    /// True once a blocked runtime was reported.
    reported: AtomicBool,
    lost: AtomicBool,
    ended: AtomicBool,
    lost_notify: Notify,
    nested: Summary,
    /// The handle after a renewal.
    renewed: OnceLock<Box<ClaimHandle>>,
}

/// The scene and scope of the handler that holds a lease.
pub(crate) struct HandlerName {
    pub(crate) scene: Scene,
    pub(crate) scope: Name,
}

/// The durations of a lease, and the way in which it is renewed.
pub(crate) struct LeaseTiming {
    pub(crate) heartbeat: Duration,
    pub(crate) max_run: Duration,
    /// The longest time for which the records of steps are needed.
    pub(crate) step_retention: Duration,
    /// True if renewals are sent to the store. An open transaction needs none, since it excludes takeovers.
    pub(crate) renews: bool,
    /// True if the handler has a transaction that is committed with its record.
    pub(crate) in_transaction: bool,
}

impl Lease {
    /// Creates a lease. `sent` is taken before the claim is sent, so the local guard ends before the store's lease.
    pub(crate) fn new(
        held: ClaimHandle,
        grant: Grant,
        handler_name: HandlerName,
        outer: Option<Self>,
        (clock, store): (Arc<dyn Clock>, Arc<dyn Store>),
        (claim_sent, answered): (Instant, Instant),
        timing: LeaseTiming,
    ) -> Self {
        let round_trip = answered.saturating_duration_since(claim_sent);
        let margin = (grant.lease / 10).max(round_trip * 2).max(Duration::from_millis(5)).min(grant.lease / 2);
        Self(Arc::new(LeaseInner {
            guard: AtomicU64::new(nanos(grant.lease.saturating_sub(margin))),
            held,
            grant,
            handler_name,
            outer,
            clock,
            store,
            steps: OnceLock::new(),
            renewable_for: AtomicU64::new(nanos(timing.max_run)),
            timing,
            margin,
            claim_sent,
            renewal_sent: AtomicBool::new(false),
            last_poll: AtomicU64::new(nanos(round_trip)),
            reported: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            lost_notify: Notify::new(),
            nested: Summary::default(),
            renewed: OnceLock::new(),
        }))
    }

    /// Returns the fencing token of this grant, for a resource that rejects smaller ones (level L2).
    #[must_use]
    pub fn fencing(&self) -> FencingToken {
        self.0.grant.fencing
    }

    /// Returns the attempt: 1 for the first run of the key, and more for a retry or takeover, if the scene has a retry
    /// limit.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.grant.attempt
    }

    /// Returns the fencing token of the previous owner, if this run took over an expired lease. The effect of the
    /// previous run may have happened.
    #[must_use]
    pub fn taken_over(&self) -> Option<FencingToken> {
        self.0.grant.taken_over
    }

    /// Returns the key, hashed.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.0.held.key
    }

    /// Derives a key for a remote service that is itself idempotent (level L4).
    ///
    /// The key is the same for every attempt of this key and step, and different for every other key or step. It has 43
    /// characters, base64url.
    ///
    /// ```no_run
    /// # fn charge(_: &str) {}
    /// let lease = idempotent_core::Lease::current().unwrap();
    /// charge(&lease.step_key("charge"));
    /// ```
    #[must_use]
    pub fn step_key(&self, step: &str) -> String {
        let digest = Sha256::new()
            .chain_update(b"idempotent step")
            .chain_update(self.key().hash().to_be_bytes())
            .chain_update(step)
            .finalize();
        URL_SAFE_NO_PAD.encode(digest)
    }

    /// Returns the time until the local guard of the lease. Renewals move the guard.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard().saturating_duration_since(self.0.clock.now())
    }

    /// Returns true if another worker may have taken over. Check this before each action that cannot be undone.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost_at(self.0.clock.now())
    }

    pub(crate) fn is_lost_at(&self, now: Instant) -> bool {
        self.0.lost.load(Ordering::SeqCst) || self.guard() <= now
    }

    /// Waits until the lease is lost.
    ///
    /// # Cancellation
    /// Dropping the future stops the waiting.
    pub async fn lost(&self) {
        let lost_notify = self.0.lost_notify.notified();
        if !self.0.lost.load(Ordering::SeqCst) {
            lost_notify.await;
        }
    }

    /// Returns the slot for the summary of the runs directly inside this one.
    pub(crate) fn nested_slot(&self) -> OutcomeSlot {
        OutcomeSlot::Shared(self.0.clone())
    }

    /// Returns the run's journal, and creates it on the first call.
    pub(crate) fn steps(&self) -> &StepJournal {
        self.0.steps.get_or_init(Box::default)
    }

    /// Returns the run's journal, if a step was called.
    pub(crate) fn steps_called(&self) -> Option<&StepJournal> {
        self.0.steps.get().map(|steps| &**steps)
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    pub(crate) fn timing(&self) -> &LeaseTiming {
        &self.0.timing
    }

    /// Returns true if no earlier run of this key can have recorded steps: this is the first attempt, and no takeover.
    /// A deferred run with steps keeps its attempt, so that this holds.
    pub(crate) fn is_first(&self) -> bool {
        self.attempt() <= 1 && self.taken_over().is_none()
    }

    pub(crate) fn handler_name(&self) -> &HandlerName {
        &self.0.handler_name
    }

    pub(crate) fn held(&self) -> &ClaimHandle {
        &self.0.held
    }

    /// Returns the handle for a settlement. Without the terms of the grant, if the record may have been renewed: a store
    /// would compare them in vain.
    pub(crate) fn settling_handle(&self) -> &ClaimHandle {
        let held = &self.0.held;
        match self.0.renewal_sent.load(Ordering::Relaxed) {
            true => self.0.renewed.get_or_init(|| Box::new(ClaimHandle { terms: None, ..held.clone() })),
            false => held,
        }
    }

    /// Records that a renewal is about to be sent.
    pub(crate) fn mark_renewal_sent(&self) {
        self.0.renewal_sent.store(true, Ordering::Relaxed);
    }

    pub(crate) fn length(&self) -> Duration {
        self.0.grant.lease
    }

    pub(crate) fn guard(&self) -> Instant {
        self.0.claim_sent + Duration::from_nanos(self.0.guard.load(Ordering::SeqCst))
    }

    pub(crate) fn may_renew(&self, now: Instant) -> bool {
        let renewable_for = Duration::from_nanos(self.0.renewable_for.load(Ordering::Relaxed));
        now.saturating_duration_since(self.0.claim_sent) < renewable_for && !self.0.lost.load(Ordering::SeqCst)
    }

    /// Lets renewals end `max_run` after the start of a handler that has waited for its turn. They do not end before its start.
    pub(crate) fn run_from(&self, start: Option<Instant>) {
        let waited = start.map(|start| start.saturating_duration_since(self.0.claim_sent));
        let end = waited.map_or(u64::MAX, |waited| nanos(waited.saturating_add(self.0.timing.max_run)));
        self.0.renewable_for.store(end, Ordering::Relaxed);
    }

    pub(crate) fn extend(&self, claim_sent: Instant) {
        let guard_offset =
            claim_sent.saturating_duration_since(self.0.claim_sent) + self.length().saturating_sub(self.0.margin);
        self.0.guard.fetch_max(nanos(guard_offset), Ordering::SeqCst);
    }

    /// Records that the run's task was polled.
    pub(crate) fn record_poll(&self, now: Instant) {
        self.0.last_poll.store(nanos(now.saturating_duration_since(self.0.claim_sent)), Ordering::Relaxed);
    }

    /// Returns for how long the run's task was not polled, once per run, if that is longer than a task can sleep.
    pub(crate) fn blocked(&self, now: Instant) -> Option<Duration> {
        let last_poll = self.0.claim_sent + Duration::from_nanos(self.0.last_poll.load(Ordering::Relaxed));
        let blocked = now.saturating_duration_since(last_poll);
        let is_new = blocked > self.0.timing.heartbeat * 7 / 4 && !self.0.reported.swap(true, Ordering::Relaxed);
        is_new.then_some(blocked)
    }

    /// Marks the lease as lost. Returns true if the lease was not lost before and its run has not ended.
    pub(crate) fn mark_lost(&self) -> bool {
        let is_new = !self.0.lost.swap(true, Ordering::SeqCst) && !self.0.ended.load(Ordering::SeqCst);
        self.0.lost_notify.notify_waiters();
        is_new
    }

    /// Marks the handler as ended. A later loss of the lease is not reported any more.
    pub(crate) fn mark_ended(&self) {
        self.0.ended.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the scope of this lease, or of one that it is nested in, if that lease is for `key`.
    pub(crate) fn scope_of_run(&self, key: &Key) -> Option<&str> {
        let mut at = Some(self);
        while let Some(lease) = at {
            if lease.key() == key {
                return Some(&lease.0.handler_name.scope);
            }
            at = lease.0.outer.as_ref();
        }
        None
    }
}

impl SummarySlot for LeaseInner {
    fn summary(&self) -> &Summary {
        &self.nested
    }
}

/// Converts a duration to nanoseconds. A lease never exceeds 500 years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", self.key())
            .field("grant", &self.0.grant)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use super::*;
    use crate::{ClaimRequest, Identity, MemoryStore, SystemClock};

    pub(crate) const HEARTBEAT: Duration = Duration::from_secs(4);
    const NANOSECOND: Duration = Duration::from_nanos(1);

    /// Returns the lease of a claim that was sent and answered at `claimed`.
    pub(crate) fn lease(claimed: Instant, change: impl FnOnce(&mut LeaseTiming)) -> Lease {
        let request = ClaimRequest::new(Identity::new(Scene::Mq, "work", "k").key("test").unwrap()).unwrap();
        let grant = Grant { fencing: FencingToken(1), attempt: 1, lease: HEARTBEAT * 3, taken_over: None };
        let mut timing = LeaseTiming {
            heartbeat: HEARTBEAT,
            max_run: Duration::from_secs(60),
            step_retention: Duration::from_secs(70),
            renews: true,
            in_transaction: false,
        };
        change(&mut timing);
        let name = HandlerName { scene: Scene::Mq, scope: Name::Literal("work") };
        let parts: (Arc<dyn Clock>, Arc<dyn Store>) = (Arc::new(SystemClock::new()), Arc::new(MemoryStore::new()));
        Lease::new(ClaimHandle::granted(&request, &grant), grant, name, None, parts, (claimed, claimed), timing)
    }

    #[test]
    fn a_task_that_sleeps_longer_than_a_watch_is_reported_as_blocked_once() {
        let start = SystemClock::new().now();
        let limit = HEARTBEAT * 7 / 4;
        let asleep = lease(start, |_| {});
        assert_eq!(asleep.blocked(start + limit), None);
        assert_eq!(asleep.blocked(start + limit + NANOSECOND), Some(limit + NANOSECOND));
        assert_eq!(asleep.blocked(start + limit * 2), None, "reported already");
        let polled = lease(start, |_| {});
        polled.record_poll(start + HEARTBEAT);
        assert_eq!(polled.blocked(start + HEARTBEAT + limit), None);
        assert_eq!(polled.blocked(start + HEARTBEAT * 3), Some(HEARTBEAT * 2));
    }

    #[test]
    fn a_renewed_record_is_settled_without_the_terms_of_its_grant() {
        let lease = lease(SystemClock::new().now(), |_| {});
        assert_eq!(lease.settling_handle().terms, lease.held().terms);
        assert!(lease.held().terms.is_some());
        lease.mark_renewal_sent();
        assert_eq!(*lease.settling_handle(), ClaimHandle { terms: None, ..lease.held().clone() });
    }

    #[test]
    fn a_lease_has_the_timing_that_it_was_created_with() {
        let now = SystemClock::new().now();
        let (renewed, inside) =
            (lease(now, |_| {}), lease(now, |timing| (timing.renews, timing.in_transaction) = (false, true)));
        assert_eq!(
            [&renewed, &inside].map(|lease| (lease.timing().renews, lease.timing().in_transaction)),
            [(true, false), (false, true)]
        );
        assert_eq!(renewed.timing().step_retention, Duration::from_secs(70));
        assert!(renewed.is_same(&renewed.clone()) && !renewed.is_same(&inside));
    }
}
