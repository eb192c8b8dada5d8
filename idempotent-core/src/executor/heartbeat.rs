//! Keeps every lease of an executor alive, in one task.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;

use crate::clock::before;
use crate::observe::Run;
use crate::{Clock, Event, Held, Lease, Observer, Settled, Store, StoreError};

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
    orphaned: Notify,
}

#[derive(Default)]
struct Turns {
    places: Vec<Option<Turn>>,
    free: Vec<usize>,
    /// What the driver sleeps for.
    next: Option<Instant>,
    driven: bool,
}

struct Turn {
    lease: Lease,
    due: Instant,
}

/// Renewals that one call of a store may carry.
const A_CALL: usize = 256;

impl Wheel {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, observer: Arc<dyn Observer>) -> Arc<Self> {
        let (nudge, orphaned) = (Notify::new(), Notify::new());
        Arc::new(Self { store, clock, observer, turns: Mutex::default(), nudge, orphaned })
    }

    /// Renews `lease` at each heartbeat until the ticket is dropped; at its guard the lease is lost.
    pub(super) fn add(self: &Arc<Self>, lease: Lease) -> Ticket {
        let due = (self.clock.now() + lease.heartbeat()).min(lease.guard());
        let mut turns = self.turns();
        let place = turns.free.pop().unwrap_or_else(|| {
            turns.places.push(None);
            turns.places.len() - 1
        });
        turns.places[place] = Some(Turn { lease, due });
        let sooner = turns.next.is_none_or(|next| due < next);
        drop(turns);
        if sooner {
            self.nudge.notify_one();
        }
        self.see_to_it();
        Ticket { wheel: self.clone(), place }
    }

    /// Ends never: takes the wheel over whenever the runtime that drove it is gone.
    pub(super) async fn stand_by(self: &Arc<Self>) {
        loop {
            self.orphaned.notified().await;
            self.see_to_it();
        }
    }

    fn see_to_it(self: &Arc<Self>) {
        if !std::mem::replace(&mut self.turns().driven, true) {
            tokio::spawn(Driver(self.clone()).drive());
        }
    }

    /// Gives each lease that is due its turn; says when the next is.
    fn turn(&self, now: Instant) -> (Vec<Lease>, Option<Instant>) {
        let (mut renew, mut lost) = (Vec::new(), Vec::new());
        let mut turns = self.turns();
        let mut next = None;
        for place in &mut turns.places {
            let Some(turn) = place else { continue };
            // A little early: leases claimed at about the same time are renewed by one call.
            if turn.due <= now + turn.lease.heartbeat() / 8 {
                if turn.lease.guard() <= now {
                    lost.extend(place.take().map(|turn| turn.lease));
                    continue;
                }
                if turn.lease.may_renew(now) {
                    renew.push(turn.lease.clone());
                }
                // Queued again before the answer is in: a renewal that hangs cannot hide the guard, and one that
                // fails does not end renewal.
                turn.due = (now + turn.lease.heartbeat()).min(turn.lease.guard());
            }
            next = Some(next.map_or(turn.due, |next: Instant| next.min(turn.due)));
        }
        turns.next = next;
        drop(turns);
        for lease in lost {
            self.lose(&lease);
        }
        (renew, next)
    }

    fn lose(&self, lease: &Lease) {
        lease.lose();
        self.tell(lease, &Event::LeaseLost);
    }

    fn tell(&self, lease: &Lease, event: &Event<'_>) {
        let run = Run::new(&lease.names().scene, &lease.names().scope, Some(lease.key()));
        self.observer.on(&Run { attempt: Some(lease.attempt()), fencing: Some(lease.fencing()), ..run }, event);
    }

    async fn renew(&self, leases: Vec<Lease>) {
        let sent = self.clock.now();
        match (&leases[..], self.store.abilities().batch) {
            ([_, _, ..], Some(batch)) => {
                let held: Vec<_> = leases.iter().map(|lease| (lease.held().clone(), lease.length())).collect();
                let last = leases.iter().map(Lease::guard).max().unwrap_or(sent);
                let answers = before(&*self.clock, last, batch.renew_all(&held)).await;
                for (lease, answer) in leases.iter().zip(answers.unwrap_or_default()) {
                    self.renewed(lease, sent, answer);
                }
            }
            _ => {
                for lease in &leases {
                    if let Some(answer) = before(&*self.clock, lease.guard(), self.renew_one(lease)).await {
                        self.renewed(lease, sent, answer);
                    }
                }
            }
        }
    }

    async fn renew_one(&self, lease: &Lease) -> Result<Settled, StoreError> {
        let held: &Held = lease.held();
        self.store.renew(held, lease.length()).await
    }

    fn renewed(&self, lease: &Lease, sent: Instant, answer: Result<Settled, StoreError>) {
        match answer {
            Ok(Settled::Done) => lease.renewed(sent),
            Ok(Settled::Lost { .. }) => self.lose(lease),
            // There is another turn before the guard; then the guard.
            Err(error) => self.tell(lease, &Event::StoreFailed { step: "renew", error: &error }),
        }
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops the heartbeat of one run when dropped.
pub(super) struct Ticket {
    wheel: Arc<Wheel>,
    place: usize,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut turns = self.wheel.turns();
        let turn = turns.places[self.place].take();
        turns.free.push(self.place);
        drop(turns);
        drop(turn);
    }
}

/// The task that turns the wheel; it ends when there is nothing left to turn.
struct Driver(Arc<Wheel>);

impl Driver {
    async fn drive(self) {
        let wheel = &*self.0;
        let mut renewals: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        loop {
            let (due, next) = wheel.turn(wheel.clock.now());
            let batched = wheel.store.abilities().batch.is_some();
            for call in due.chunks(if batched { A_CALL } else { 1 }) {
                renewals.push(Box::pin(wheel.renew(call.to_vec())));
            }
            let Some(next) = next.or_else(|| (!renewals.is_empty()).then(|| wheel.clock.now() + IDLE)) else {
                return;
            };
            tokio::select! {
                biased;
                () = wheel.clock.sleep_until(next) => {}
                () = wheel.nudge.notified() => {}
                Some(()) = renewals.next(), if !renewals.is_empty() => {}
            }
        }
    }
}

/// While the last renewals are under way and nothing else is due.
const IDLE: Duration = Duration::from_secs(1);

impl Drop for Driver {
    fn drop(&mut self) {
        let mut turns = self.0.turns();
        turns.driven = false;
        turns.next = None;
        if turns.places.iter().any(Option::is_some) {
            self.0.orphaned.notify_one();
        }
    }
}
