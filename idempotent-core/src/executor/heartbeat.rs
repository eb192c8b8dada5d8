//! Keeps every lease of an executor alive, in one task.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OnceCell};

use super::renewals;
use crate::clock::before;
use crate::observe::Run;
use crate::{Clock, Event, Lease, Observer, Settled, Store, StoreError};

/// The leases in force, and when each has its next turn. They live here and not in the task that drives them, so
/// they survive the runtime that task happens to run on.
///
/// A flat list: to register a run, and to take it off again, is a push and a pop. The driver looks through all
/// of it once a turn, which is once in a third of a lease, not once a run.
pub(super) struct Wheel {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    turns: Mutex<Turns>,
    nudge: Notify,
    /// With connections that no runtime of a handler serves; opened when it is needed.
    renewal: OnceCell<Arc<dyn Store>>,
}

#[derive(Default)]
struct Turns {
    places: Vec<Option<Turn>>,
    free: Vec<usize>,
    /// What the driver sleeps for.
    next: Option<Instant>,
    /// Whether a lease has come since the driver last looked.
    used: bool,
    /// Which driver is at it, if one is. A driver that finds another number has been replaced.
    driver: Option<u64>,
    drivers: u64,
    /// True once the executor is dropped, so that no lease is added any more.
    closed: bool,
}

struct Turn {
    lease: Lease,
    due: Instant,
    /// No renewal before this, whatever wakes the driver: half a heartbeat after the last one, or when one that
    /// failed is to be tried again.
    rested: Instant,
}

/// Renewals that one call of a store may carry.
const A_CALL: usize = 256;

