//! What the tasks of one consumer share.
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_core::{Alerts, Clock};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::breaker::Breaker;
use crate::counts::End;
use crate::decide::Rules;
use crate::postponed::Postponed;
use crate::work::{Desk, Work};
use crate::{
    ConsumerCounters, Delivery, LoggedDelivery, MessageLog, Position, SenderState, Settle, SourceCapabilities,
};

pub(crate) struct Shared<Tag> {
    pub(crate) desk: Desk,
    pub(crate) work: Arc<dyn Work>,
    pub(crate) settler: Arc<dyn Settle<Tag>>,
    pub(crate) capabilities: SourceCapabilities,
    pub(crate) rules: Rules,
    pub(crate) log: Option<Arc<dyn MessageLog>>,
    pub(crate) alerts: Option<Alerts>,
    /// More deliveries than this by the broker's count, and the message is given up.
    pub(crate) max_deliveries: Option<u32>,
    pub(crate) max_body: Option<usize>,
    pub(crate) alert_after: u32,
    pub(crate) counters: ConsumerCounters,
    pub(crate) breaker: Breaker,
    pub(crate) postponed: Postponed,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) held: Mutex<HashMap<u64, Arc<Held<Tag>>>>,
}

/// How far a consumer has come in stopping.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Phase {
    Running,
    /// Nothing is taken any more; what runs may end.
    Draining,
    /// What still runs is dropped.
    Closing,
}

/// A delivery that is not settled.
pub(crate) struct Held<Tag> {
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) tag: Tag,
    /// The message log's entry, if its sender knows the message.
    pub(crate) log_entry: Option<LogEntry>,
    /// Nothing was to be noted, or it was.
    pub(crate) noted: bool,
    revoked: AtomicBool,
}

/// The entry of a delivery in the message log.
#[derive(Clone, Debug)]
pub(crate) struct LogEntry {
    pub(crate) receipt: LoggedDelivery,
    pub(crate) state: SenderState,
}

impl<Tag> Held<Tag> {
    pub(crate) fn new(delivery: Delivery, tag: Tag, log_entry: Option<LogEntry>, noted: bool) -> Self {
        Self { delivery: Arc::new(delivery), tag, log_entry, noted, revoked: AtomicBool::new(false) }
    }

    /// Returns whether the sender sends the message again if its run dies.
    pub(crate) fn is_resent(&self) -> bool {
        self.log_entry.as_ref().is_some_and(|entry| entry.state == SenderState::Unconfirmed)
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::SeqCst)
    }
}

impl<Tag> Shared<Tag> {
    pub(crate) fn clock(&self) -> &dyn Clock {
        &**self.desk.executor.clock()
    }

    pub(crate) fn bits(&self) -> u128 {
        // Without randomness there is no jitter; a claim is refused elsewhere.
        self.desk.executor.entropy().bits().unwrap_or_default()
    }

    pub(crate) fn has_reached(&self, phase: Phase) -> bool {
        *self.phase.borrow() >= phase
    }

    /// Intake ends; the dispatcher hears why by its own way.
    pub(crate) fn take_no_more(&self) {
        self.phase.send_if_modified(|phase| {
            let modified = *phase < Phase::Draining;
            *phase = (*phase).max(Phase::Draining);
            modified
        });
    }

    /// Ends when the phase has come.
    pub(crate) async fn reached(&self, phase: Phase) {
        let mut phases = self.phase.subscribe();
        // The sender is `self`: it does not go away.
        let _ = phases.wait_for(|now| *now >= phase).await;
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, HashMap<u64, Arc<Held<Tag>>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those in these areas are not to be settled any more.
    pub(crate) fn revoke(&self, areas: &[Position]) {
        for held in self.held().values() {
            if areas.iter().any(|area| held.delivery.position.lies_in(area)) {
                held.revoked.store(true, Ordering::SeqCst);
            }
        }
    }

    /// How long the handover of what was taken may go on once handlers are dropped.
    pub(crate) const AFTER_CLOSE: Duration = Duration::from_secs(1);
}

/// A delivery on its way through the consumer. However it goes, it is counted once, and its place is free again.
pub(crate) struct Job<Tag> {
    pub(crate) held: Arc<Held<Tag>>,
    pub(crate) shared: Arc<Shared<Tag>>,
    number: u64,
    counted: bool,
    _place: Option<OwnedSemaphorePermit>,
}

impl<Tag> Job<Tag> {
    pub(crate) fn new(
        shared: &Arc<Shared<Tag>>,
        held: Held<Tag>,
        number: u64,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let held = Arc::new(held);
        shared.counters.received();
        shared.held().insert(number, held.clone());
        Self { held, shared: shared.clone(), number, counted: false, _place: place }
    }

    pub(crate) fn delivery(&self) -> &Arc<Delivery> {
        &self.held.delivery
    }

    pub(crate) fn end(mut self, end: End) {
        self.counted = true;
        self.shared.counters.ended(end);
    }
}

impl<Tag> Drop for Job<Tag> {
    fn drop(&mut self) {
        if !self.counted {
            self.shared.counters.ended(End::Unsettled);
        }
        self.shared.held().remove(&self.number);
        self.shared.breaker.over();
    }
}

impl<Tag> fmt::Debug for Job<Tag> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.delivery.fmt(f)
    }
}
