//! The lease of a run: the right to run the handler, which the executor renews.
mod renewal_thread;
mod renewer;

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

pub(crate) use self::renewer::{LeaseRenewer, RenewalGuard};
use crate::clock::later;
use crate::steps::StepJournal;
use crate::{Clock, Fencing, Grant, Held, Key, Scene, Store};

/// Held while a handler runs; [`Lease::current`] finds it. Also the handler's cancellation token: a lease that
/// is lost can be taken over at any time, so stop when [`lost`](Self::lost) ends, and pass
/// [`fencing`](Self::fencing) to what can refuse a late writer.
#[derive(Clone)]
pub struct Lease(Arc<LeaseInner>);

struct LeaseInner {
    held: Held,
    grant: Grant,
    handler_name: HandlerName,
    outer: Option<Lease>,
    clock: Arc<dyn Clock>,
    store: Arc<dyn Store>,
    /// Made with the run's first step.
    steps: OnceLock<Box<StepJournal>>,
    step_retention: Duration,
    heartbeat: Duration,
    renews: bool,
    in_transaction: bool,
    margin: Duration,
    /// When the claim was sent.
    claim_sent: Instant,
    /// Up to here, in ns behind `sent` by the local clock, nobody else can have it.
    guard: AtomicU64,
    /// No renewal after this.
    renewable_until: Instant,
    /// When the run's task looked after the lease last, in ns after `sent`.
    last_poll: AtomicU64,
    /// True once a blocked runtime was reported.
    reported: AtomicBool,
    lost: AtomicBool,
    ended: AtomicBool,
    lost_notify: Notify,
}

/// Whose lease it is.
pub(crate) struct HandlerName {
    pub(crate) scene: Scene,
    pub(crate) scope: Cow<'static, str>,
}

/// How long a lease is to be kept alive.
pub(crate) struct LeaseTiming {
    pub(crate) heartbeat: Duration,
    pub(crate) max_run: Duration,
    /// How long what a step leaves is needed, at the most.
    pub(crate) step_retention: Duration,
    /// Whether the store has to hear of it.
    pub(crate) renews: bool,
    /// Whether the handler has a transaction that is committed with its record.
    pub(crate) in_transaction: bool,
}

impl Lease {
    /// `sent` is taken before the claim went out, so the local guard ends before the store's lease.
    pub(crate) fn new(
        held: Held,
        grant: Grant,
        handler_name: HandlerName,
        outer: Option<Self>,
        (clock, store): (Arc<dyn Clock>, Arc<dyn Store>),
        (claim_sent, answered): (Instant, Instant),
        timing: &LeaseTiming,
    ) -> Self {
        let round_trip = answered.saturating_duration_since(claim_sent);
        let margin = (grant.lease / 10).max(round_trip * 2).max(Duration::from_millis(5)).min(grant.lease / 2);
        let guard = AtomicU64::new(nanos(grant.lease.saturating_sub(margin)));
        let (heartbeat, renewable_until) = (timing.heartbeat, later(claim_sent, timing.max_run));
        let (lost, ended, lost_notify) = (AtomicBool::new(false), AtomicBool::new(false), Notify::new());
        Self(Arc::new(LeaseInner {
            held,
            grant,
            handler_name,
            outer,
            clock,
            store,
            steps: OnceLock::new(),
            step_retention: timing.step_retention,
            heartbeat,
            renews: timing.renews,
            in_transaction: timing.in_transaction,
            margin,
            claim_sent,
            guard,
            renewable_until,
            last_poll: AtomicU64::new(nanos(round_trip)),
            reported: AtomicBool::new(false),
            lost,
            ended,
            lost_notify,
        }))
    }

    /// This grant's number, for a resource that refuses smaller ones (level L2).
    #[must_use]
    pub fn fencing(&self) -> Fencing {
        self.0.grant.fencing
    }

