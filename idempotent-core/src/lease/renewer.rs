//! The renewal of all leases of an executor, in one task.
mod calls;
mod driver;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod renewal_tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Mutex as AsyncMutex, Notify};

use self::driver::Driver;
use super::renewal_thread;
use crate::observe::{GuardedObserver, RunInfo};
use crate::{Clock, Event, Lease, Store};

/// The active leases of an executor, and the next renewal of each.
///
/// The entries are independent of the task that drives the renewals, so they survive the end of that task's runtime.
///
/// The table is a flat list, so adding and removing a run is a push and a pop. The driver scans the list once per
/// renewal interval, which is about a third of a lease, and not once per run.
pub(crate) struct LeaseRenewer {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    observer: Arc<GuardedObserver>,
    table: Mutex<RenewalTable>,
    wake_driver: Notify,
    /// A store with connections that no handler's runtime serves, opened on demand.
    dedicated_store: AsyncMutex<Option<Arc<dyn Store>>>,
}

#[derive(Default)]
struct RenewalTable {
    entries: Vec<Option<RenewalEntry>>,
    free_slots: Vec<usize>,
    /// The time until which the driver sleeps.
    next_due: Option<Instant>,
    /// True if a lease was added since the driver's last scan.
    has_new_entries: bool,
    /// The id of the current driver. A driver that finds another id has been replaced.
    driver: Option<u64>,
    driver_count: u64,
    /// True if the driver runs on the renewal thread.
    on_renewal_thread: bool,
    /// True once the executor is dropped. No lease is added any more.
    closed: bool,
}

struct RenewalEntry {
    lease: Lease,
    due: Instant,
    /// The earliest time of the next renewal: half a heartbeat after the last one, or the retry time of a failed one.
    not_before: Instant,
}

/// The time for which the driver waits for new runs, and for the last renewals, while nothing is due.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

