//! The counts of relays, and the sizes of outboxes.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_sqlx::{Outbox, OutboxDb, RelayCounters};

use super::MetricsCollector;
use super::source::{FollowedTotals, Source, TotalsSource};
use crate::catalogue;
use crate::recording::Recording;

impl MetricsCollector {
    /// Adds a relay by its [counters](idempotent_sqlx::Relay::counters), under the name of its outbox.
    pub fn relay(self, outbox: impl Into<String>, counters: RelayCounters) -> Self {
        let outbox = outbox.into();
        let sends = |result| self.recording.counter(&catalogue::OUTBOX_SENDS, &[&outbox, result]);
        let given_up = self.recording.counter(&catalogue::OUTBOX_GIVEN_UP, &[&outbox]);
        let totals = FollowedTotals::new([sends("sent"), sends("failed"), given_up]);
        let counts = move || {
            let counts = counters.counts();
            [counts.sent, counts.failed, counts.given_up]
        };
        self.add(TotalsSource { name: format!("relay:{outbox}"), totals, counts })
    }

    /// Adds an outbox. Each reading [counts](Outbox::counts) its messages, so one process of a fleet is enough.
    pub fn outbox<Db: OutboxDb>(self, name: impl Into<String>, outbox: &Outbox<Db>) -> Self {
        self.add(OutboxSource { name: name.into(), outbox: outbox.clone() })
    }
}

struct OutboxSource<Db: OutboxDb> {
    name: String,
    outbox: Outbox<Db>,
}

impl<Db: OutboxDb> OutboxSource<Db> {
    fn set(&self, recording: &Recording, counts: [f64; 3], oldest: f64) {
        for (status, count) in ["unsent", "unconfirmed", "dead"].into_iter().zip(counts) {
            recording.gauge(&catalogue::OUTBOX_MESSAGES, &[&self.name, status]).set(count);
        }
        recording.gauge(&catalogue::OUTBOX_OLDEST, &[&self.name]).set(oldest);
    }
}

#[async_trait]
impl<Db: OutboxDb> Source for OutboxSource<Db> {
    fn name(&self) -> String {
        format!("outbox:{}", self.name)
    }

    async fn read(&mut self, recording: &Recording) -> bool {
        let Ok(counts) = self.outbox.counts().await else { return false };
        let oldest = counts.oldest_unsent.unwrap_or(Duration::ZERO).as_secs_f64();
        self.set(recording, [counts.unsent, counts.unconfirmed, counts.dead].map(|count| count as f64), oldest);
        true
    }

    fn set_unknown(&self, recording: &Recording) {
        self.set(recording, [f64::NAN; 3], f64::NAN);
    }
}
