//! Intake while the store is down.
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::__private::backoff::delay;
use idempotent_core::{Clock, Entropy, Key, Outcome, RunSummary, Store, StoreErrorKind};
use tokio::sync::watch;

use crate::time::{pause, within};

/// While the store is down every delivery would come to nothing: none is taken, and those in hand are put off. A peek
/// says when the store answers again; one delivery then has to get through before the others may.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: watch::Sender<State>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// All is well.
    Closed,
    /// Nothing is taken; the store is asked at this time.
    Open { until: Instant, failures: u32 },
    /// It answered: one delivery may be taken.
    Trial { failures: u32 },
    /// One was.
    Trying { failures: u32 },
}

const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(30);
/// A store that does not answer a peek in this time is down.
const PATIENCE: Duration = Duration::from_secs(5);

impl Breaker {
    pub(crate) fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self { state: watch::Sender::new(State::Closed), clock, entropy }
    }

    /// How many deliveries may be taken at once; waits while none may.
    pub(crate) async fn room(&self) -> usize {
        let mut states = self.state.subscribe();
        let open = states.wait_for(|state| matches!(state, State::Closed | State::Trial { .. })).await;
        // The sender is `self`: it does not go away.
        open.map_or(usize::MAX, |state| if *state == State::Closed { usize::MAX } else { 1 })
    }

    /// Something was taken.
    pub(crate) fn took(&self) {
        self.change(|state| match state {
            State::Trial { failures } => Some(State::Trying { failures }),
            _ => None,
        });
    }

    /// How long deliveries in hand are to be put off, while nothing may run.
    pub(crate) fn rest(&self) -> Option<Duration> {
        match *self.state.borrow() {
            State::Open { until, .. } => Some(until.saturating_duration_since(self.clock.now()).max(FIRST)),
            _ => None,
        }
    }

    /// A delivery has ended so. Says whether intake stopped by it.
    pub(crate) fn learn(&self, captured: Option<&RunSummary>) -> bool {
        match captured.map(|captured| health(&captured.outcome)) {
            Some(Health::Down) => self.open(),
            Some(Health::Up) => {
                self.change(|state| (state != State::Closed).then_some(State::Closed));
                false
            }
            Some(Health::Claimed) => {
                self.claimed();
                false
            }
            Some(Health::Unknown) | None => false,
        }
    }

    /// A claim was granted: a trial has not to end to say so, but no sign against what is known since.
    pub(crate) fn claimed(&self) {
        self.change(|state| match state {
            State::Trial { .. } | State::Trying { .. } => Some(State::Closed),
            _ => None,
        });
    }

    /// A delivery is gone, whatever it came to: one that did not ask the store says nothing about it, so the next one
    /// has to.
    pub(crate) fn over(&self) {
        self.change(|state| match state {
            State::Trying { failures } => Some(State::Trial { failures }),
            _ => None,
        });
    }

    fn open(&self) -> bool {
        self.change(|state| match state {
            State::Closed => Some(self.opened(1)),
            State::Trial { failures } | State::Trying { failures } => Some(self.opened(failures.saturating_add(1))),
            State::Open { .. } => None,
        })
    }

    fn opened(&self, failures: u32) -> State {
        let bits = self.entropy.bits().unwrap_or_default();
        State::Open { until: self.clock.now() + delay(FIRST, MOST, failures.saturating_sub(1), 20, bits), failures }
    }

    fn change(&self, next: impl FnOnce(State) -> Option<State>) -> bool {
        self.state.send_if_modified(|state| match next(*state) {
            Some(next) => {
                *state = next;
                true
            }
            None => false,
        })
    }

    /// Asks the store, whenever it is thought to be down, until it answers. Never ends.
    pub(crate) async fn probe(&self, store: &dyn Store, key: &Key) {
        let mut states = self.state.subscribe();
        loop {
            let state = *states.borrow_and_update();
            let State::Open { until, failures } = state else {
                let patient = async {
                    match state {
                        State::Trying { .. } => pause(&*self.clock, PATIENCE * 2).await,
                        _ => pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    changed = states.changed() => if changed.is_err() { return },
                    // What it waits for is not to be seen from here; perhaps it is only its handler.
                    () = patient => self.over(),
                }
                continue;
            };
            self.clock.sleep_until(until).await;
            let asked = within(&*self.clock, PATIENCE, store.peek(key)).await;
            let answers = asked.is_some_and(|asked| asked.is_ok());
            self.change(|state| match state {
                State::Open { .. } if answers => Some(State::Trial { failures }),
                State::Open { .. } => Some(self.opened(failures.saturating_add(1))),
                _ => None,
            });
        }
    }
}

enum Health {
    Up,
    /// It answered the claim. A release that is not confirmed ends so, too.
    Claimed,
    Down,
    Unknown,
}

fn health(outcome: &Outcome) -> Health {
    match outcome {
        // One record that cannot be read is not the store.
        Outcome::StoreDown(StoreErrorKind::Corrupt | StoreErrorKind::UnknownVersion | StoreErrorKind::Foreign)
        | Outcome::Ran
        | Outcome::Replayed
        | Outcome::ConsumedWithoutResult
        | Outcome::Duplicate
        | Outcome::InFlight { .. }
        | Outcome::Delayed { .. }
        | Outcome::Waiting { .. }
        | Outcome::Held { .. }
        | Outcome::Failed
        | Outcome::Dead { .. }
        | Outcome::Mismatch => Health::Up,
        Outcome::StoreDown(_) | Outcome::Unrecorded => Health::Down,
        Outcome::Released { .. } => Health::Claimed,
        // Where the store's being down stops nobody (`Unprotected`), intake is not to stop either.
        _ => Health::Unknown,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_core::{Identity, MemoryStore, OsEntropy, Scene, SystemClock};

    use super::*;

    fn breaker() -> Breaker {
        Breaker::new(Arc::new(SystemClock::new()), Arc::new(OsEntropy))
    }

    fn ended(outcome: Outcome) -> RunSummary {
        RunSummary::new(outcome, None, None)
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_of_the_store_stops_intake_and_an_answer_starts_it_again() {
        let breaker = breaker();
        assert!(breaker.learn(Some(&ended(Outcome::StoreDown(StoreErrorKind::NotApplied)))));
        assert!(breaker.rest().is_some());
        assert!(!breaker.learn(Some(&ended(Outcome::Ran))));
        assert_eq!(breaker.rest(), None);
        assert_eq!(breaker.room().await, usize::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_granted_claim_ends_a_trial_even_if_its_run_failed() {
        let breaker = breaker();
        breaker.state.send_replace(State::Trying { failures: 1 });
        breaker.learn(Some(&ended(Outcome::Released { retry_after: Duration::ZERO })));
        assert_eq!(*breaker.state.borrow(), State::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_without_an_end_makes_room_for_another_after_ten_seconds() {
        let (breaker, store) = (breaker(), MemoryStore::new());
        let key = Identity::new(Scene::Mq, "orders", "o-17").key("tests").unwrap();
        breaker.state.send_replace(State::Trying { failures: 1 });
        let probe_for = async |time| drop(tokio::time::timeout(time, breaker.probe(&store, &key)).await);
        probe_for(Duration::from_secs(9)).await;
        assert_eq!(*breaker.state.borrow(), State::Trying { failures: 1 });
        probe_for(Duration::from_secs(11)).await;
        assert_eq!(*breaker.state.borrow(), State::Trial { failures: 1 });
    }
}