    /// 1 for the first run of the key; more on a retry or takeover, if the scene has a retry limit.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.grant.attempt
    }

    /// The number of the owner that let its lease run out, if this run took over: its effect may have happened.
    #[must_use]
    pub fn taken_over(&self) -> Option<Fencing> {
        self.0.grant.taken_over
    }

    /// The key, hashed.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.0.held.key
    }

    /// A key for a far side that is itself idempotent (level L4): the same for every attempt of this key and
    /// step, different for every other key or step. 43 characters, base64url.
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

    /// What is left until the local guard; renewals move it on.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard().saturating_duration_since(self.0.clock.now())
    }

    /// Whether another worker may have it by now. Ask before each step that cannot be undone.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost_at(self.0.clock.now())
    }

    pub(crate) fn is_lost_at(&self, now: Instant) -> bool {
        self.0.lost.load(Ordering::SeqCst) || self.guard() <= now
    }

    /// Ends when the lease is lost.
    ///
    /// # Cancellation
    /// Dropping it stops waiting.
    pub async fn lost(&self) {
        let lost_notify = self.0.lost_notify.notified();
        if !self.0.lost.load(Ordering::SeqCst) {
            lost_notify.await;
        }
    }

    /// The run's journal.
    pub(crate) fn steps(&self) -> &StepJournal {
        self.0.steps.get_or_init(Box::default)
    }

    /// The run's journal, if a step was called.
    pub(crate) fn steps_called(&self) -> Option<&StepJournal> {
        self.0.steps.get().map(|steps| &**steps)
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    pub(crate) fn step_retention(&self) -> Duration {
        self.0.step_retention
    }

    /// Whether no run of this key, since its record began, can have left steps: this is the first, and nobody was
    /// overtaken. A deferred run that had steps keeps its attempt, so that this holds.
    pub(crate) fn is_first(&self) -> bool {
        self.attempt() <= 1 && self.taken_over().is_none()
    }

    pub(crate) fn handler_name(&self) -> &HandlerName {
        &self.0.handler_name
    }

    pub(crate) fn held(&self) -> &Held {
        &self.0.held
    }

    pub(crate) fn length(&self) -> Duration {
        self.0.grant.lease
    }

    pub(crate) fn heartbeat(&self) -> Duration {
        self.0.heartbeat
    }

    pub(crate) fn guard(&self) -> Instant {
        self.0.claim_sent + Duration::from_nanos(self.0.guard.load(Ordering::SeqCst))
    }

    pub(crate) fn may_renew(&self, now: Instant) -> bool {
        now < self.0.renewable_until && !self.0.lost.load(Ordering::SeqCst)
    }

    pub(crate) fn is_in_transaction(&self) -> bool {
        self.0.in_transaction
    }

    /// Whether the store is asked for renewals. An open transaction needs none: while it lasts nobody takes over.
    pub(crate) fn renews_in_store(&self) -> bool {
        self.0.renews
    }

    pub(crate) fn extend(&self, claim_sent: Instant) {
        let guard_offset =
            claim_sent.saturating_duration_since(self.0.claim_sent) + self.length().saturating_sub(self.0.margin);
        self.0.guard.fetch_max(nanos(guard_offset), Ordering::SeqCst);
    }

    /// Notes that the run's task got its turn.
    pub(crate) fn record_poll(&self, now: Instant) {
        self.0.last_poll.store(nanos(now.saturating_duration_since(self.0.claim_sent)), Ordering::Relaxed);
    }

    /// Returns for how long the run's task has had no turn, once, if that is longer than a task can sleep.
    pub(crate) fn blocked(&self, now: Instant) -> Option<Duration> {
        let last_poll = self.0.claim_sent + Duration::from_nanos(self.0.last_poll.load(Ordering::Relaxed));
        let blocked = now.saturating_duration_since(last_poll);
        let is_new = blocked > self.heartbeat() * 7 / 4 && !self.0.reported.swap(true, Ordering::Relaxed);
        is_new.then_some(blocked)
    }

    /// Says whether this is news: not lost before, and its run not ended.
    pub(crate) fn mark_lost(&self) -> bool {
        let is_new = !self.0.lost.swap(true, Ordering::SeqCst) && !self.0.ended.load(Ordering::SeqCst);
        self.0.lost_notify.notify_waiters();
        is_new
    }

    /// The handler has ended: what becomes of the lease from here on is the executor's business.
    pub(crate) fn mark_ended(&self) {
        self.0.ended.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether this lease or one it runs inside is for `key`; whose.
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

/// No lease lasts longer than 500 years.
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
