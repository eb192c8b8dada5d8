//! One timer for a connection instead of one for each call: a timer that is the next to come wakes the thread that waits
//! for the socket, and every call's would be.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Looks in the time that an answer may take: it is given up at most one look late.
const LOOKS: u32 = 8;
/// A call is counted at the place of the look it came after, until all looks have gone by.
const PLACES: usize = LOOKS as usize + 1;

/// The calls of a connection that wait for their answers.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    waiting: [AtomicUsize; PLACES],
    looks: AtomicUsize,
    /// Nothing waited at the last look: there is none until something does.
    asleep: AtomicBool,
    wake: Notify,
    /// A caller gave up on an answer: nobody else may be waiting to see that none comes.
    given_up: AtomicBool,
    over: AtomicBool,
    bitten: Notify,
}

/// A call that waits.
pub(crate) struct Waits<'a> {
    dog: &'a Watchdog,
    place: &'a AtomicUsize,
    /// Else its caller has given up.
    pub(crate) is_answered: bool,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.dog.given_up.store(true, Ordering::SeqCst);
        }
        self.place.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Watchdog {
    pub(crate) fn waits(&self) -> Waits<'_> {
        let place = &self.waiting[self.looks.load(Ordering::SeqCst) % PLACES];
        place.fetch_add(1, Ordering::SeqCst);
        // Either it is seen to be asleep, or it sees this one.
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.wake.notify_one();
        }
        Waits { dog: self, place, is_answered: false }
    }

    /// Ends when a call has waited too long: whoever waits on that connection will not be answered either. Holds from
    /// when it is made.
    pub(crate) fn bitten(&self) -> Notified<'_> {
        self.bitten.notified()
    }

    /// Whether nothing more is to be sent.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Nothing more is to be sent.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }

    /// Watches until the connection ends and nobody waits on it, or a call has waited for `patience`. Where callers give up sooner than that,
    /// `ping` asks in their place.
    pub(crate) async fn watch<P>(
        self: Arc<Self>,
        patience: Duration,
        ping: impl Fn() -> P + Send,
        bite: impl FnOnce() + Send,
    ) where
        P: Future<Output = bool> + Send,
    {
        // Also behind its end: those under way may be answered yet, or never.
        while !(self.is_over() && self.is_idle()) {
            tokio::time::sleep(patience / LOOKS).await;
            if self.given_up.swap(false, Ordering::SeqCst) && !self.is_over() {
                let answered = tokio::time::timeout(patience, ping()).await;
                if !matches!(answered, Ok(true)) {
                    return self.bites(bite);
                }
            }
            let look = self.looks.load(Ordering::SeqCst) + 1;
            // The place that comes next is the one that was left longest ago.
            if self.waiting[look % PLACES].load(Ordering::SeqCst) > 0 {
                return self.bites(bite);
            }
            self.looks.store(look, Ordering::SeqCst);
            if self.falls_asleep() {
                self.wake.notified().await;
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.iter().all(|place| place.load(Ordering::SeqCst) == 0)
    }

    fn bites(&self, bite: impl FnOnce()) {
        self.over.store(true, Ordering::SeqCst);
        bite();
        self.bitten.notify_waiters();
    }

    fn falls_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let idle = self.is_idle() && !self.given_up.load(Ordering::SeqCst) && !self.is_over();
        // Who came in between has woken it up: the word of that is kept.
        idle || !self.asleep.swap(false, Ordering::SeqCst)
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
            let dog = Arc::new(Watchdog::default());
            tokio::spawn(dog.clone().watch(PATIENCE, || async { true }, || ()));
            // Asleep, and after it was asleep.
            tokio::time::sleep(PATIENCE * 3).await;
            drop(dog.waits());
            tokio::time::sleep(PATIENCE * 3).await;
            let (start, bitten, _waits) = (tokio::time::Instant::now(), dog.bitten(), dog.waits());
            bitten.await;
            let after = start.elapsed();
            assert!(after >= PATIENCE && after <= PATIENCE * 5 / 4, "{after:?}");
            assert!(dog.is_over());
        });
    }

    #[test]
    fn calls_that_are_answered_or_dropped_in_time_are_let_be_and_an_ended_connection_is_left() {
        runtime().block_on(async {
            let dog = Arc::new(Watchdog::default());
            let watching =
                tokio::spawn(dog.clone().watch(PATIENCE, || async { true }, || panic!("nobody has waited too long")));
            for _ in 0..20 {
                let _waits = dog.waits();
                tokio::time::sleep(PATIENCE * 3 / 4).await;
            }
            dog.end();
            watching.await.unwrap();
        });
    }
    #[test]
    fn a_connection_on_which_callers_give_up_is_asked_whether_it_lives() {
        runtime().block_on(async {
            for (lives, over) in [(true, false), (false, true)] {
                let dog = Arc::new(Watchdog::default());
                let asked = Arc::new(AtomicUsize::new(0));
                let count = asked.clone();
                let ping = move || {
                    count.fetch_add(1, Ordering::SeqCst);
                    async move { lives || std::future::pending().await }
                };
                tokio::spawn(dog.clone().watch(PATIENCE, ping, || ()));
                drop(dog.waits());
                tokio::time::sleep(PATIENCE * 3).await;
                assert_eq!((dog.is_over(), asked.load(Ordering::SeqCst)), (over, 1), "lives: {lives}");
                let mut waits = dog.waits();
                waits.is_answered = true;
                drop(waits);
                tokio::time::sleep(PATIENCE * 3).await;
                assert_eq!(asked.load(Ordering::SeqCst), 1, "an answered call is no reason to ask");
            }
        });
    }
}
