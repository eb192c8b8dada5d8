//! The handle by which alerts are raised, and its builder.
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, oneshot};

use super::groups::{Added, Groups, Limits};
use super::{Alert, AlertError, AlertLog, AlertSender, sending};
use crate::clock::{before, later};
use crate::{Clock, SystemClock, Timestamp};

/// Groups alerts, limits their rate, and sends them; never makes the caller wait.
///
/// Clones share one queue. Alerts of one kind, scope, source and cause are one group: its first alert is sent after the
/// [gathering time](AlertsBuilder::gather), with the count of those that came until then. Further ones are counted, and sent as
/// one alert when the [window](AlertsBuilder::window) ends.
///
/// Everything is in memory. A process that is killed loses all alerts that it has not sent: call [`flush`](Self::flush) before the end.
#[derive(Clone)]
pub struct Alerts(Arc<Handle>);

struct Handle(Arc<Shared>);

pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) wake: Notify,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) senders: Vec<Arc<dyn AlertSender>>,
    pub(super) sums: Sums,
}

pub(super) struct State {
    pub(super) groups: Groups,
    pub(super) flushes: Vec<oneshot::Sender<()>>,
    pub(super) closed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Sums {
    raised: AtomicU64,
    suppressed: AtomicU64,
    dropped: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// Counts of alerts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct AlertCounts {
    /// Alerts that sources have raised.
    pub raised: u64,
    /// Raised alerts that did not open a group: they are part of another alert's [`count`](Alert::count).
    pub suppressed: u64,
    /// Raised alerts that are lost because too many groups were open.
    pub dropped: u64,
    /// Alerts that every sender has accepted.
    pub sent: u64,
    /// Alerts that a sender has not accepted, after all tries.
    pub failed: u64,
}

impl Alerts {
    /// Returns a builder whose alerts go to the log.
    pub fn builder() -> AlertsBuilder {
        AlertsBuilder::default()
    }

    /// Raises an alert. Returns at once, regardless of the senders, and needs no runtime.
    pub fn raise(&self, alert: Alert) {
        self.add(alert, None);
    }

    /// Sends all waiting alerts now, regardless of the gathering time, the window and the rate limit. Returns false if that took longer
    /// than `limit`. Call it at the end of the process, after the consumers and the executor have drained.
    ///
    /// # Cancellation
    /// The alerts are still sent.
    pub async fn flush(&self, limit: Duration) -> bool {
        let (done, flushed) = oneshot::channel();
        let shared = self.shared();
        shared.state().flushes.push(done);
        shared.wake.notify_one();
        let deadline = later(shared.clock.now(), limit);
        before(&*shared.clock, deadline, flushed).await.is_some_and(|flushed| flushed.is_ok())
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> AlertCounts {
        let sums = &self.shared().sums;
        let of = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        AlertCounts {
            raised: of(&sums.raised),
            suppressed: of(&sums.suppressed),
            dropped: of(&sums.dropped),
            sent: of(&sums.sent),
            failed: of(&sums.failed),
        }
    }

    /// Returns the time for an [`Alert`] that is raised now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared().clock.wall()
    }

    fn add(&self, alert: Alert, waiting: Option<oneshot::Sender<bool>>) -> Added {
        let shared = self.shared();
        let now = shared.clock.now();
        let added = shared.state().groups.add(alert, waiting, now);
        shared.sums.raised.fetch_add(1, Ordering::Relaxed);
        match added {
            Added::New => shared.wake.notify_one(),
            Added::Joined | Added::Suppressed => drop(shared.sums.suppressed.fetch_add(1, Ordering::Relaxed)),
            Added::Dropped => {
                // Once: whatever fills the queue would fill the log, too. The counts have the number.
                if shared.sums.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::warn!(target: "idempotent", "alerts are dropped: too many groups are open");
                }
            }
        }
        added
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }
}

