//! The circuit breakers for the nodes of a store that distributes its keys.
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use idempotent_core::__private::admission::{AdmittedClaim, ClaimAdmission, Withdrawal};
use idempotent_core::{Executor, Key, Outcome, RunSummary, Store, StoreError, StoreErrorKind, StoreNode, StoreNodes};
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::ConsumerCounters;
use crate::consumer::store_breaker::{BreakerState, FIRST, PATIENCE, opened};
use crate::time::{pause, within};

/// Circuit breakers that defer the deliveries of failed nodes, while those of the other nodes go on.
///
/// The executor asks before each claim. Claims of a failed node are refused, so that they occupy no handler. A peek of a key detects
/// that the node answers again, and one trial claim must then be answered before others are sent.
#[derive(Clone)]
pub(crate) struct NodeBreakers(Arc<BreakerSet>);

struct BreakerSet {
    executor: Executor,
    group: Arc<str>,
    counters: ConsumerCounters,
    /// The number of claims that may wait for a silent node.
    most_waiting: usize,
    nodes: Mutex<HashMap<StoreNode, NodeState>>,
    /// Notified after a breaker opened.
    changed: Notify,
}

struct NodeState {
    breaker: BreakerState,
    /// The number of claims that wait for an answer.
    waiting: usize,
    /// The number of answered claims.
    answers: u64,
    /// A key of the node, which probes it.
    key: Key,
}

/// A node counts as failed after two of these times without any answer, if more claims wait for it than may. A delay of this process
/// passes for one of them at most, because the answers that arrived meanwhile are read during the other.
const SILENCE: Duration = Duration::from_secs(1);

impl NodeBreakers {
    /// Creates the breakers, or returns `None` if the store has no nodes.
    pub(crate) fn new(
        executor: Executor,
        group: Arc<str>,
        counters: ConsumerCounters,
        most_waiting: usize,
    ) -> Option<Self> {
        executor.store().capabilities().nodes?;
        let (nodes, changed) = (Mutex::default(), Notify::new());
        Some(Self(Arc::new(BreakerSet { executor, group, counters, most_waiting, nodes, changed })))
    }

    /// Notes that a run failed because of the store. Returns true if only the deliveries of one node are affected, and false if the
    /// failure has no node or at least half of the nodes fail.
    pub(crate) fn isolates(&self, failed: &RunSummary) -> bool {
        let Some((node, key)) = self.node_of_run(failed).zip(failed.key.as_ref()) else { return false };
        let mut nodes = self.nodes();
        let state = nodes.entry(node.clone()).or_insert_with(|| self.unknown(key));
        match state.breaker {
            BreakerState::Closed => self.open(&node, state, 1),
            // A claim that was refused while the breaker was open says nothing about the trial.
            _ if matches!(failed.outcome, Outcome::StoreDown(StoreErrorKind::Busy)) => {}
            BreakerState::Trial { failures } | BreakerState::Trying { failures } => {
                self.open(&node, state, failures.saturating_add(1));
            }
            BreakerState::Open { .. } => {}
        }
        self.update_gauge(&nodes);
        drop(nodes);
        !self.is_outage()
    }

    /// Returns true while at least half of the nodes fail.
    pub(crate) fn is_outage(&self) -> bool {
        let known = self.store_nodes().map_or(0, |nodes| nodes.node_count());
        failing(&self.nodes()) * 2 >= known
    }

    /// Returns the delay of a run that ended because of a failed node.
    pub(crate) fn rest(&self, failed: &RunSummary) -> Option<Duration> {
        if !matches!(failed.outcome, Outcome::StoreDown(_)) {
            return None;
        }
        match self.nodes().get(&self.node_of_run(failed)?)?.breaker {
            BreakerState::Open { until, .. } => Some(until.saturating_duration_since(self.now()).max(FIRST)),
            _ => None,
        }
    }

