//! What happens to runs, for logs, spans and metrics.
mod counts;
mod tracing;

use std::fmt;
use std::time::Duration;

pub(crate) use self::counts::Counters;
pub use self::counts::Counts;
pub(crate) use self::tracing::span;
pub use self::tracing::{Tracing, trace};
use crate::{BrokenOrder, Fencing, Key, Outcome, Scene, StoreError};

/// Told of everything that happens to a run; logs and metrics are built on it. Called in the run's task, and for what
/// becomes of a lease on the thread that renews all leases: be quick, and do not block.
///
/// A pair of observers is one that tells both, so `(Tracing, Mine)` adds to the default one.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Handles one event. Each delivery has exactly one [`Event::Ended`], after any number of other events. A settlement that
    /// continues in the background reports [`StoreFailed`](Event::StoreFailed) and [`SettledLate`](Event::SettledLate) from
    /// another task, as a rule after that.
    fn on(&self, run: &Run<'_>, event: &Event<'_>);
}

impl<A: Observer, B: Observer> Observer for (A, B) {
    fn on(&self, run: &Run<'_>, event: &Event<'_>) {
        self.0.on(run, event);
        self.1.on(run, event);
    }
}

/// Which run. Nothing here shows a key in clear, so all of it may be logged.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Run<'a> {
    /// A label for metrics, with few values.
    pub scene: &'a Scene,
    /// A label for metrics, with few values.
    pub scope: &'a str,
    /// The hashed key; no label for metrics. `None` if there is no usable key.
    pub key: Option<&'a Key>,
    /// Which run of the key, once claimed.
    pub attempt: Option<u32>,
    /// The grant's number, once claimed.
    pub fencing: Option<Fencing>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(scene: &'a Scene, scope: &'a str, key: Option<&'a Key>) -> Self {
        Self { scene, scope, key, attempt: None, fencing: None }
    }
}

/// What happened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The key is this run's.
    Claimed {
        /// The grant of the owner that let its lease run out, if this took over.
        taken_over: Option<Fencing>,
    },
    /// The store did not answer, or refused; the step may be tried again.
    StoreFailed {
        /// claim, renew, complete, release, peek or order.
        step: &'static str,
        /// What the store said.
        error: &'a StoreError,
    },
    /// The lease was lost while the handler ran.
    LeaseLost,
    /// The run's runtime has not got to the run for two heartbeats, so something blocks its threads: a handler that
    /// computes, or waits without `.await`. The lease is renewed all the same, up to `max_run`; neither `max_run` nor
    /// a lost lease can end such a handler. Told once for a run, by the thread that renews.
    RuntimeBlocked {
        /// Since when, at the least.
        blocked: Duration,
    },
    /// The store is down and the handler runs all the same: duplicates run too.
    RunsUnprotected,
    /// The call comes after one that will not be consumed by itself. What becomes of it is the policy's
    /// [`on_broken_order`](crate::Policy::on_broken_order); while it is held, each of its deliveries tells so.
    OrderBroken {
        /// What is wrong.
        why: BrokenOrder,
        /// Whether it runs all the same.
        skipped: bool,
    },
    /// A run of several [steps](crate::step()) cannot go on, and its key is dead: a step's result is unknown, or the handler's
    /// steps have changed. Reported once the store has applied that.
    StepsParked {
        /// The reason. It names steps, and may contain an error text of a codec of yours.
        error: &'a str,
    },
    /// The result is not kept for replay.
    ResultNotKept {
        /// Why: too large, or not to be encoded.
        reason: &'a str,
    },
    /// A settlement that went on in the background, after its call returned, has ended; see
    /// [`settle_timeout`](crate::Policy::settle_timeout).
    SettledLate {
        /// The step: complete or release.
        step: &'static str,
        /// `None` if the store has applied the step. Otherwise, the key is held until its lease expires, unless the store has
        /// applied the step without an answer, or another worker has taken over.
        error: Option<&'a StoreError>,
    },
    /// The delivery's one terminal event.
    Ended {
        /// What it came to.
        outcome: &'a Outcome,
        /// From the call to here.
        elapsed: Duration,
    },
}
