//! The deadlines of store requests, watched by one task for all requests of an executor.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::Clock;
use crate::clock::later;

/// The store requests in progress, and the time at which each of them is given up.
///
/// A timer per request would cost more than the request's bookkeeping. Almost all requests end long before their
/// deadline, so the task that watches the table wakes about once per deadline, and not once per request.
pub(crate) struct Deadlines {
    clock: Arc<dyn Clock>,
    table: Mutex<DeadlineTable>,
    wake_driver: Notify,
}

#[derive(Default)]
struct DeadlineTable {
    entries: Vec<DeadlineEntry>,
    free_slots: Vec<usize>,
    /// The time until which the driver sleeps, or `None` while the driver waits for a request.
    next_due: Option<Instant>,
    is_driven: bool,
    /// The longest time for a request once the grace of a drain has ended.
    after_grace: Option<Duration>,
    /// True once the executor is dropped.
    closed: bool,
}

enum DeadlineEntry {
    Free,
    Pending { deadline: Instant, waker: Waker },
    Over,
}

impl Deadlines {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, table: Mutex::default(), wake_driver: Notify::new() })
    }

    /// Registers a request. `runtime` runs the driver if none runs yet, and must outlive the executor.
    pub(crate) fn register(self: &Arc<Self>, deadline: Instant, waker: &Waker, runtime: &Handle) -> DeadlineGuard<'_> {
        let mut table = self.table();
        // Without a drain, the clock is not read.
        let deadline = table.after_grace.map_or(deadline, |most| deadline.min(later(self.clock.now(), most)));
        let entry = DeadlineEntry::Pending { deadline, waker: waker.clone() };
        let slot = match table.free_slots.pop() {
            Some(slot) => {
                table.entries[slot] = entry;
                slot
            }
            None => {
                table.entries.push(entry);
                table.entries.len() - 1
            }
        };
        let is_driven = std::mem::replace(&mut table.is_driven, true);
        let is_sooner = table.next_due.is_none_or(|next| deadline < next);
        if is_sooner {
            // Set here, so that requests with a later deadline do not wake the driver again.
            table.next_due = Some(deadline);
        }
        drop(table);
        if !is_driven {
            runtime.spawn(self.clone().drive());
        } else if is_sooner {
            self.wake_driver.notify_one();
        }
        DeadlineGuard { deadlines: self, slot }
    }

    /// Gives all requests at most `rest` from now on, also later ones.
    pub(crate) fn end_grace(&self, rest: Duration) {
        let latest = later(self.clock.now(), rest);
        let mut table = self.table();
        table.after_grace = Some(rest);
        for entry in &mut table.entries {
            if let DeadlineEntry::Pending { deadline, .. } = entry {
                *deadline = latest.min(*deadline);
            }
        }
        drop(table);
        self.wake_driver.notify_one();
    }

    /// Ends the driver.
    pub(crate) fn close(&self) {
        self.table().closed = true;
        self.wake_driver.notify_one();
    }

    /// Wakes the requests whose deadline has passed, until the executor is dropped.
    async fn drive(self: Arc<Self>) {
        loop {
            let Some((due, next)) = self.take_due(self.clock.now()) else { return };
            due.into_iter().for_each(Waker::wake);
            let woken = self.wake_driver.notified();
            match next {
                Some(next) => {
                    tokio::select! {
                        biased;
                        () = woken => {}
                        () = self.clock.sleep_until(next) => {}
                    }
                }
                None => woken.await,
            }
        }
    }

    /// Marks the requests whose deadline has passed. Returns their wakers and the next deadline, or `None` once the
    /// executor is dropped.
    fn take_due(&self, now: Instant) -> Option<(Vec<Waker>, Option<Instant>)> {
        let mut table = self.table();
        if table.closed {
            return None;
        }
        let (mut due, mut next) = (Vec::new(), None);
        for entry in &mut table.entries {
            match entry {
                DeadlineEntry::Pending { deadline, .. } if *deadline > now => {
                    next = Some(next.map_or(*deadline, |next: Instant| next.min(*deadline)));
                }
                DeadlineEntry::Pending { .. } => {
                    if let DeadlineEntry::Pending { waker, .. } = std::mem::replace(entry, DeadlineEntry::Over) {
                        due.push(waker);
                    }
                }
                DeadlineEntry::Free | DeadlineEntry::Over => {}
            }
        }
        table.next_due = next;
        Some((due, next))
    }

    fn table(&self) -> MutexGuard<'_, DeadlineTable> {
        // The code under this lock does not panic, so the table is consistent even if the lock is poisoned.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that removes a request from the table when dropped.
pub(crate) struct DeadlineGuard<'d> {
    deadlines: &'d Deadlines,
    slot: usize,
}

