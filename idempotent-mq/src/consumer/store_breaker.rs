//! The circuit breaker for the store.
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::__private::backoff::delay;
use idempotent_core::{Clock, Entropy, Key, Outcome, RunSummary, Store, StoreErrorKind};
use tokio::sync::watch;

use crate::ConsumerCounters;
use crate::consumer::node_breakers::NodeBreakers;
use crate::time::{pause, within};

/// A circuit breaker that pauses the intake while the store is down.
///
/// Deliveries that were already received are deferred. A peek detects that the store answers again, and one trial delivery must
/// then reach the store before others are received.
#[derive(Debug)]
pub(crate) struct StoreBreaker {
    state: watch::Sender<BreakerState>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    counters: ConsumerCounters,
    /// The breakers of the store's nodes, if it has several.
    nodes: Option<NodeBreakers>,
}

/// The state of the breaker of a store or of one of its nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BreakerState {
    /// The store is available.
    Closed,
    /// Nothing is received, or no claim of the node is sent. A peek follows at this time.
    Open { until: Instant, failures: u32 },
    /// The peek was answered: one delivery may be received, or one claim sent.
    Trial { failures: u32 },
    /// The trial delivery was received, or the trial claim sent.
    Trying { failures: u32 },
}

pub(super) const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(30);
/// The timeout of a peek.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

impl StoreBreaker {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        counters: ConsumerCounters,
        nodes: Option<NodeBreakers>,
    ) -> Self {
        Self { state: watch::Sender::new(BreakerState::Closed), clock, entropy, counters, nodes }
    }

    /// Waits until deliveries may be received, and returns their maximum number.
    pub(crate) async fn room(&self) -> usize {
        let mut states = self.state.subscribe();
        let open = states.wait_for(|state| matches!(state, BreakerState::Closed | BreakerState::Trial { .. })).await;
        // The sender is part of `self`, so the channel stays open.
        open.map_or(usize::MAX, |state| if *state == BreakerState::Closed { usize::MAX } else { 1 })
    }

    /// Notes that a delivery was received.
    pub(crate) fn took(&self) {
        self.change(|state| match state {
            BreakerState::Trial { failures } => Some(BreakerState::Trying { failures }),
            _ => None,
        });
    }

    /// Returns the delay of received deliveries while the store is down.
    pub(crate) fn rest(&self) -> Option<Duration> {
        match *self.state.borrow() {
            BreakerState::Open { until, .. } => Some(until.saturating_duration_since(self.clock.now()).max(FIRST)),
            _ => None,
        }
    }

    /// Returns the delay of a delivery that ended because the store, or the node of its key, is down.
    pub(crate) fn rest_after(&self, captured: Option<&RunSummary>) -> Option<Duration> {
        self.rest().or_else(|| self.nodes.as_ref()?.rest(captured?))
    }

    /// Evaluates the end of a delivery. Returns true if the breaker opened. The failure of one node opens only the breaker of that
    /// node.
    pub(crate) fn learn(&self, captured: Option<&RunSummary>) -> bool {
        let is_isolated = |failed: &RunSummary| self.nodes.as_ref().is_some_and(|nodes| nodes.isolates(failed));
        match captured.map(|captured| health(&captured.outcome)) {
            Some(StoreHealth::Down) => !captured.is_some_and(is_isolated) && self.open(),
            // The other nodes may answer.
            Some(StoreHealth::Up) if self.is_node_outage() => false,
            Some(StoreHealth::Up) => {
                self.change(|state| (state != BreakerState::Closed).then_some(BreakerState::Closed));
                false
            }
            Some(StoreHealth::Claimed) => {
                self.claimed();
                false
            }
            Some(StoreHealth::Unknown) | None => false,
        }
    }

    /// Notes a granted claim. A claim ends a trial, but does not close a breaker that opened since.
    pub(crate) fn claimed(&self) {
        self.change(|state| match state {
            BreakerState::Trial { .. } | BreakerState::Trying { .. } => Some(BreakerState::Closed),
            _ => None,
        });
    }

    /// Notes the end of a delivery. A trial delivery that did not reach the store is replaced by the next one.
    pub(crate) fn over(&self) {
        self.change(|state| match state {
            BreakerState::Trying { failures } => Some(BreakerState::Trial { failures }),
            _ => None,
        });
    }

    fn is_node_outage(&self) -> bool {
        self.nodes.as_ref().is_some_and(NodeBreakers::is_outage)
    }

    fn open(&self) -> bool {
        self.change(|state| match state {
            BreakerState::Closed => Some(self.opened(1)),
            BreakerState::Trial { failures } | BreakerState::Trying { failures } => {
                Some(self.opened(failures.saturating_add(1)))
            }
            BreakerState::Open { .. } => None,
        })
    }

    fn opened(&self, failures: u32) -> BreakerState {
        opened(&*self.clock, &*self.entropy, failures)
    }

    fn change(&self, next: impl FnOnce(BreakerState) -> Option<BreakerState>) -> bool {
        self.state.send_if_modified(|state| match next(*state) {
            Some(next) => {
                *state = next;
                self.counters.set_paused(next != BreakerState::Closed);
                true
            }
            None => false,
        })
    }

    /// Probes the store and its nodes while their breakers are open. Never ends.
    pub(crate) async fn probe_all(&self, store: &dyn Store, key: &Key) {
        let nodes = async {
            match &self.nodes {
                Some(nodes) => nodes.probe().await,
                None => pending().await,
            }
        };
        tokio::join!(self.probe(store, key), nodes);
    }

    /// Probes the store while the breaker is open. Never ends.
    async fn probe(&self, store: &dyn Store, key: &Key) {
        let mut states = self.state.subscribe();
        loop {
            let state = *states.borrow_and_update();
            let BreakerState::Open { until, failures } = state else {
                let patient = async {
                    match state {
                        BreakerState::Trying { .. } => pause(&*self.clock, PATIENCE * 2).await,
                        _ => pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    changed = states.changed() => if changed.is_err() { return },
                    // The trial delivery may only wait for its handler.
                    () = patient => self.over(),
                }
                continue;
            };
            self.clock.sleep_until(until).await;
            let asked = within(&*self.clock, PATIENCE, store.peek(key)).await;
            let answers = asked.is_some_and(|asked| asked.is_ok()) && !self.is_node_outage();
            self.change(|state| match state {
                BreakerState::Open { .. } if answers => Some(BreakerState::Trial { failures }),
                BreakerState::Open { .. } => Some(self.opened(failures.saturating_add(1))),
                _ => None,
            });
        }
    }
}

