//! A watchdog for missing replies: one timer per connection instead of one per call.
//!
//! The timer that expires next wakes the thread that polls the socket. With a timer per call, every call would wake
//! that thread.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Number of checks within the response timeout. A missing reply is detected at most one check late.
const CHECKS: u32 = 8;
/// Number of counters. A call is counted in the slot of the check before its start; the slot is reused after all checks
/// have passed.
const SLOTS: usize = CHECKS as usize + 1;

/// The calls of a connection that wait for a reply.
#[derive(Debug, Default)]
pub(crate) struct ResponseWatchdog {
    waiting: [AtomicUsize; SLOTS],
    checks: AtomicUsize,
    /// Set while the watchdog sleeps until the next call, because no call was pending at the last check.
    parked: AtomicBool,
    wake: Notify,
    /// Set when a caller gives up waiting. No other call may be pending that would detect a dead server.
    given_up: AtomicBool,
    ended: AtomicBool,
    timed_out: Notify,
}

pub(crate) struct PendingCall<'a> {
    watchdog: &'a ResponseWatchdog,
    slot: &'a AtomicUsize,
    /// Set when a reply arrives. If unset, the caller gave up.
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
        // Either this call sees the parked watchdog and wakes it, or the watchdog sees this call.
        if self.parked.load(Ordering::SeqCst) && self.parked.swap(false, Ordering::SeqCst) {
            self.wake.notify_one();
        }
        PendingCall { watchdog: self, slot, is_answered: false }
    }

    /// Returns a future that completes when a call has waited too long. No other call on this connection gets a reply
    /// then, either. The future is registered from its creation on.
    pub(crate) fn timed_out(&self) -> Notified<'_> {
        self.timed_out.notified()
    }

    /// Returns whether no more calls may be sent.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Stops the watchdog: no more calls may be sent.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }

    /// Watches until the connection has ended and no call is pending, or until a call has waited for `timeout`.
    ///
    /// If callers give up sooner than that, `ping` checks whether the server replies.
    pub(crate) async fn watch<P>(
        self: Arc<Self>,
        timeout: Duration,
        ping: impl Fn() -> P + Send,
        on_timeout: impl FnOnce() + Send,
    ) where
        P: Future<Output = bool> + Send,
    {
        // Continues after the end, because pending calls may or may not get a reply.
        while !(self.has_ended() && self.is_idle()) {
            tokio::time::sleep(timeout / CHECKS).await;
            if self.given_up.swap(false, Ordering::SeqCst) && !self.has_ended() {
                let answered = tokio::time::timeout(timeout, ping()).await;
                if !matches!(answered, Ok(true)) {
                    return self.fire(on_timeout);
                }
            }
            let check = self.checks.load(Ordering::SeqCst) + 1;
            // The next slot is the least recently used one.
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
        // A call registered in the meantime has woken the watchdog; the notification is stored.
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
    fn a_pending_call_times_out_and_not_before_its_time() {
        runtime().block_on(async {
            let watchdog = Arc::new(ResponseWatchdog::default());
            tokio::spawn(watchdog.clone().watch(PATIENCE, || async { true }, || ()));
            // Once while parked, and once after it was parked.
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
    fn replies_or_drops_in_time_keep_the_connection_open() {
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
    fn a_connection_whose_callers_give_up_is_pinged() {
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
