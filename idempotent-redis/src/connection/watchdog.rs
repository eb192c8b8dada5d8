//! One timer for a connection instead of one for each call: a timer that is the next to come wakes the thread that waits
//! for the socket, and every call's would be.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Looks in the time that an answer may take: it is given up at most one look late.
const CHECKS: u32 = 8;
/// A call is counted at the place of the look it came after, until all looks have gone by.
const SLOTS: usize = CHECKS as usize + 1;

/// The calls of a connection that wait for their answers.
#[derive(Debug, Default)]
pub(crate) struct ResponseWatchdog {
    waiting: [AtomicUsize; SLOTS],
    checks: AtomicUsize,
    /// Nothing waited at the last look: there is none until something does.
    parked: AtomicBool,
    wake: Notify,
    /// A caller gave up on an answer: nobody else may be waiting to see that none comes.
    given_up: AtomicBool,
    ended: AtomicBool,
    timed_out: Notify,
}

/// A call that waits.
pub(crate) struct PendingCall<'a> {
    watchdog: &'a ResponseWatchdog,
    slot: &'a AtomicUsize,
    /// Else its caller has given up.
    pub(crate) is_answered: bool,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.watchdog.given_up.store(true, Ordering::SeqCst);
        }
        self.slot.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ResponseWatchdog {
    pub(crate) fn register(&self) -> PendingCall<'_> {
        let slot = &self.waiting[self.checks.load(Ordering::SeqCst) % SLOTS];
        slot.fetch_add(1, Ordering::SeqCst);
        // Either it is seen to be asleep, or it sees this one.
        if self.parked.load(Ordering::SeqCst) && self.parked.swap(false, Ordering::SeqCst) {
            self.wake.notify_one();
        }
        PendingCall { watchdog: self, slot, is_answered: false }
    }

    /// Ends when a call has waited too long: whoever waits on that connection will not be answered either. Holds from
    /// when it is made.
    pub(crate) fn timed_out(&self) -> Notified<'_> {
        self.timed_out.notified()
    }

    /// Whether nothing more is to be sent.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Nothing more is to be sent.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }

    /// Watches until the connection ends and nobody waits on it, or a call has waited for `timeouts`. Where callers give up sooner than that,
    /// `ping` asks in their place.
    pub(crate) async fn watch<P>(
        self: Arc<Self>,
        timeouts: Duration,
        ping: impl Fn() -> P + Send,
        on_timeout: impl FnOnce() + Send,
    ) where
        P: Future<Output = bool> + Send,
    {
        // Also behind its end: those under way may be answered yet, or never.
        while !(self.has_ended() && self.is_idle()) {
            tokio::time::sleep(timeouts / CHECKS).await;
            if self.given_up.swap(false, Ordering::SeqCst) && !self.has_ended() {
                let answered = tokio::time::timeout(timeouts, ping()).await;
                if !matches!(answered, Ok(true)) {
                    return self.fire(on_timeout);
                }
            }
            let check = self.checks.load(Ordering::SeqCst) + 1;
            // The place that comes next is the one that was left longest ago.
            if self.waiting[check % SLOTS].load(Ordering::SeqCst) > 0 {
                return self.fire(on_timeout);
            }
            self.checks.store(check, Ordering::SeqCst);
            if self.park() {
                self.wake.notified().await;
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.iter().all(|slot| slot.load(Ordering::SeqCst) == 0)
    }

    fn fire(&self, on_timeout: impl FnOnce()) {
        self.ended.store(true, Ordering::SeqCst);
        on_timeout();
        self.timed_out.notify_waiters();
    }

    fn park(&self) -> bool {
        self.parked.store(true, Ordering::SeqCst);
        let idle = self.is_idle() && !self.given_up.load(Ordering::SeqCst) && !self.has_ended();
        // Who came in between has woken it up: the word of that is kept.
        idle || !self.parked.swap(false, Ordering::SeqCst)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
    }

    #[test]
    fn a_call_that_waits_too_long_is_given_up_and_not_before_its_time() {
        runtime().block_on(async {
            let watchdog = Arc::new(ResponseWatchdog::default());
            tokio::spawn(watchdog.clone().watch(PATIENCE, || async { true }, || ()));
            // Asleep, and after it was asleep.
            tokio::time::sleep(PATIENCE * 3).await;
            drop(watchdog.register());
            tokio::time::sleep(PATIENCE * 3).await;
            let (start, timed_out, _pending) = (tokio::time::Instant::now(), watchdog.timed_out(), watchdog.register());
            timed_out.await;
            let after = start.elapsed();
            assert!(after >= PATIENCE && after <= PATIENCE * 5 / 4, "{after:?}");
            assert!(watchdog.has_ended());
        });
    }

    #[test]
    fn calls_that_are_answered_or_dropped_in_time_are_let_be_and_an_ended_connection_is_left() {
        runtime().block_on(async {
            let watchdog = Arc::new(ResponseWatchdog::default());
            let watching = tokio::spawn(watchdog.clone().watch(
                PATIENCE,
                || async { true },
                || panic!("nobody has waited too long"),
            ));
            for _ in 0..20 {
                let _pending = watchdog.register();
                tokio::time::sleep(PATIENCE * 3 / 4).await;
            }
            watchdog.end();
            watching.await.unwrap();
        });
    }
    #[test]
    fn a_connection_on_which_callers_give_up_is_asked_whether_it_lives() {
        runtime().block_on(async {
            for (lives, ended) in [(true, false), (false, true)] {
                let watchdog = Arc::new(ResponseWatchdog::default());
                let asked = Arc::new(AtomicUsize::new(0));
                let count = asked.clone();
                let ping = move || {
                    count.fetch_add(1, Ordering::SeqCst);
                    async move { lives || std::future::pending().await }
                };
                tokio::spawn(watchdog.clone().watch(PATIENCE, ping, || ()));
                drop(watchdog.register());
                tokio::time::sleep(PATIENCE * 3).await;
                assert_eq!((watchdog.has_ended(), asked.load(Ordering::SeqCst)), (ended, 1), "lives: {lives}");
                let mut pending = watchdog.register();
                pending.is_answered = true;
                drop(pending);
                tokio::time::sleep(PATIENCE * 3).await;
                assert_eq!(asked.load(Ordering::SeqCst), 1, "an answered call is no reason to ask");
            }
        });
    }
}
