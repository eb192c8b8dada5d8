//! Events of settled deliveries, for metrics.
use std::fmt;
use std::time::Duration;

use super::counts::DeliveryEnd;
use super::state::DeliveryJob;

/// A receiver of the ends of deliveries, as a basis for metrics.
///
/// The consumer calls the observer in the task of the delivery, so an observer must be fast and must not block.
pub trait DeliveryObserver: fmt::Debug + Send + Sync + 'static {
    /// Handles the end of one delivery. Deliveries that the broker revoked, and those of a dropped consumer, are only
    /// [counted](crate::ConsumerCounts).
    fn settled(&self, delivery: &SettledDelivery<'_>);
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
}

impl<Tag> DeliveryJob<Tag> {
    /// Reports the end of this delivery to the observer.
    pub(super) fn observe(&self, end: DeliveryEnd) {
        let Some(observer) = &self.shared.observer else { return };
        let (delivery, now) = (self.delivery(), self.shared.clock().wall());
        let is_final = matches!(
            end,
            DeliveryEnd::Acked
                | DeliveryEnd::Skipped
                | DeliveryEnd::SkippedAsVoid
                | DeliveryEnd::Expired
                | DeliveryEnd::DeadLettered
        );
        observer.settled(&SettledDelivery {
            group: &self.shared.context.group,
            end: end.name(),
            is_final,
            age: now - delivery.first_at.unwrap_or(delivery.received_at),
        });
    }
}
