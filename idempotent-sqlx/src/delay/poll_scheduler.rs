//! When to look for what is due: when the next is, which the last look has told, or when something earlier is scheduled.
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::{Clock, StoreError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::DelayTable;
use super::database::DelayDb;
use super::taken_task::UpcomingTimes;
use super::timing_wheel::TimingWheel;
use super::wakeup::Wakeup;

/// The first rest where something may be there in a moment: a transaction that commits, or one that ends whose row is locked.
const EAGER_DELAY: Duration = Duration::from_millis(2);
/// Times on a wheel at most.
const MOST: usize = 10_000;

/// Of one source.
pub(super) struct PollScheduler<Db: DelayDb> {
    table: DelayTable<Db>,
    clock: Arc<dyn Clock>,
    wakeups: broadcast::Receiver<Wakeup>,
    wheel: Option<TimingWheel>,
    /// How far a look goes.
    window: Duration,
    /// The last look: the database's time, and when that was.
    last_look: (i64, Instant),
    /// Nothing is due before that the last look, or a timer on the wheel, does not know of.
    until: Instant,
    /// Something is due then.
    is_due_then: bool,
    /// The last look stands.
    is_current: bool,
    /// There was more than could be taken.
    more: bool,
    eager: Option<Duration>,
    /// What was due could not be taken: how long to wait, and how long was waited before.
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

    /// Waits until something is due. Dropped, nothing is lost.
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
                    // The table that this one has keeps the bell.
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

    /// What taking came to.
    pub(super) fn after_take(&mut self, found: usize, room: usize) {
        self.more = found >= room;
        self.is_current &= found > 0 && self.wheel.is_some();
        self.retry_delay = (found == 0).then(|| (self.last_retry_delay * 2).clamp(EAGER_DELAY, self.table.0.poll));
        if found > 0 {
            self.last_retry_delay = Duration::ZERO;
        }
    }

    /// Whether something is due now.
    async fn look(&mut self) -> Result<bool, StoreError> {
        // What is told from here on may not be seen.
        loop {
            match self.wakeups.try_recv() {
                Ok(wakeup) => self.on_wakeup(wakeup),
                Err(TryRecvError::Lagged(_)) => {}
                Err(_) => break,
            }
        }
        let most = if self.wheel.is_some() { MOST } else { 1 };
        let UpcomingTimes { now, dues } = self.table.ahead(self.window, most).await?;
        // Behind the answer: so timers come not before the database's time.
        let at = self.clock.now();
        (self.last_look, self.is_current) = ((now, at), true);
        let last = dues.last().copied().filter(|_| dues.len() >= most);
        (self.until, self.is_due_then) = (at + last.map_or(self.window, |due| between(now, due)), last.is_some());
        let is_due = dues.first().is_some_and(|due| *due <= now);
        if let Some(wheel) = &mut self.wheel {
            wheel.clear();
            let mut last = now;
            for due in dues {
                // Those of one ms come together.
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
            // By then it is looked for.
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
    /// Of work that is due so long from now.
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

/// From one time to a later one, and zero to an earlier one.
fn between(from: i64, to: i64) -> Duration {
    Duration::from_micros(u64::try_from(to.saturating_sub(from)).unwrap_or_default())
}
