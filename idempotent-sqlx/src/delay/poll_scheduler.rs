//! When to look for what is due: when the next is, which the last look has told, or when something earlier is scheduled.
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::{Clock, StoreError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::DelayTable;
use super::database::DelayDb;
use super::taken_task::Ahead;
use super::timing_wheel::Wheel;
use super::wakeup::Told;

/// The first rest where something may be there in a moment: a transaction that commits, or one that ends whose row is locked.
const EAGER: Duration = Duration::from_millis(2);
/// Times on a wheel at most.
const MOST: usize = 10_000;

/// Of one source.
pub(super) struct Pace<Db: DelayDb> {
    table: DelayTable<Db>,
    clock: Arc<dyn Clock>,
    bell: broadcast::Receiver<Told>,
    wheel: Option<Wheel>,
    /// How far a look goes.
    window: Duration,
    /// The last look: the database's time, and when that was.
    looked: (i64, Instant),
    /// Nothing is due before that the last look, or a timer on the wheel, does not know of.
    until: Instant,
    /// Something is due then.
    fires: bool,
    /// The last look stands.
    known: bool,
    /// There was more than could be taken.
    more: bool,
    eager: Option<Duration>,
    /// What was due could not be taken: how long to wait, and how long was waited before.
    barren: Option<Duration>,
    rested: Duration,
}

impl<Db: DelayDb> Pace<Db> {
    pub(super) fn new(table: &DelayTable<Db>) -> Self {
        let clock = table.0.timers.clone();
        let now = clock.now();
        Self {
            table: table.clone(),
            clock,
            bell: table.0.bell.subscribe(),
            wheel: None,
            window: table.0.poll,
            looked: (0, now),
            until: now,
            fires: false,
            known: false,
            more: false,
            eager: None,
            barren: None,
            rested: Duration::ZERO,
        }
    }

    pub(super) fn on_wheel(&mut self, window: Duration) {
        (self.wheel, self.window, self.known) = (Some(Wheel::default()), window, false);
    }

    /// Waits until something is due. Dropped, nothing is lost.
    pub(super) async fn due(&mut self) -> Result<(), StoreError> {
        loop {
            if std::mem::take(&mut self.more) {
                return Ok(());
            }
            if !self.known && self.look().await? {
                return Ok(());
            }
            tokio::select! {
                biased;
                told = self.bell.recv() => match told {
                    Ok(told) => self.heard(told),
                    Err(RecvError::Lagged(_)) => self.known = false,
                    // The table that this one has keeps the bell.
                    Err(RecvError::Closed) => std::future::pending().await,
                },
                () = turned(&mut self.wheel) => return Ok(()),
                () = self.clock.sleep_until(self.until) => {
                    self.known = false;
                    if self.fires {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// What taking came to.
    pub(super) fn took(&mut self, found: usize, room: usize) {
        self.more = found >= room;
        self.known &= found > 0 && self.wheel.is_some();
        self.barren = (found == 0).then(|| (self.rested * 2).clamp(EAGER, self.table.0.poll));
        if found > 0 {
            self.rested = Duration::ZERO;
        }
    }

    /// Whether something is due now.
    async fn look(&mut self) -> Result<bool, StoreError> {
        // What is told from here on may not be seen.
        loop {
            match self.bell.try_recv() {
                Ok(told) => self.heard(told),
                Err(TryRecvError::Lagged(_)) => {}
                Err(_) => break,
            }
        }
        let most = if self.wheel.is_some() { MOST } else { 1 };
        let Ahead { now, dues } = self.table.ahead(self.window, most).await?;
        // Behind the answer: so timers come not before the database's time.
        let at = self.clock.now();
        (self.looked, self.known) = ((now, at), true);
        let last = dues.last().copied().filter(|_| dues.len() >= most);
        (self.until, self.fires) = (at + last.map_or(self.window, |due| between(now, due)), last.is_some());
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
            self.sooner(at + rest, false);
            self.eager = Some(rest * 2).filter(|rest| *rest < self.window);
        }
        if !is_due {
            (self.barren, self.rested) = (None, Duration::ZERO);
        } else if let Some(rest) = self.barren.take() {
            self.rested = rest;
            self.sooner(at + rest, true);
            return Ok(false);
        }
        Ok(is_due)
    }

    fn sooner(&mut self, until: Instant, fires: bool) {
        if until < self.until || fires {
            (self.until, self.fires) = (until, fires);
        }
    }

    fn heard(&mut self, told: Told) {
        let (at, open) = match told {
            Told::At { at, open } => (self.looked.1 + between(self.looked.0, at), open),
            Told::In { at, open } => (at, open),
            Told::Look => {
                self.known = false;
                return;
            }
        };
        if self.known && at >= self.until {
            // By then it is looked for.
            return;
        }
        match &mut self.wheel {
            Some(wheel) if self.known && !open => wheel.put(at),
            _ => {
                self.known = false;
                self.eager = if open { Some(EAGER) } else { self.eager };
            }
        }
    }
}

impl<Db: DelayDb> DelayTable<Db> {
    /// Of work that is due so long from now.
    pub(super) fn told_in(&self, delay: Duration, open: bool) -> Told {
        self.0.timers.now().checked_add(delay).map_or(Told::Look, |at| Told::In { at, open })
    }
}

async fn turned(wheel: &mut Option<Wheel>) {
    match wheel {
        Some(wheel) => wheel.turned().await,
        None => std::future::pending().await,
    }
}

/// From one time to a later one, and zero to an earlier one.
fn between(from: i64, to: i64) -> Duration {
    Duration::from_micros(u64::try_from(to.saturating_sub(from)).unwrap_or_default())
}