impl Wheel {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, observer: Arc<dyn Observer>) -> Arc<Self> {
        Arc::new(Self {
            store,
            clock,
            observer,
            turns: Mutex::default(),
            nudge: Notify::new(),
            renewal: OnceCell::new(),
        })
    }

    /// Renews `lease` at each heartbeat until the ticket is dropped; at its guard the lease is lost.
    pub(super) fn add(self: &Arc<Self>, lease: &Lease, now: Instant) -> Ticket<'_> {
        // A claim that took long has used up some of its lease: it is renewed all the sooner.
        let due = now + lease.heartbeat().min(lease.guard().saturating_duration_since(now) / 2);
        let mut turns = self.turns();
        let place = turns.free.pop().unwrap_or_else(|| {
            turns.places.push(None);
            turns.places.len() - 1
        });
        turns.places[place] = Some(Turn { lease: lease.clone(), due, rested: now });
        turns.used = true;
        // A driver that is late by now may belong to a runtime that stands still.
        let late = turns.next.is_some_and(|next| next <= now && next + lease.heartbeat() / 8 <= now);
        let sooner = late || turns.next.is_none_or(|next| due < next);
        if sooner {
            // Promised here, so that a driver that never gets to it is found out.
            turns.next = Some(due);
        }
        let driven = turns.driver.is_some() && !late;
        drop(turns);
        if !driven {
            self.drive();
        } else if sooner {
            self.nudge.notify_one();
        }
        Ticket { wheel: self, place }
    }

    /// Ends when `lease` is lost. Each run looks after its own guard, by its own runtime's timer, and takes the wheel
    /// over from a driver that is late: its runtime has ended, or stands still.
    pub(super) async fn watch_over(self: &Arc<Self>, lease: &Lease) {
        let lost = lease.lost();
        let watch = async {
            loop {
                let now = self.clock.now();
                lease.see(now);
                if lease.guard() <= now {
                    return self.lose(lease);
                }
                if self.is_late(now, lease.heartbeat() / 8) {
                    self.drive();
                }
                self.clock.sleep_until(lease.guard().min(now + lease.heartbeat() * 5 / 4)).await;
            }
        };
        tokio::select! {
            biased;
            () = lost => {}
            () = watch => {}
        }
    }

    fn is_late(&self, now: Instant, slack: Duration) -> bool {
        let turns = self.turns();
        turns.driver.is_none() || turns.next.is_some_and(|next| next + slack <= now)
    }

    /// Ends the driver once no renewal is under way. Left alone, the driver would keep the store for another second.
    pub(super) fn close(&self) {
        self.turns().closed = true;
        self.nudge.notify_one();
    }

    /// Takes the wheel, also from another driver.
    fn drive(self: &Arc<Self>) {
        let mut turns = self.turns();
        turns.drivers += 1;
        let number = turns.drivers;
        turns.driver = Some(number);
        drop(turns);
        let thread = self.thread();
        let driver = Driver { wheel: self.clone(), number, alone: thread.is_some() };
        match thread {
            Some(runtime) => runtime.spawn(driver.drive()),
            None => tokio::spawn(driver.drive()),
        };
    }

    /// Returns the runtime that no handler can block, if this executor's clock and store work on it.
    fn thread(&self) -> Option<&'static Handle> {
        let fits = self.clock.is_real_time() && self.store.abilities().renewal.is_some();
        if fits { renewals::runtime() } else { None }
    }

    /// Gives each lease that is due its turn; says which are to be renewed, and when the next is due.
    fn turn(&self, now: Instant, alone: bool) -> (Vec<Lease>, Option<Instant>) {
        let (mut renew, mut lost, mut next, mut blocked) = (Vec::new(), Vec::new(), None, Vec::new());
        let mut turns = self.turns();
        for place in &mut turns.places {
            let Some(turn) = place else { continue };
            let (guard, heartbeat) = (turn.lease.guard(), turn.lease.heartbeat());
            if guard <= now {
                lost.extend(place.take().map(|turn| turn.lease));
                continue;
            }
            // A little early: leases claimed at about the same time are renewed by one call.
            let renewed = turn.due <= now + heartbeat / 8 && turn.rested <= now && turn.lease.may_renew(now);
            if renewed {
                // Any other driver is as late as the runs that it could report.
                let late = if alone { turn.lease.blocked(now) } else { None };
                blocked.extend(late.map(|blocked| (turn.lease.clone(), blocked)));
                turn.rested = now + heartbeat / 2;
                match turn.lease.renews_in_store() {
                    true => renew.push(turn.lease.clone()),
                    false => turn.lease.renewed(now),
                }
            }
            if renewed || turn.due <= now {
                // Due again before the answer is in: a renewal that hangs hides neither the guard nor the next one.
                turn.due = (now + heartbeat).min(guard);
            }
            next = Some(next.map_or(turn.due, |next: Instant| next.min(turn.due)));
        }
        // Most runs end long before their first turn: a driver that waits for more spares each of them the start of one.
        if std::mem::take(&mut turns.used) && !turns.closed && next.is_none() {
            next = Some(now + IDLE);
        }
        turns.next = next;
        drop(turns);
        for lease in lost {
            self.lose(&lease);
        }
        for (lease, blocked) in blocked {
            self.tell(&lease, &Event::RuntimeBlocked { blocked });
        }
        (renew, next)
    }

    fn lose(&self, lease: &Lease) {
        if lease.lose() {
            self.tell(lease, &Event::LeaseLost);
        }
    }

    fn tell(&self, lease: &Lease, event: &Event<'_>) {
        let run = Run::new(&lease.names().scene, &lease.names().scope, Some(lease.key()));
        self.observer.on(&Run { attempt: Some(lease.attempt()), fencing: Some(lease.fencing()), ..run }, event);
    }

    /// Asks the executor's store, and one with connections of its own where a driver on the renewal thread gets no
    /// answer within half a heartbeat: the store's connections may belong to a runtime that is blocked.
    async fn renew(&self, leases: Vec<Lease>, alone: bool) {
        let renewal = self.store.abilities().renewal.filter(|_| alone);
        let Some(renewal) = renewal else { return self.ask(&*self.store, &leases).await };
        let soon = leases.iter().map(Lease::heartbeat).min().unwrap_or_default() / 2;
        let shared = before(&*self.clock, self.clock.now() + soon, self.ask(&*self.store, &leases));
        if self.renewal.get().is_none() && shared.await.is_some() {
            return;
        }
        let last = leases.iter().map(Lease::guard).max().unwrap_or_else(|| self.clock.now());
        let opened = self.renewal.get_or_try_init(|| renewal.renewal_store());
        match before(&*self.clock, last, opened).await {
            Some(Ok(store)) => self.ask(&**store, &leases).await,
            Some(Err(error)) => leases.iter().for_each(|lease| self.not_renewed(lease, &error)),
            None => {}
        }
    }

    async fn ask(&self, store: &dyn Store, leases: &[Lease]) {
        let sent = self.clock.now();
        match (leases, store.abilities().batch) {
            ([_, _, ..], Some(batch)) => {
                let held: Vec<_> = leases.iter().map(|lease| (lease.held().clone(), lease.length())).collect();
                let last = leases.iter().map(Lease::guard).max().unwrap_or(sent);
                let answers = before(&*self.clock, last, batch.renew_all(&held)).await;
                for (lease, answer) in leases.iter().zip(answers.unwrap_or_default()) {
                    self.renewed(lease, sent, answer);
                }
            }
            _ => {
                for lease in leases {
                    let answer = store.renew(lease.held(), lease.length());
                    if let Some(answer) = before(&*self.clock, lease.guard(), answer).await {
                        self.renewed(lease, sent, answer);
                    }
                }
            }
        }
    }

    fn renewed(&self, lease: &Lease, sent: Instant, answer: Result<Settled, StoreError>) {
        match answer {
            Ok(Settled::Done) => lease.renewed(sent),
            Ok(Settled::Lost { .. }) => self.lose(lease),
            Err(error) => self.not_renewed(lease, &error),
        }
    }

    fn not_renewed(&self, lease: &Lease, error: &StoreError) {
        self.tell(lease, &Event::StoreFailed { step: "renew", error });
        self.try_again(lease);
    }

    /// There is another turn before the guard; where the next heartbeat would come too late for that, it is brought
    /// forward to half of what is left.
    fn try_again(&self, lease: &Lease) {
        let (now, guard) = (self.clock.now(), lease.guard());
        let half = (guard.saturating_duration_since(now) / 2).max(lease.length() / 10);
        let mut turns = self.turns();
        let own = turns.places.iter_mut().flatten().find(|turn| turn.lease.is(lease));
        if let Some(turn) = own.filter(|turn| turn.due >= guard) {
            turn.due = (now + half).min(guard);
            turn.rested = turn.due;
            let due = turn.due;
            if turns.next.is_none_or(|next| due < next) {
                drop(turns);
                self.nudge.notify_one();
            }
        }
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For the benchmark: a heartbeat, until it is dropped.
pub fn register(executor: &super::Executor, lease: &Lease, now: Instant) -> impl Drop {
    executor.0.wheel.add(lease, now)
}

/// Stops the heartbeat of one run when dropped.
pub(super) struct Ticket<'w> {
    wheel: &'w Wheel,
    place: usize,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut turns = self.wheel.turns();
        let turn = turns.places[self.place].take();
        turns.free.push(self.place);
        drop(turns);
        // A renewal still under way has nothing to say any more. Without a turn it was lost before.
        if let Some(turn) = turn {
            turn.lease.end();
        }
    }
}

