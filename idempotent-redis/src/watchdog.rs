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
    over: AtomicBool,
    bitten: Notify,
}

/// A call that waits.
pub(crate) struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
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
        Waits(place)
    }

    /// Ends when a call has waited too long: whoever waits on that connection will not be answered either. Holds from
    /// when it is made.
    pub(crate) fn bitten(&self) -> Notified<'_> {
        self.bitten.notified()
    }

    /// Whether nobody watches any more.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// The connection has ended.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }

    /// Watches until the connection ends or a call has waited for `patience`.
    pub(crate) async fn watch(self: Arc<Self>, patience: Duration, bite: impl FnOnce() + Send) {
        while !self.is_over() {
            tokio::time::sleep(patience / LOOKS).await;
            let look = self.looks.load(Ordering::SeqCst) + 1;
            // The place that comes next is the one that was left longest ago.
            if self.waiting[look % PLACES].load(Ordering::SeqCst) > 0 {
                self.over.store(true, Ordering::SeqCst);
                bite();
                return self.bitten.notify_waiters();
            }
            self.looks.store(look, Ordering::SeqCst);
            if self.falls_asleep() {
                self.wake.notified().await;
            }
        }
    }

    fn falls_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let idle = self.waiting.iter().all(|place| place.load(Ordering::SeqCst) == 0);
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
            tokio::spawn(dog.clone().watch(PATIENCE, || ()));
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
            let watching = tokio::spawn(dog.clone().watch(PATIENCE, || panic!("nobody has waited too long")));
            for _ in 0..20 {
                let _waits = dog.waits();
                tokio::time::sleep(PATIENCE * 3 / 4).await;
            }
            dog.end();
            watching.await.unwrap();
        });
    }
}
