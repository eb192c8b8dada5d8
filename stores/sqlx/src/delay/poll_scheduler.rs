//! The times at which a source looks for due tasks: when the next known task is due, or when this process schedules
//! an earlier one.
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::{Clock, StoreError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::DelayTable;
use super::database::DelayDb;
use super::handle::Wakeup;
use super::taken_task::UpcomingTimes;
use super::timing_wheel::TimingWheel;

/// The first delay if a task may become available at any moment: a transaction may commit, or end and unlock a row.
const EAGER_DELAY: Duration = Duration::from_millis(2);
/// The maximum number of times on a wheel.
const MOST: usize = 10_000;

/// The scheduler of one source.
pub(super) struct PollScheduler<Db: DelayDb> {
    table: DelayTable<Db>,
    clock: Arc<dyn Clock>,
    wakeups: broadcast::Receiver<Wakeup>,
    wheel: Option<TimingWheel>,
    /// The period that a look covers.
    window: Duration,
    /// The time of the last look, by the database's clock and by this process.
    last_look: (i64, Instant),
    /// Before this time nothing is due, apart from tasks that the last look found or that have a timer on the wheel.
    until: Instant,
    /// A task is due at `until`.
    is_due_then: bool,
    /// The result of the last look is still valid.
    is_current: bool,
    /// The last take found more due tasks than it could return.
    more: bool,
    eager: Option<Duration>,
    /// The delay after due tasks could not be taken, and the delay before that one.
    retry_delay: Option<Duration>,
    last_retry_delay: Duration,
}

impl<Db: DelayDb> PollScheduler<Db> {
    pub(super) fn new(table: &DelayTable<Db>) -> Self {
        let clock = table.0.timers.clone();
        let now = clock.now();
        Self {
            table: table.clone(),
            clock,
            wakeups: table.0.wakeups.subscribe(),
            wheel: None,
            window: table.0.poll,
            last_look: (0, now),
            until: now,
            is_due_then: false,
            is_current: false,
            more: false,
            eager: None,
            retry_delay: None,
            last_retry_delay: Duration::ZERO,
        }
    }

    pub(super) fn on_wheel(&mut self, window: Duration) {
        (self.wheel, self.window, self.is_current) = (Some(TimingWheel::default()), window, false);
    }

    /// Waits until a task is due. Dropping the future loses nothing.
    pub(super) async fn due(&mut self) -> Result<(), StoreError> {
        loop {
            if std::mem::take(&mut self.more) {
                return Ok(());
            }
            if !self.is_current && self.look().await? {
                return Ok(());
            }
            tokio::select! {
                biased;
                wakeup = self.wakeups.recv() => match wakeup {
                    Ok(wakeup) => self.on_wakeup(wakeup),
                    Err(RecvError::Lagged(_)) => self.is_current = false,
                    // The table of this scheduler keeps the channel open.
                    Err(RecvError::Closed) => std::future::pending().await,
                },
                () = expired(&mut self.wheel) => return Ok(()),
                () = self.clock.sleep_until(self.until) => {
                    self.is_current = false;
                    if self.is_due_then {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Updates the state after a take of up to `room` tasks that found `found`.
    pub(super) fn after_take(&mut self, found: usize, room: usize) {
        self.more = found >= room;
        self.is_current &= found > 0 && self.wheel.is_some();
        self.retry_delay = (found == 0).then(|| (self.last_retry_delay * 2).clamp(EAGER_DELAY, self.table.0.poll));
        if found > 0 {
            self.last_retry_delay = Duration::ZERO;
        }
    }

    /// Looks for due tasks, and returns whether one is due now.
    async fn look(&mut self) -> Result<bool, StoreError> {
        // Later notifications may concern tasks that the look does not see.
        loop {
            match self.wakeups.try_recv() {
                Ok(wakeup) => self.on_wakeup(wakeup),
                Err(TryRecvError::Lagged(_)) => {}
                Err(_) => break,
            }
        }
        let most = if self.wheel.is_some() { MOST } else { 1 };
        let UpcomingTimes { now, dues } = self.table.ahead(self.window, most).await?;
        // The time is read after the answer, so timers never fire before the database's time.
        let at = self.clock.now();
        (self.last_look, self.is_current) = ((now, at), true);
        let last = dues.last().copied().filter(|_| dues.len() >= most);
        (self.until, self.is_due_then) = (at + last.map_or(self.window, |due| between(now, due)), last.is_some());
        let is_due = dues.first().is_some_and(|due| *due <= now);
        if let Some(wheel) = &mut self.wheel {
            wheel.clear();
            let mut last = now;
            for due in dues {
                // Times within one millisecond share a timer.
                if due / 1_000 > last / 1_000 {
                    wheel.put(at + between(now, due));
                    last = due;
                }
            }
        }
        if let Some(rest) = self.eager.take() {
            self.look_earlier(at + rest, false);
            self.eager = Some(rest * 2).filter(|rest| *rest < self.window);
        }
        if !is_due {
            (self.retry_delay, self.last_retry_delay) = (None, Duration::ZERO);
        } else if let Some(rest) = self.retry_delay.take() {
            self.last_retry_delay = rest;
            self.look_earlier(at + rest, true);
            return Ok(false);
        }
        Ok(is_due)
    }

    fn look_earlier(&mut self, until: Instant, is_due_then: bool) {
        if until < self.until || is_due_then {
            (self.until, self.is_due_then) = (until, is_due_then);
        }
    }

    fn on_wakeup(&mut self, wakeup: Wakeup) {
        let (at, open) = match wakeup {
            Wakeup::At { at, open } => (self.last_look.1 + between(self.last_look.0, at), open),
            Wakeup::In { at, open } => (at, open),
            Wakeup::Look => {
                self.is_current = false;
                return;
            }
        };
        if self.is_current && at >= self.until {
            // A look is planned before that time.
            return;
        }
        match &mut self.wheel {
            Some(wheel) if self.is_current && !open => wheel.put(at),
            _ => {
                self.is_current = false;
                self.eager = if open { Some(EAGER_DELAY) } else { self.eager };
            }
        }
    }
}

impl<Db: DelayDb> DelayTable<Db> {
    /// Returns the notification for a task that is due after `delay`.
    pub(super) fn wakeup_after(&self, delay: Duration, open: bool) -> Wakeup {
        self.0.timers.now().checked_add(delay).map_or(Wakeup::Look, |at| Wakeup::In { at, open })
    }
}

async fn expired(wheel: &mut Option<TimingWheel>) {
    match wheel {
        Some(wheel) => wheel.expired().await,
        None => std::future::pending().await,
    }
}

/// Returns the duration between two times in µs, or zero if `to` is earlier.
fn between(from: i64, to: i64) -> Duration {
    Duration::from_micros(u64::try_from(to.saturating_sub(from)).unwrap_or_default())
}
