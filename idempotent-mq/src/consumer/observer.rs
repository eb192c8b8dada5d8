//! Events of deliveries, for metrics and traces.
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::__private::HookGuard;
use idempotent_core::{Key, Outcome};
use tracing::Span;

use super::counts::DeliveryEnd;
use super::state::DeliveryJob;
use crate::Delivery;
use crate::handler::HandlerEnd;

/// A receiver of the ends of deliveries, as a basis for metrics, which can also give each delivery a span.
///
/// The consumer calls the observer in the task of the delivery, so an observer must be fast and must not block. A panic of an observer
/// is caught. The first one is logged, and the delivery is settled and counted.
///
/// A pair of observers is an observer that calls both.
pub trait DeliveryObserver: fmt::Debug + Send + Sync + 'static {
    /// Handles the end of one delivery, inside of the span of the delivery. Deliveries that the broker revoked, and those of a
    /// dropped consumer, are only [counted](crate::ConsumerCounts).
    fn settled(&self, delivery: &SettledDelivery<'_>);

    /// Returns a span for a delivery. The consumer runs and settles the delivery in this span, and then drops the span. The consumer
    /// calls this method when it claims the delivery's key or runs its handler. The span does not include the time for which the delivery
    /// waited before. It includes the wait of a delivery that is [claimed ahead](crate::ConsumerBuilder::claim_ahead).
    ///
    /// Of a pair of observers, the first span is used.
    ///
    /// # Default
    /// `None`: the delivery has no span of its own
    fn span(&self, _delivery: &StartedDelivery<'_>) -> Option<Span> {
        None
    }
}

impl<A: DeliveryObserver, B: DeliveryObserver> DeliveryObserver for (A, B) {
    fn settled(&self, delivery: &SettledDelivery<'_>) {
        // A panic of one observer must not hide the delivery from the other.
        let first = catch_unwind(AssertUnwindSafe(|| self.0.settled(delivery)));
        self.1.settled(delivery);
        first.unwrap_or_else(|panic| resume_unwind(panic));
    }

    fn span(&self, delivery: &StartedDelivery<'_>) -> Option<Span> {
        self.0.span(delivery).or_else(|| self.1.span(delivery))
    }
}

/// The observer of a consumer. A panic in it would end a worker before its delivery is counted, or the consumer.
pub(crate) struct GuardedObserver {
    observer: Arc<dyn DeliveryObserver>,
    guard: HookGuard,
}

impl GuardedObserver {
    pub(super) fn new(observer: Arc<dyn DeliveryObserver>) -> Self {
        Self { observer, guard: HookGuard::new("delivery observer") }
    }
}

/// A delivery that a worker starts to run or to settle.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StartedDelivery<'a> {
    /// The group of the consumer.
    pub group: &'a str,
    /// The delivery. Its id, headers and body may contain secrets.
    pub delivery: &'a Delivery,
    /// True if the handler runs, or answers a duplicate. False if the consumer only settles the delivery, for example because the
    /// body cannot be decoded.
    pub runs: bool,
}

/// The end of a delivery, without data of its message.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SettledDelivery<'a> {
    /// The group of the consumer; suitable as a metrics label.
    pub group: &'a str,
    /// The name of the count of [`ConsumerCounts`](crate::ConsumerCounts) that the delivery belongs to, such as `acked`.
    pub end: &'static str,
    /// True if the message needs no further delivery: it is consumed, expired or dead-lettered.
    pub is_final: bool,
    /// The time since the first delivery of the message, or since this delivery if the broker does not report the first one.
    pub age: Duration,
    /// The outcome of the run, or `None` without a run.
    pub outcome: Option<&'a Outcome>,
    /// The hashed key of the run, if there is one. Not suitable as a metrics label.
    pub key: Option<&'a Key>,
    /// The attempt, if the key was claimed.
    pub attempt: Option<u32>,
}

impl<Tag> DeliveryJob<Tag> {
    /// Returns the observer's span for this delivery.
    pub(super) fn span(&self, runs: bool) -> Option<Span> {
        let GuardedObserver { observer, guard } = self.shared.observer.as_ref()?;
        let started = StartedDelivery { group: &self.shared.context.group, delivery: self.delivery(), runs };
        guard.catch(|| observer.span(&started)).flatten()
    }

    /// Reports the end of this delivery to the observer.
    pub(super) fn observe(&self, end: DeliveryEnd, ended: Option<&HandlerEnd>) {
        let Some(GuardedObserver { observer, guard }) = &self.shared.observer else { return };
        let (delivery, now) = (self.delivery(), self.shared.clock().wall());
        let is_final = matches!(
            end,
            DeliveryEnd::Acked
                | DeliveryEnd::Skipped
                | DeliveryEnd::SkippedAsVoid
                | DeliveryEnd::Expired
                | DeliveryEnd::DeadLettered
        );
        let captured = ended.and_then(|ended| ended.captured.as_ref());
        let settled = SettledDelivery {
            group: &self.shared.context.group,
            end: end.name(),
            is_final,
            age: now - delivery.first_at.unwrap_or(delivery.received_at),
            outcome: captured.map(|captured| &captured.outcome),
            key: captured.and_then(|captured| captured.key.as_ref()),
            attempt: captured.and_then(|captured| captured.attempt),
        };
        guard.catch(|| observer.settled(&settled));
    }
}