/// Returns the state after this number of failures in a row.
pub(super) fn opened(clock: &dyn Clock, entropy: &dyn Entropy, failures: u32) -> BreakerState {
    let bits = entropy.bits().unwrap_or_default();
    BreakerState::Open { until: clock.now() + delay(FIRST, MOST, failures.saturating_sub(1), 20, bits), failures }
}

enum StoreHealth {
    Up,
    /// The store answered the claim. An unconfirmed release has the same outcome.
    Claimed,
    Down,
    Unknown,
}

fn health(outcome: &Outcome) -> StoreHealth {
    match outcome {
        // A single unreadable record says nothing about the store.
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
        | Outcome::Mismatch => StoreHealth::Up,
        // The call was not sent: the breaker of its node is open, or too many calls wait.
        Outcome::StoreDown(StoreErrorKind::Busy) => StoreHealth::Unknown,
        Outcome::StoreDown(_) | Outcome::Unrecorded => StoreHealth::Down,
        Outcome::Released { .. } => StoreHealth::Claimed,
        // `Unprotected` runs continue without a store, so the intake continues too.
        _ => StoreHealth::Unknown,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_core::{Identity, MemoryStore, OsEntropy, Scene, SystemClock};

    use super::*;

    fn breaker() -> StoreBreaker {
        StoreBreaker::new(Arc::new(SystemClock::new()), Arc::new(OsEntropy), ConsumerCounters::default(), None)
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
        breaker.state.send_replace(BreakerState::Trying { failures: 1 });
        breaker.learn(Some(&ended(Outcome::Released { retry_after: Duration::ZERO })));
        assert_eq!(*breaker.state.borrow(), BreakerState::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_without_an_end_makes_room_for_another_after_ten_seconds() {
        let (breaker, store) = (breaker(), MemoryStore::new());
        let key = Identity::new(Scene::Mq, "orders", "o-17").key("tests").unwrap();
        breaker.state.send_replace(BreakerState::Trying { failures: 1 });
        let probe_for = async |time| drop(tokio::time::timeout(time, breaker.probe(&store, &key)).await);
        probe_for(Duration::from_secs(9)).await;
        assert_eq!(*breaker.state.borrow(), BreakerState::Trying { failures: 1 });
        probe_for(Duration::from_secs(11)).await;
        assert_eq!(*breaker.state.borrow(), BreakerState::Trial { failures: 1 });
    }
}