/// The task that turns the wheel; it ends when there was nothing to turn for a while, or another took over.
struct Driver {
    wheel: Arc<Wheel>,
    number: u64,
    /// Whether it runs on the renewal thread.
    alone: bool,
}

/// While nothing is due: for the last renewals, or for runs to come.
const IDLE: Duration = Duration::from_secs(1);

impl Driver {
    async fn drive(self) {
        let wheel = &*self.wheel;
        let mut renewals: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        while self.is_at_it() {
            let (due, next) = wheel.turn(wheel.clock.now(), self.alone);
            let batched = wheel.store.abilities().batch.is_some();
            for call in due.chunks(if batched { A_CALL } else { 1 }) {
                renewals.push(Box::pin(wheel.renew(call.to_vec(), self.alone)));
            }
            let next = match next {
                Some(next) => next,
                None if renewals.is_empty() && self.retire() => return,
                None => wheel.clock.now() + IDLE,
            };
            let mut rest = wheel.clock.sleep_until(next);
            loop {
                tokio::select! {
                    biased;
                    // Answers are taken in as they come; none of them needs another look through all leases.
                    Some(()) = renewals.next(), if !renewals.is_empty() => {}
                    () = &mut rest => break,
                    () = wheel.nudge.notified() => break,
                }
            }
        }
    }

    /// Unless a lease has come meanwhile.
    fn retire(&self) -> bool {
        let mut turns = self.wheel.turns();
        let empty = turns.places.iter().all(Option::is_none);
        if empty && turns.driver == Some(self.number) {
            turns.driver = None;
        }
        empty
    }

    fn is_at_it(&self) -> bool {
        self.wheel.turns().driver == Some(self.number)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut turns = self.wheel.turns();
        if turns.driver == Some(self.number) {
            (turns.driver, turns.next) = (None, None);
        }
    }
}
