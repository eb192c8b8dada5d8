//! The state that the tasks of one consumer share.
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idempotent_core::__private::{Summary, SummarySlot};
use idempotent_core::{Alerts, Clock};
use slab::Slab;
use tokio::sync::{Notify, watch};

use crate::consumer::counts::DeliveryEnd;
use crate::consumer::decision::SettlementRules;
use crate::consumer::observer::GuardedObserver;
use crate::consumer::postponed_retries::PostponedRetries;
use crate::consumer::store_breaker::StoreBreaker;
use crate::handler::{ConsumerContext, DeliveryHandler, RunProgress};
use crate::{
    ConsumerCounters, Delivery, LoggedDelivery, MessageLog, Position, SenderState, Settle, SourceCapabilities,
};

pub(crate) struct ConsumerState<Tag> {
    pub(crate) context: ConsumerContext,
    pub(crate) work: Arc<dyn DeliveryHandler>,
    pub(crate) settler: Arc<dyn Settle<Tag>>,
    pub(crate) capabilities: SourceCapabilities,
    pub(crate) rules: SettlementRules,
    pub(crate) log: Option<Arc<dyn MessageLog>>,
    /// The name of this consumer in the message log, or `None` if the consumer runs consumed messages again.
    pub(crate) logged_as: Option<Arc<str>>,
    pub(crate) alerts: Option<Alerts>,
    pub(crate) observer: Option<GuardedObserver>,
    /// The maximum of deliveries by the broker's count. A message with more is dead-lettered.
    pub(crate) max_deliveries: Option<u32>,
    pub(crate) max_body: usize,
    pub(crate) alert_after: u32,
    pub(crate) counters: ConsumerCounters,
    pub(crate) breaker: Arc<StoreBreaker>,
    pub(crate) postponed: PostponedRetries,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) held: Mutex<Slab<Arc<HeldDelivery<Tag>>>>,
    /// The largest number of held deliveries.
    pub(crate) prefetch: usize,
    /// Wakes the intake when a delivery ends.
    pub(crate) freed: Notify,
}

/// The phase of a consumer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Phase {
    Running,
    /// The consumer receives nothing more. Running handlers may end.
    Draining,
    /// The consumer drops running handlers.
    Closing,
}

/// An unsettled delivery.
pub(crate) struct HeldDelivery<Tag> {
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) tag: Tag,
    /// The message log's entry, if its sender knows the message.
    pub(crate) log_entry: Option<LogEntry>,
    /// False if the message log failed to record the delivery.
    pub(crate) noted: bool,
    revoked: AtomicBool,
    begun: AtomicBool,
    breaker: Arc<StoreBreaker>,
    summary: Summary,
}

/// The entry of a delivery in the message log.
#[derive(Clone, Debug)]
pub(crate) struct LogEntry {
    pub(crate) receipt: LoggedDelivery,
    pub(crate) state: SenderState,
}

impl<Tag> HeldDelivery<Tag> {
    pub(crate) fn new(
        delivery: Delivery,
        tag: Tag,
        log_entry: Option<LogEntry>,
        noted: bool,
        breaker: Arc<StoreBreaker>,
    ) -> Self {
        let (delivery, revoked, begun) = (Arc::new(delivery), AtomicBool::new(false), AtomicBool::new(false));
        Self { delivery, tag, log_entry, noted, revoked, begun, breaker, summary: Summary::default() }
    }

    /// Returns true if the sender resends the message after its run dies.
    pub(crate) fn is_resent(&self) -> bool {
        self.log_entry.as_ref().is_some_and(|entry| entry.state == SenderState::Unconfirmed)
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::SeqCst)
    }

    /// Returns true once the handler has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }
}

impl<Tag: Send + Sync> SummarySlot for HeldDelivery<Tag> {
    fn summary(&self) -> &Summary {
        &self.summary
    }
}

impl<Tag: Send + Sync> RunProgress for HeldDelivery<Tag> {
    fn begin(&self) {
        self.begun.store(true, Ordering::SeqCst);
    }

    fn begin_claimed(&self) {
        self.begin();
        self.breaker.claimed();
    }
}

impl<Tag> ConsumerState<Tag> {
    pub(crate) fn clock(&self) -> &dyn Clock {
        &**self.context.executor.clock()
    }

    pub(crate) fn bits(&self) -> u128 {
        // Without randomness there is no jitter. The executor refuses claims in that case.
        self.context.executor.entropy().bits().unwrap_or_default()
    }

    pub(crate) fn has_reached(&self, phase: Phase) -> bool {
        *self.phase.borrow() >= phase
    }

    /// Stops the intake.
    pub(crate) fn take_no_more(&self) {
        self.phase.send_if_modified(|phase| {
            let modified = *phase < Phase::Draining;
            *phase = (*phase).max(Phase::Draining);
            modified
        });
    }

    /// Waits for the phase.
    pub(crate) async fn reached(&self, phase: Phase) {
        let mut phases = self.phase.subscribe();
        // The sender is part of `self`, so the channel stays open.
        let _ = phases.wait_for(|now| *now >= phase).await;
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, Slab<Arc<HeldDelivery<Tag>>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room, and returns the number of deliveries that may be received.
    pub(crate) async fn room(&self) -> usize {
        loop {
            let room = self.prefetch.saturating_sub(self.held().len());
            if room > 0 {
                return room;
            }
            // A delivery that has ended since is not missed, because the notification is stored.
            self.freed.notified().await;
            // Lets the deliveries end that are about to, so that one call of the source returns several.
            tokio::task::yield_now().await;
        }
    }

    /// Marks deliveries in these areas as revoked, so that they are not settled.
    pub(crate) fn revoke(&self, areas: &[Position]) {
        for (_, held) in &*self.held() {
            if areas.iter().any(|area| held.delivery.position.lies_in(area)) {
                held.revoked.store(true, Ordering::SeqCst);
            }
        }
        // Wakes the runs that wait for their turn, so that they see the flag.
        self.phase.send_modify(|_| {});
    }

    /// The time for settlements after handlers were dropped.
    pub(crate) const AFTER_CLOSE: Duration = Duration::from_secs(1);
}

/// A delivery on its way through the consumer. Dropping it counts the delivery once and makes room for another one.
pub(crate) struct DeliveryJob<Tag> {
    pub(crate) held: Arc<HeldDelivery<Tag>>,
    pub(crate) shared: Arc<ConsumerState<Tag>>,
    /// The place among the held deliveries.
    place: usize,
    counted: bool,
}

impl<Tag> DeliveryJob<Tag> {
    pub(crate) fn new(shared: &Arc<ConsumerState<Tag>>, held: HeldDelivery<Tag>) -> Self {
        let held = Arc::new(held);
        shared.counters.received();
        let place = shared.held().insert(held.clone());
        Self { held, shared: shared.clone(), place, counted: false }
    }

    pub(crate) fn delivery(&self) -> &Arc<Delivery> {
        &self.held.delivery
    }

    pub(crate) fn end(mut self, end: DeliveryEnd) {
        self.counted = true;
        self.shared.counters.ended(end);
    }
}

impl<Tag> Drop for DeliveryJob<Tag> {
    fn drop(&mut self) {
        if !self.counted {
            self.shared.counters.ended(DeliveryEnd::Unsettled);
        }
        self.shared.held().try_remove(self.place);
        self.shared.freed.notify_one();
        self.shared.breaker.over();
    }
}

impl<Tag> fmt::Debug for DeliveryJob<Tag> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.delivery.fmt(f)
    }
}
