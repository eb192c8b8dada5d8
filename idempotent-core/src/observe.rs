//! Events of runs, for logs, spans and metrics.
mod counts;
mod guarded;
mod subscriber;
mod tracing;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

pub(crate) use self::counts::Counters;
pub use self::counts::ExecutorCounts;
pub(crate) use self::guarded::GuardedObserver;
pub use self::subscriber::warn_without_subscriber;
pub(crate) use self::tracing::span;
pub use self::tracing::{Tracing, trace};
use crate::{BrokenOrder, FencingToken, Key, Outcome, Scene, StoreError};

/// A receiver of all events of runs, as a basis for logs and metrics.
///
/// Most events are reported in the run's task, and events of a lease on the thread that renews all leases. An observer
/// must be fast and must not block.
///
/// A panic of an observer is caught. The first one is logged, and the run goes on.
///
/// A pair of observers is an observer that calls both, so `(Tracing, Mine)` extends the default one.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Handles one event. Each delivery has exactly one [`Event::Ended`], after any number of other events. A
    /// settlement that continues in the background reports [`StoreFailed`](Event::StoreFailed) and
    /// [`SettledLate`](Event::SettledLate) from another task, usually after that.
    fn on(&self, run: &RunInfo<'_>, event: &Event<'_>);

    /// Returns whether the executor measures and reports the steps of each run: [`Event::HandlerStarted`],
    /// [`Event::HandlerEnded`] and [`Event::StoreAnswered`]. The executor asks once, when it is built.
    ///
    /// # Default
    /// `false`: the executor neither reads the clock for these events nor emits them
    fn wants_timing(&self) -> bool {
        false
    }
}

impl<A: Observer, B: Observer> Observer for (A, B) {
    fn on(&self, run: &RunInfo<'_>, event: &Event<'_>) {
        // A panic of one observer must not hide the event from the other.
        let first = catch_unwind(AssertUnwindSafe(|| self.0.on(run, event)));
        self.1.on(run, event);
        first.unwrap_or_else(|panic| resume_unwind(panic));
    }

    fn wants_timing(&self) -> bool {
        self.0.wants_timing() || self.1.wants_timing()
    }
}

/// The run of an event. No field shows a key in clear text, so all fields may be logged.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunInfo<'a> {
    /// The scene; suitable as a metrics label, with few values.
    pub scene: &'a Scene,
    /// The scope; suitable as a metrics label, with few values.
    pub scope: &'a str,
    /// The hashed key, or `None` if there is no valid key. Not suitable as a metrics label.
    pub key: Option<&'a Key>,
    /// The attempt, once the key is claimed.
    pub attempt: Option<u32>,
    /// The fencing token of the grant, once the key is claimed.
    pub fencing: Option<FencingToken>,
}

impl<'a> RunInfo<'a> {
    pub(crate) fn new(scene: &'a Scene, scope: &'a str, key: Option<&'a Key>) -> Self {
        Self { scene, scope, key, attempt: None, fencing: None }
    }
}

/// The way in which a handler ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum HandlerEnd {
    /// The handler returned a result that counts as done.
    Ok,
    /// The handler returned an error, or a value that counts as not done.
    Error,
    /// The handler panicked.
    Panic,
    /// The handler was dropped: its lease was lost, a drain ended, or its caller dropped the run.
    Aborted,
}

impl HandlerEnd {
    /// Returns the name of the end in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Panic => "panic",
            Self::Aborted => "aborted",
        }
    }
}

/// An event of a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The key was granted to this run.
    Claimed {
        /// The fencing token of the previous owner, if this run took over an expired lease.
        taken_over: Option<FencingToken>,
    },
    /// The key is consumed, so the delivery is a duplicate. Emitted when the store has answered the claim, before
    /// [`Ended`](Event::Ended). A duplicate of another item of its batch needs no answer of the store, and emits no such event.
    FoundConsumed {
        /// The fencing token of the run that consumed the key.
        fencing: FencingToken,
    },
    /// The handler starts. Emitted only if the observer [wants timing](Observer::wants_timing).
    HandlerStarted,
    /// The handler has ended, or was dropped. Emitted exactly once after each [`HandlerStarted`](Event::HandlerStarted).
    HandlerEnded {
        /// The way in which the handler ended.
        end: HandlerEnd,
        /// The time since the start.
        elapsed: Duration,
    },
    /// A call of the store has ended. Emitted only if the observer [wants timing](Observer::wants_timing).
    ///
    /// A store may claim or renew many keys in one call. Such a call is reported once, for one of its runs. Calls for
    /// order and steps are not measured.
    StoreAnswered {
        /// The step: claim, renew, complete, release or peek.
        step: &'static str,
        /// The error, or `None` if the store answered. A call without an answer in time is an error, too.
        error: Option<&'a StoreError>,
        /// The duration of the call.
        elapsed: Duration,
    },
    /// The store did not answer, or returned an error. The step may be retried.
    StoreFailed {
        /// The step: claim, renew, complete, release, peek or order.
        step: &'static str,
        /// The store's error.
        error: &'a StoreError,
    },
    /// The lease was lost while the handler ran, or waited for its turn.
    LeaseLost,
    /// The run's task was not polled for two heartbeats, so something blocks its runtime: a handler that computes, or
    /// waits without `.await`.
    ///
    /// The lease is still renewed, up to `max_run`. Neither `max_run` nor a lost lease can end such a handler. The
    /// renewal thread reports this once per run.
    RuntimeBlocked {
        /// The minimum time for which the runtime has been blocked.
        blocked: Duration,
    },
    /// The store is unavailable and the handler runs anyway, so duplicates run too.
    RunsUnprotected,
    /// The call has a predecessor that will not be consumed without intervention. The policy's
    /// [`on_broken_order`](crate::Policy::on_broken_order) decides about the call. While the call is held, each of its
    /// deliveries emits this event.
    OrderBroken {
        /// The reason.
        why: BrokenOrder,
        /// True if the call runs anyway.
        skipped: bool,
    },
    /// A run of several [steps](crate::step()) cannot continue, and its key is dead: a step's result is unknown, or the
    /// handler's steps have changed. The run emits this event after the store has applied the state.
    StepsParked {
        /// The reason. It names steps, and may contain an error text of a custom codec.
        error: &'a str,
    },
    /// The result is not stored for replay.
    ResultNotKept {
        /// The reason: too large, or not encodable.
        reason: &'a str,
    },
    /// A settlement that continued in the background, after its call returned, has ended; see
    /// [`settle_timeout`](crate::Policy::settle_timeout).
    SettledLate {
        /// The step: complete or release.
        step: &'static str,
        /// The error, or `None` if the store has applied the step. After an error, the key is held until its lease expires, unless the
        /// store has applied the step without an answer, or another worker has taken over.
        error: Option<&'a StoreError>,
    },
    /// The delivery has ended. Emitted exactly once per delivery.
    Ended {
        /// The outcome of the delivery.
        outcome: &'a Outcome,
        /// The time since the call.
        elapsed: Duration,
    },
}
