//! Counters that add up: one terminal one for each delivery.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        struct Cells { $($name: AtomicU64,)* }

        /// What a consumer's deliveries came to. While nothing is held, [`received`](Self::received) is the sum of the
        /// next eight.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        #[non_exhaustive]
        pub struct ConsumerCounts { $($(#[$doc])* pub $name: u64,)* }

        impl ConsumerCounters {
            /// The counts so far.
            #[must_use]
            pub fn counts(&self) -> ConsumerCounts {
                ConsumerCounts { $($name: self.0.$name.load(Ordering::Relaxed),)* }
            }

            $(pub(crate) fn $name(&self) { self.0.$name.fetch_add(1, Ordering::Relaxed); })*
        }
    };
}

counts! {
    /// Deliveries taken from the source.
    received,
    /// Done, and acknowledged.
    acked,
    /// Past their time, and acknowledged without being run.
    expired,
    /// To come again: their attempt failed.
    retried,
    /// To come again: put off, not an attempt.
    deferred,
    /// Put aside.
    dead_lettered,
    /// Given back at the end.
    given_back,
    /// Taken away by the broker.
    revoked,
    /// Not settled: the source failed, or the consumer was dropped. The broker delivers them again by itself.
    unsettled,
    /// Of all: handlers that ran without a claim, so that their duplicates run too.
    unprotected,
    /// Of all: bodies that could not be read, or were larger than [`max_body`](crate::ConsumerBuilder::max_body).
    undecodable,
    /// Keys that failed as often in a row as [`alert_after`](crate::ConsumerBuilder::alert_after) says.
    alerts,
    /// Failed calls of the source, by any name.
    source_errors,
    /// Times that intake was paused because the store was down.
    pauses,
}

impl ConsumerCounts {
    /// Deliveries settled, or known not to be: one terminal count for each.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.acked
            + self.expired
            + self.retried
            + self.deferred
            + self.dead_lettered
            + self.given_back
            + self.revoked
            + self.unsettled
    }
}

/// A handle on a consumer's counts, also while it runs and after it has ended. Clones are one handle.
#[derive(Clone, Debug, Default)]
pub struct ConsumerCounters(Arc<Cells>);

/// How a delivery ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    Acked,
    Expired,
    Retried,
    Deferred,
    DeadLettered,
    GivenBack,
    Revoked,
    Unsettled,
}

impl ConsumerCounters {
    pub(crate) fn ended(&self, end: End) {
        match end {
            End::Acked => self.acked(),
            End::Expired => self.expired(),
            End::Retried => self.retried(),
            End::Deferred => self.deferred(),
            End::DeadLettered => self.dead_lettered(),
            End::GivenBack => self.given_back(),
            End::Revoked => self.revoked(),
            End::Unsettled => self.unsettled(),
        }
    }
}