impl LeaseRenewer {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, observer: Arc<GuardedObserver>) -> Arc<Self> {
        Arc::new(Self {
            store,
            clock,
            observer,
            table: Mutex::default(),
            wake_driver: Notify::new(),
            dedicated_store: AsyncMutex::default(),
        })
    }

    /// Renews `lease` at each heartbeat until the returned guard is dropped. The lease is lost at its local guard.
    pub(crate) fn add(self: &Arc<Self>, lease: &Lease, now: Instant) -> RenewalGuard<'_> {
        // A slow claim has used up part of its lease, so the first renewal comes sooner.
        let due = now + lease.timing().heartbeat.min(lease.guard().saturating_duration_since(now) / 2);
        let mut table = self.table();
        let slot = table.free_slots.pop().unwrap_or_else(|| {
            table.entries.push(None);
            table.entries.len() - 1
        });
        table.entries[slot] = Some(RenewalEntry { lease: lease.clone(), due, not_before: now });
        table.has_new_entries = true;
        // An overdue driver may belong to a runtime that is blocked.
        let late = table.next_due.is_some_and(|next| next + lease.timing().heartbeat / 8 <= now);
        let sooner = late || table.next_due.is_none_or(|next| due < next);
        if sooner {
            // Set here, so that a driver that never scans again is detected.
            table.next_due = Some(due);
        }
        let driven = table.driver.is_some() && !late;
        drop(table);
        if !driven {
            self.start_driver();
        } else if sooner {
            self.wake_driver.notify_one();
        }
        RenewalGuard { renewer: self, slot }
    }

    /// Waits until `lease` is lost. Each run checks its own lease by a timer of its own runtime, and replaces a driver
    /// that is late because its runtime has ended or is blocked.
    pub(crate) async fn watch_lease(self: &Arc<Self>, lease: &Lease) {
        let lost = lease.lost();
        let watch = async {
            loop {
                let now = self.clock.now();
                lease.record_poll(now);
                if lease.guard() <= now {
                    return self.report_lost(lease);
                }
                if self.is_late(now, lease.timing().heartbeat / 8) {
                    self.start_driver();
                }
                self.clock.sleep_until(lease.guard().min(now + lease.timing().heartbeat * 5 / 4)).await;
            }
        };
        tokio::select! {
            biased;
            () = lost => {}
            () = watch => {}
        }
    }

    fn is_late(&self, now: Instant, slack: Duration) -> bool {
        let table = self.table();
        table.driver.is_none() || table.next_due.is_some_and(|next| next + slack <= now)
    }

    /// Ends the driver after the renewals in progress. Otherwise the driver would keep the store for another second.
    pub(crate) fn close(&self) {
        self.table().closed = true;
        self.wake_driver.notify_one();
    }

    /// Returns true once the executor is dropped.
    fn is_closed(&self) -> bool {
        self.table().closed
    }

    /// Starts a driver, and replaces the current one. If the driver on the renewal thread is late, it may wait for
    /// something that blocks this thread. The due renewals are then sent from here, and later ones from the renewal
    /// thread again.
    fn start_driver(self: &Arc<Self>) {
        let mut table = self.table();
        let rescue = table.driver.is_some() && table.on_renewal_thread;
        let thread = if rescue { None } else { self.renewal_runtime() };
        let driver = self.register_driver(&mut table, thread.is_some());
        drop(table);
        match thread {
            Some(runtime) => drop(runtime.spawn(driver.drive())),
            None if rescue => drop(tokio::spawn(driver.rescue())),
            None => drop(tokio::spawn(driver.drive())),
        }
    }

    fn register_driver(self: &Arc<Self>, table: &mut RenewalTable, on_renewal_thread: bool) -> Driver {
        table.driver_count += 1;
        table.driver = Some(table.driver_count);
        table.on_renewal_thread = on_renewal_thread;
        Driver { renewer: self.clone(), id: table.driver_count, on_renewal_thread }
    }

    /// Returns the renewal thread's runtime, if this executor's clock and store support it.
    fn renewal_runtime(&self) -> Option<&'static Handle> {
        let fits = self.clock.is_real_time() && self.store.capabilities().renewal.is_some();
        if fits { renewal_thread::runtime() } else { None }
    }

    /// Processes the due leases. Returns the leases to renew, and the time of the next due lease.
    fn take_due(&self, now: Instant, on_renewal_thread: bool) -> (Vec<Lease>, Option<Instant>) {
        let (mut renew, mut lost, mut next, mut blocked) = (Vec::new(), Vec::new(), None, Vec::new());
        let mut table = self.table();
        for slot in &mut table.entries {
            let Some(entry) = slot else { continue };
            let (guard, heartbeat) = (entry.lease.guard(), entry.lease.timing().heartbeat);
            if guard <= now {
                lost.extend(slot.take().map(|entry| entry.lease));
                continue;
            }
            // Slightly early, so that leases claimed at about the same time are renewed in one call.
            let renewed = entry.due <= now + heartbeat / 8 && entry.not_before <= now && entry.lease.may_renew(now);
            if renewed {
                // Any other driver is as late as the runs that it could report.
                let late = if on_renewal_thread { entry.lease.blocked(now) } else { None };
                blocked.extend(late.map(|blocked| (entry.lease.clone(), blocked)));
                entry.not_before = now + heartbeat / 2;
                match entry.lease.timing().renews {
                    true => renew.push(entry.lease.clone()),
                    false => entry.lease.extend(now),
                }
            }
            if renewed || entry.due <= now {
                // Due again before the answer arrives: a hanging renewal delays neither the guard nor the next renewal.
                entry.due = (now + heartbeat).min(guard);
            }
            next = Some(next.map_or(entry.due, |next: Instant| next.min(entry.due)));
        }
        // Most runs end before their first renewal. A driver that waits for more runs need not be started for each of
        // them.
        if std::mem::take(&mut table.has_new_entries) && !table.closed && next.is_none() {
            next = Some(now + IDLE_TIMEOUT);
        }
        table.next_due = next;
        drop(table);
        for lease in lost {
            self.report_lost(&lease);
        }
        for (lease, blocked) in blocked {
            self.notify(&lease, &Event::RuntimeBlocked { blocked });
        }
        (renew, next)
    }

    fn report_lost(&self, lease: &Lease) {
        if lease.mark_lost() {
            self.notify(lease, &Event::LeaseLost);
        }
    }

    fn notify(&self, lease: &Lease, event: &Event<'_>) {
        let run = RunInfo::new(&lease.handler_name().scene, &lease.handler_name().scope, Some(lease.key()));
        self.observer.on(
            None,
            &RunInfo { attempt: Some(lease.attempt()), fencing: Some(lease.fencing()), ..run },
            event,
        );
    }

    fn table(&self) -> MutexGuard<'_, RenewalTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that stops the renewal of one run when dropped.