impl DeadlineGuard<'_> {
    /// Completes when the deadline has passed.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut table = self.deadlines.table();
        let DeadlineEntry::Pending { waker, .. } = &mut table.entries[self.slot] else { return Poll::Ready(()) };
        let replaced = (!waker.will_wake(context.waker())).then(|| std::mem::replace(waker, context.waker().clone()));
        drop(table);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for DeadlineGuard<'_> {
    fn drop(&mut self) {
        let mut table = self.deadlines.table();
        let entry = std::mem::replace(&mut table.entries[self.slot], DeadlineEntry::Free);
        table.free_slots.push(self.slot);
        drop(table);
        // A waker runs foreign code when dropped, so it is dropped outside the lock.
        drop(entry);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::poll_fn;

    use tokio::runtime::Builder;
    use tokio::time::{self, advance};

    use super::*;
    use crate::SystemClock;

    const REST: Duration = Duration::from_secs(1);

    /// Runs a test whose clock only the test moves, and passes it the table and the start.
    fn run<F: Future<Output = ()>>(test: impl FnOnce(Arc<Deadlines>, Instant) -> F) {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let clock = SystemClock::new();
            let start = clock.now();
            test(Deadlines::new(Arc::new(clock)), start).await;
        });
    }

    /// Waits for the deadline of a request, and returns the time that has passed.
    async fn wait(deadlines: Arc<Deadlines>, start: Instant, millis: u64) -> Duration {
        let (deadline, mut guard) = (start + Duration::from_millis(millis), None);
        poll_fn(|context| {
            let guard = guard.get_or_insert_with(|| deadlines.register(deadline, context.waker(), &Handle::current()));
            guard.poll(context)
        })
        .await;
        deadlines.clock.now() - start
    }

    fn is_empty(deadlines: &Deadlines) -> bool {
        let table = deadlines.table();
        table.entries.len() == table.free_slots.len()
    }

    #[test]
    fn each_request_ends_at_its_own_deadline_in_any_order() {
        run(|deadlines, start| async move {
            let waits = [700, 300, 500, 300, 900].map(|at| tokio::spawn(wait(deadlines.clone(), start, at)));
            tokio::task::yield_now().await;
            // Sooner than the deadline for which the driver sleeps.
            assert_eq!(wait(deadlines.clone(), start, 200).await, Duration::from_millis(200));
            for (wait, at) in waits.into_iter().zip([700, 300, 500, 300, 900]) {
                assert_eq!(wait.await.unwrap(), Duration::from_millis(at));
            }
            // A deadline after an idle time, in a slot that was used before.
            assert_eq!(wait(deadlines.clone(), start, 5_000).await, Duration::from_secs(5));
            assert!(is_empty(&deadlines) && deadlines.table().entries.len() == 6);
        });
    }

    #[test]
    fn a_request_that_ends_in_time_leaves_no_entry_and_delays_no_other_one() {
        run(|deadlines, start| async move {
            let longer = tokio::spawn(wait(deadlines.clone(), start, 900));
            let dropped = time::timeout(Duration::from_millis(100), wait(deadlines.clone(), start, 500)).await;
            assert!(dropped.is_err());
            assert_eq!(longer.await.unwrap(), Duration::from_millis(900));
            assert!(is_empty(&deadlines));
        });
    }

    #[test]
    fn a_request_that_moves_to_another_task_is_woken_there() {
        run(|deadlines, start| async move {
            let mut moved = Box::pin(wait(deadlines, start, 500));
            assert!(moved.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(tokio::spawn(moved).await.unwrap(), Duration::from_millis(500));
        });
    }

    #[test]
    fn after_the_grace_requests_in_progress_and_later_ones_get_the_rest_at_most() {
        run(|deadlines, start| async move {
            let waits = [200, 9_000].map(|at| tokio::spawn(wait(deadlines.clone(), start, at)));
            tokio::task::yield_now().await;
            advance(Duration::from_millis(100)).await;
            deadlines.end_grace(REST);
            let [sooner, later] = waits;
            assert_eq!(sooner.await.unwrap(), Duration::from_millis(200));
            assert_eq!(later.await.unwrap(), Duration::from_millis(1_100));
            assert_eq!(wait(deadlines.clone(), start, 9_000).await, Duration::from_millis(2_100));
            assert_eq!(wait(deadlines, start, 2_300).await, Duration::from_millis(2_300));
        });
    }

    #[test]
    fn the_driver_ends_with_the_executor() {
        run(|deadlines, start| async move {
            wait(deadlines.clone(), start, 100).await;
            tokio::task::yield_now().await;
            assert_eq!(Arc::strong_count(&deadlines), 2, "the driver waits for more requests");
            deadlines.close();
            tokio::task::yield_now().await;
            assert_eq!(Arc::strong_count(&deadlines), 1);
        });
    }
}
