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