/// Raises the alert and waits until it is sent. An alert that is suppressed, or that the rate limit holds back, is not waited for. Fails
/// if the alert is dropped, or a sender has not accepted it after all tries.
#[async_trait]
impl AlertSender for Alerts {
    async fn send(&self, alert: &Alert) -> Result<(), AlertError> {
        let (done, sent) = oneshot::channel();
        if self.add(alert.clone(), Some(done)) == Added::Dropped {
            return Err(AlertError::new("too many groups of alerts are open"));
        }
        // Without an answer, the alert is counted in another one.
        match sent.await {
            Ok(false) => Err(AlertError::new("a sender failed every time")),
            Ok(true) | Err(_) => Ok(()),
        }
    }
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends waiting alerts and ends the task once the last handle is dropped.
impl Drop for Handle {
    fn drop(&mut self) {
        self.0.state().closed = true;
        self.0.wake.notify_one();
    }
}

impl fmt::Debug for Alerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let senders = &self.shared().senders;
        f.debug_struct("Alerts").field("senders", senders).field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// A builder for [`Alerts`].
#[must_use]
#[derive(Debug)]
pub struct AlertsBuilder {
    senders: Vec<Arc<dyn AlertSender>>,
    limits: Limits,
    clock: Arc<dyn Clock>,
}

/// A longer window would hide that a problem persists.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

impl Default for AlertsBuilder {
    fn default() -> Self {
        let (gather, window) = (Duration::from_secs(1), Duration::from_secs(300));
        Self {
            senders: vec![Arc::new(AlertLog::new())],
            limits: Limits { gather, window, rate: 30, groups: 1_000 },
            clock: Arc::new(SystemClock::new()),
        }
    }
}

impl AlertsBuilder {
    /// Adds a sender. All senders get each alert.
    ///
    /// # Default
    /// [`AlertLog`], which stays in place
    pub fn sender(mut self, sender: impl AlertSender) -> Self {
        self.senders.push(Arc::new(sender));
        self
    }

    /// Sets how long the first alert of a group waits for further ones: up to 24 h.
    ///
    /// # Default
    /// 1 s
    pub fn gather(mut self, gather: Duration) -> Self {
        self.limits.gather = gather;
        self
    }

    /// Sets the time between two alerts of one group, and the time that the rate limit counts in: up to 24 h.
    ///
    /// # Default
    /// 5 minutes
    pub fn window(mut self, window: Duration) -> Self {
        self.limits.window = window;
        self
    }

    /// Sets how many alerts are sent within a window at most, of all groups together. Others wait, and are counted.
    ///
    /// # Default
    /// 30
    pub fn rate(mut self, alerts: usize) -> Self {
        self.limits.rate = alerts;
        self
    }

    /// Sets how many groups may be open at a time. Alerts of other groups are dropped and [counted](AlertCounts::dropped).
    ///
    /// # Default
    /// 1,000
    pub fn max_groups(mut self, groups: usize) -> Self {
        self.limits.groups = groups;
        self
    }

    /// Sets the clock of the times above.
    ///
    /// # Default
    /// [`SystemClock`]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Starts the sending of alerts: on a thread of its own, so that an alert of a blocked runtime gets out, or as a task of
    /// the current runtime if the clock does not show [real time](Clock::is_real_time).
    ///
    /// # Errors
    /// [`AlertSetupError`] if a setting is out of range, or the thread or the runtime is missing.
    pub fn start(self) -> Result<Alerts, AlertSetupError> {
        let Limits { gather, window, rate, groups } = self.limits;
        let ensure = |holds: bool, text: String| if holds { Ok(()) } else { Err(AlertSetupError(text)) };
        ensure(gather <= LONGEST, format!("gather is {gather:?}, it must not be above 24 h"))?;
        ensure(window <= LONGEST, format!("window is {window:?}, it must not be above 24 h"))?;
        ensure(rate > 0, "rate is 0: no alert would ever be sent".to_owned())?;
        ensure(groups > 0, "max_groups is 0: every alert would be dropped".to_owned())?;
        let state = State { groups: Groups::new(self.limits), flushes: Vec::new(), closed: false };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            wake: Notify::new(),
            clock: self.clock,
            senders: self.senders,
            sums: Sums::default(),
        });
        sending::start(shared.clone()).map_err(AlertSetupError)?;
        Ok(Alerts(Arc::new(Handle(shared))))
    }
}

/// An error of [`AlertsBuilder::start`]; its text names the setting and the rule.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("alerts cannot be sent: {0}")]
pub struct AlertSetupError(String);
