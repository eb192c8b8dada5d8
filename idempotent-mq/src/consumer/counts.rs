//! Counters of deliveries, with one terminal counter for each delivery.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::gauges::GaugeCells;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        struct CounterCells { gauges: GaugeCells, $($name: AtomicU64,)* }

        /// Counts of deliveries by their results. Without unsettled deliveries, [`received`](Self::received) is the sum of the next
        /// nine counts.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        #[non_exhaustive]
        pub struct ConsumerCounts { $($(#[$doc])* pub $name: u64,)* }

        impl ConsumerCounts {
            /// Logs the counts that are not zero.
            pub(super) fn log(&self, group: &str) {
                let happened = |count: u64| (count > 0).then_some(count);
                tracing::info!(target: "idempotent", group, $($name = happened(self.$name),)* "consumer stopped");
            }
        }

        impl ConsumerCounters {
            /// Returns the counts so far.
            #[must_use]
            pub fn counts(&self) -> ConsumerCounts {
                ConsumerCounts { $($name: self.0.$name.load(Ordering::Relaxed),)* }
            }

            $(pub(crate) fn $name(&self) { self.0.$name.fetch_add(1, Ordering::Relaxed); })*
        }
    };
}

counts! {
    /// Deliveries received from the source.
    received,
    /// Deliveries that were acknowledged because their message is consumed.
    acked,
    /// Deliveries that were acknowledged without a run because the message log reports their message as consumed or void. See
    /// [`skip_consumed`](crate::ConsumerBuilder::skip_consumed).
    skipped,
    /// Expired deliveries that were acknowledged without a run.
    expired,
    /// Deliveries that are retried because their attempt failed.
    retried,
    /// Deliveries that are retried without having been an attempt.
    deferred,
    /// Deliveries that were dead-lettered.
    dead_lettered,
    /// Deliveries that were given back during a drain.
    given_back,
    /// Deliveries that the broker revoked.
    revoked,
    /// Deliveries that were not settled because the source failed or the consumer was dropped. The broker delivers them again.
    unsettled,
    /// Runs without a claim, whose duplicates run too.
    unprotected,
    /// Bodies that could not be decoded, or were larger than [`max_body`](crate::ConsumerBuilder::max_body).
    undecodable,
    /// Keys whose failures in a row reached [`alert_after`](crate::ConsumerBuilder::alert_after).
    alerts,
    /// Failed calls of the source, and sessions that ended before one of their deliveries was settled.
    source_errors,
    /// Pauses of the intake because the store was down.
    pauses,
    /// Failures of one node of the store, during which only the deliveries of this node were deferred.
    node_outages,
}

impl ConsumerCounts {
    /// Returns the number of ended deliveries, which is the sum of the terminal counts.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.acked
            + self.skipped
            + self.expired
            + self.retried
            + self.deferred
            + self.dead_lettered
            + self.given_back
            + self.revoked
            + self.unsettled
    }

    /// Returns the number of deliveries that the source has settled.
    pub(crate) fn settled(&self) -> u64 {
        self.ended() - self.revoked - self.unsettled
    }
}

/// A handle on the counts of a consumer, valid while the consumer runs and afterwards. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct ConsumerCounters(Arc<CounterCells>);

/// The end of a delivery.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DeliveryEnd {
    Acked,
    /// Acknowledged without a run, because the message log reports the message as consumed.
    Skipped,
    /// Acknowledged without a run, because the sender has voided the message.
    SkippedAsVoid,
    Expired,
    Retried,
    Deferred,
    DeadLettered,
    GivenBack,
    Revoked,
    Unsettled,
}

impl DeliveryEnd {
    /// Returns the name of the count.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::Skipped | Self::SkippedAsVoid => "skipped",
            Self::Expired => "expired",
            Self::Retried => "retried",
            Self::Deferred => "deferred",
            Self::DeadLettered => "dead_lettered",
            Self::GivenBack => "given_back",
            Self::Revoked => "revoked",
            Self::Unsettled => "unsettled",
        }
    }
}

impl ConsumerCounters {
    pub(super) fn gauge_cells(&self) -> &GaugeCells {
        &self.0.gauges
    }

    pub(crate) fn ended(&self, end: DeliveryEnd) {
        match end {
            DeliveryEnd::Acked => self.acked(),
            DeliveryEnd::Skipped | DeliveryEnd::SkippedAsVoid => self.skipped(),
            DeliveryEnd::Expired => self.expired(),
            DeliveryEnd::Retried => self.retried(),
            DeliveryEnd::Deferred => self.deferred(),
            DeliveryEnd::DeadLettered => self.dead_lettered(),
            DeliveryEnd::GivenBack => self.given_back(),
            DeliveryEnd::Revoked => self.revoked(),
            DeliveryEnd::Unsettled => self.unsettled(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_end_is_that_of_its_count() {
        let all = [
            (DeliveryEnd::Acked, "acked"),
            (DeliveryEnd::Skipped, "skipped"),
            (DeliveryEnd::SkippedAsVoid, "skipped"),
            (DeliveryEnd::Expired, "expired"),
            (DeliveryEnd::Retried, "retried"),
            (DeliveryEnd::Deferred, "deferred"),
            (DeliveryEnd::DeadLettered, "dead_lettered"),
            (DeliveryEnd::GivenBack, "given_back"),
            (DeliveryEnd::Revoked, "revoked"),
            (DeliveryEnd::Unsettled, "unsettled"),
        ];
        for (end, name) in all {
            let counters = ConsumerCounters::default();
            counters.ended(end);
            let counts = format!("{:?}", counters.counts());
            assert!(end.name() == name && counts.contains(&format!(" {name}: 1")), "{counts}");
        }
    }
}