    /// Probes the nodes whose breakers are open. Never ends.
    pub(crate) async fn probe(&self) {
        loop {
            let Some(until) = self.next_probe() else {
                self.0.changed.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = self.0.changed.notified() => continue,
                () = self.0.executor.clock().sleep_until(until) => {}
            }
            join_all(self.due().into_iter().map(|(node, key)| self.probe_node(node, key))).await;
        }
    }

    fn next_probe(&self) -> Option<Instant> {
        let nodes = self.nodes();
        let times = nodes.values().filter_map(|state| match state.breaker {
            BreakerState::Open { until, .. } => Some(until),
            _ => None,
        });
        times.min()
    }

    fn due(&self) -> Vec<(StoreNode, Key)> {
        let now = self.now();
        let is_due = |state: &NodeState| matches!(state.breaker, BreakerState::Open { until, .. } if until <= now);
        let nodes = self.nodes();
        let due = nodes.iter().filter(|(_, state)| is_due(state));
        due.map(|(node, state)| (node.clone(), state.key.clone())).collect()
    }

    async fn probe_node(&self, node: StoreNode, key: Key) {
        let executor = &self.0.executor;
        let asked = within(&**executor.clock(), PATIENCE, executor.store().peek(&key)).await;
        let answers = asked.is_some_and(|asked| asked.is_ok());
        let mut nodes = self.nodes();
        let Some(state) = nodes.get_mut(&node) else { return };
        let BreakerState::Open { failures, .. } = state.breaker else { return };
        match answers {
            true => state.breaker = BreakerState::Trial { failures },
            false => self.open(&node, state, failures.saturating_add(1)),
        }
        self.update_gauge(&nodes);
    }

    /// Ends the wait of a claim once its node is silent and too many claims wait for it.
    async fn overdue(self, node: StoreNode, ended: Arc<AtomicBool>) -> StoreError {
        let (mut answers, mut silences) = (self.answers(&node), 0);
        loop {
            pause(&**self.0.executor.clock(), SILENCE).await;
            let mut nodes = self.nodes();
            let Some(state) = nodes.get_mut(&node) else { continue };
            silences = if state.answers == answers { silences + 1 } else { 0 };
            answers = state.answers;
            if silences < 2 || state.waiting <= self.0.most_waiting || ended.swap(true, Ordering::SeqCst) {
                continue;
            }
            if state.breaker == BreakerState::Closed {
                self.open(&node, state, 1);
            }
            state.waiting -= 1;
            self.update_gauge(&nodes);
            return StoreError::new(StoreErrorKind::Ambiguous)
                .because(format!("the node {node} is silent, and other deliveries wait for it"))
                .with_node(node);
        }
    }

    fn open(&self, node: &StoreNode, state: &mut NodeState, failures: u32) {
        let executor = &self.0.executor;
        state.breaker = opened(&**executor.clock(), &**executor.entropy(), failures);
        self.0.changed.notify_one();
        if failures == 1 {
            self.0.counters.node_outages();
            warn!(target: "idempotent", group = &*self.0.group, node = node.as_str(),
                "consumer: a node of the store is down; its deliveries are deferred");
        }
    }

    fn close(&self, node: &StoreNode, state: &mut NodeState) {
        state.breaker = BreakerState::Closed;
        info!(target: "idempotent", group = &*self.0.group, node = node.as_str(),
            "consumer: a node of the store answers again");
    }

    fn unknown(&self, key: &Key) -> NodeState {
        NodeState { breaker: BreakerState::Closed, waiting: 0, answers: 0, key: key.clone() }
    }

    fn answers(&self, node: &StoreNode) -> u64 {
        self.nodes().get(node).map_or(0, |state| state.answers)
    }

    fn node_of_run(&self, run: &RunSummary) -> Option<StoreNode> {
        run.node.clone().or_else(|| self.node_of(run.key.as_ref()?))
    }

    fn node_of(&self, key: &Key) -> Option<StoreNode> {
        self.store_nodes()?.node_of(key)
    }