pub(crate) struct RenewalGuard<'w> {
    renewer: &'w LeaseRenewer,
    slot: usize,
}

impl Drop for RenewalGuard<'_> {
    fn drop(&mut self) {
        let mut table = self.renewer.table();
        let entry = table.entries[self.slot].take();
        table.free_slots.push(self.slot);
        drop(table);
        // A renewal in progress has no effect any more. Without an entry, the lease was lost before.
        if let Some(entry) = entry {
            entry.lease.mark_ended();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::clock::Timer;
    use crate::lease::tests::{HEARTBEAT, lease};
    use crate::{MemoryStore, Observer, SystemClock, Timestamp};

    const NANOSECOND: Duration = Duration::from_nanos(1);

    /// A clock that never moves, so that no driver does anything by itself. The clock records the deadlines of its timers.
    #[derive(Debug)]
    struct StoppedClock(Instant, Mutex<Vec<Instant>>);

    impl Clock for StoppedClock {
        fn now(&self) -> Instant {
            self.0
        }

        fn wall(&self) -> Timestamp {
            Timestamp(0)
        }

        fn sleep_until(&self, deadline: Instant) -> Timer {
            self.1.lock().unwrap_or_else(PoisonError::into_inner).push(deadline);
            Box::pin(std::future::pending())
        }
    }

    /// An observer that records the token and the attempt of each event.
    #[derive(Debug, Default)]
    struct Recorder(Mutex<Vec<(Option<u64>, Option<u32>)>>);

    impl Observer for Recorder {
        fn on(&self, run: &RunInfo<'_>, _: &Event<'_>) {
            let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            events.push((run.fencing.map(|fencing| fencing.0), run.attempt));
        }
    }

    fn renewer(now: Instant) -> (Arc<LeaseRenewer>, Arc<Recorder>) {
        let observer = Arc::new(Recorder::default());
        let clock = Arc::new(StoppedClock(now, Mutex::default()));
        (LeaseRenewer::new(Arc::new(MemoryStore::new()), clock, GuardedObserver::new(observer.clone())), observer)
    }

    #[tokio::test]
    async fn a_lease_wakes_the_driver_only_if_it_is_due_sooner() {
        let now = SystemClock::new().now();
        let (renewer, _) = renewer(now);
        let _first = renewer.add(&lease(now, |_| {}), now);
        let is_woken = || renewer.wake_driver.notified().now_or_never().is_some();
        is_woken();
        let due = now + HEARTBEAT;
        for (add, is_sooner) in [(due + NANOSECOND, true), (due, false), (due - NANOSECOND, false)] {
            renewer.table().next_due = Some(add);
            let _added = renewer.add(&lease(now, |_| {}), now);
            let next = if is_sooner { due } else { add };
            assert_eq!((renewer.table().next_due, is_woken()), (Some(next), is_sooner));
        }
    }

    #[tokio::test]
    async fn a_run_checks_its_lease_after_each_heartbeat_and_replaces_a_late_driver() {
        let now = SystemClock::new().now() + HEARTBEAT * 10;
        let observer = Arc::new(Recorder::default());
        let clock = Arc::new(StoppedClock(now, Mutex::default()));
        let observer = GuardedObserver::new(observer);
        let renewer = LeaseRenewer::new(Arc::new(MemoryStore::new()), clock.clone(), observer);
        let held = lease(now, |_| {});
        let _guard = renewer.add(&held, now);
        for (next_due, driver) in [(now - HEARTBEAT / 8 + NANOSECOND, 1), (now - HEARTBEAT / 8, 2)] {
            renewer.table().next_due = Some(next_due);
            assert!(renewer.watch_lease(&held).now_or_never().is_none());
            assert_eq!(renewer.table().driver, Some(driver));
        }
        let timers = clock.1.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(timers[..], [now + HEARTBEAT * 5 / 4; 2]);
    }

    #[tokio::test]
    async fn a_driver_is_replaced_once_it_is_an_eighth_of_a_heartbeat_late() {
        let now = SystemClock::new().now() + HEARTBEAT * 10;
        let (renewer, _) = renewer(now);
        let _first = renewer.add(&lease(now, |_| {}), now);
        assert_eq!(renewer.table().driver, Some(1));
        assert_eq!(renewer.table().next_due, Some(now + HEARTBEAT));
        let late = HEARTBEAT / 8;
        for (next_due, driver) in [(now - late + NANOSECOND, 1), (now - late, 2)] {
            renewer.table().next_due = Some(next_due);
            drop(renewer.add(&lease(now, |_| {}), now));
            assert_eq!(renewer.table().driver, Some(driver));
        }
        assert_eq!(renewer.table().next_due, Some(now + HEARTBEAT), "set, so that the next delay is detected");
        assert!(!renewer.is_late(now + HEARTBEAT + late - NANOSECOND, late));
        assert!(renewer.is_late(now + HEARTBEAT + late, late));
        renewer.table().driver = None;
        assert!(renewer.is_late(now, late), "without a driver");
        assert!(!renewer.is_closed());
        renewer.close();
        assert!(renewer.is_closed());
    }

    #[tokio::test]
    async fn leases_are_renewed_up_to_an_eighth_of_a_heartbeat_early() {
        let now = SystemClock::new().now();
        let (renewer, observer) = renewer(now);
        let held = lease(now, |_| {});
        let _guard = renewer.add(&held, now);
        let early = now + HEARTBEAT * 7 / 8;
        let (renewed, next) = renewer.take_due(early - NANOSECOND, false);
        assert_eq!((renewed.len(), next), (0, Some(now + HEARTBEAT)));
        let (renewed, next) = renewer.take_due(early, false);
        assert_eq!((renewed.len(), next), (1, Some(early + HEARTBEAT)));
        let not_before = renewer.table().entries[0].as_ref().map(|entry| entry.not_before);
        assert_eq!(not_before, Some(early + HEARTBEAT / 2), "no second renewal soon after");
        assert!(renewed[0].is_same(&held) && observer.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty());
    }

    #[tokio::test]
    async fn the_loss_of_a_lease_is_reported_once_with_its_token_and_attempt() {
        let now = SystemClock::new().now();
        let (renewer, observer) = renewer(now);
        let held = lease(now, |_| {});
        let _guard = renewer.add(&held, now);
        for _ in 0..2 {
            let (renewed, next) = renewer.take_due(held.guard(), false);
            assert!(renewed.is_empty() && next.is_none_or(|next| next == held.guard() + IDLE_TIMEOUT));
        }
        assert!(held.is_lost_at(now));
        assert_eq!(*observer.0.lock().unwrap_or_else(PoisonError::into_inner), [(Some(1), Some(1))]);
    }
}