    fn store_nodes(&self) -> Option<&dyn StoreNodes> {
        self.0.executor.store().capabilities().nodes
    }

    fn update_gauge(&self, nodes: &HashMap<StoreNode, NodeState>) {
        self.0.counters.set_failed_nodes(failing(nodes));
    }

    fn now(&self) -> Instant {
        self.0.executor.clock().now()
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<StoreNode, NodeState>> {
        // Each method leaves the states consistent.
        self.0.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of nodes that did not answer their last claim or peek.
fn failing(nodes: &HashMap<StoreNode, NodeState>) -> usize {
    nodes.values().filter(|state| matches!(state.breaker, BreakerState::Open { .. })).count()
}

impl fmt::Debug for NodeBreakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeBreakers").field("most_waiting", &self.0.most_waiting).finish_non_exhaustive()
    }
}

impl ClaimAdmission for NodeBreakers {
    fn admit(&self, store: &dyn Store, key: &Key) -> Result<Option<Box<dyn AdmittedClaim>>, StoreError> {
        // A handler may use another executor, whose nodes are unknown here.
        if !std::ptr::addr_eq(store, &**self.0.executor.store()) {
            return Ok(None);
        }
        let Some(node) = self.node_of(key) else { return Ok(None) };
        let mut nodes = self.nodes();
        let state = nodes.entry(node.clone()).or_insert_with(|| self.unknown(key));
        match state.breaker {
            BreakerState::Closed => {}
            BreakerState::Trial { failures } => {
                state.breaker = BreakerState::Trying { failures };
                state.key = key.clone();
            }
            BreakerState::Open { .. } | BreakerState::Trying { .. } => {
                return Err(StoreError::new(StoreErrorKind::Busy)
                    .because(format!("the node {node} does not answer; the delivery is deferred"))
                    .with_node(node));
            }
        }
        let is_trial = state.breaker != BreakerState::Closed;
        let is_excess = !is_trial && state.waiting >= self.0.most_waiting;
        state.waiting += 1;
        let breakers = self.clone();
        Ok(Some(Box::new(WaitingClaim { breakers, node, is_trial, is_excess, ended: Arc::default() })))
    }
}

/// A claim that waits for the answer of its node.
struct WaitingClaim {
    breakers: NodeBreakers,
    node: StoreNode,
    /// True if the claim decides whether the breaker of the node closes.
    is_trial: bool,
    /// True if more claims than may wait for a silent node were waiting already.
    is_excess: bool,
    ended: Arc<AtomicBool>,
}

impl WaitingClaim {
    /// Ends the wait once.
    fn end(&self, note: impl FnOnce(&mut NodeState)) {
        if !self.ended.swap(true, Ordering::SeqCst) {
            let mut nodes = self.breakers.nodes();
            if let Some(state) = nodes.get_mut(&self.node) {
                note(state);
            }
            self.breakers.update_gauge(&nodes);
        }
    }
}

impl AdmittedClaim for WaitingClaim {
    fn answered(&self) {
        self.end(|state| {
            state.waiting -= 1;
            state.answers += 1;
            if matches!(state.breaker, BreakerState::Trial { .. } | BreakerState::Trying { .. }) {
                self.breakers.close(&self.node, state);
            }
        });
    }

    fn exempt(&self) {
        self.end(|state| {
            state.waiting -= 1;
            if let (BreakerState::Trying { failures }, true) = (state.breaker, self.is_trial) {
                // The next claim is the trial.
                state.breaker = BreakerState::Trial { failures };
            }
        });
    }

    fn withdrawal(&self) -> Option<Withdrawal> {
        if !self.is_excess || self.ended.load(Ordering::SeqCst) {
            return None;
        }
        let (breakers, node, ended) = (self.breakers.clone(), self.node.clone(), self.ended.clone());
        Some(Box::pin(breakers.overdue(node, ended)))
    }
}

impl Drop for WaitingClaim {
    fn drop(&mut self) {
        self.exempt();
    }
}
