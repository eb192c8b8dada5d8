//! The state of an executor, and the counts of alerts.
use async_trait::async_trait;
use idempotent_core::{Alerts, Executor};

use super::MetricsCollector;
use super::source::{FollowedTotals, Source, TotalsSource};
use crate::catalogue;
use crate::recording::Recording;

impl MetricsCollector {
    /// Adds an executor: its waiting calls, its late numbers, and whether it drains.
    pub fn executor(self, name: impl Into<String>, executor: &Executor) -> Self {
        let name = name.into();
        let late = FollowedTotals::new([self.recording.counter(&catalogue::ORDER_LATE, &[&name])]);
        self.add(ExecutorSource { name, executor: executor.clone(), late })
    }

    /// Adds the counts of alerts.
    pub fn alerts(self, alerts: &Alerts) -> Self {
        let states = ["raised", "suppressed", "dropped", "sent", "failed"];
        let totals = FollowedTotals::new(states.map(|state| self.recording.counter(&catalogue::ALERTS, &[state])));
        let alerts = alerts.clone();
        let counts = move || {
            let counts = alerts.counts();
            [counts.raised, counts.suppressed, counts.dropped, counts.sent, counts.failed]
        };
        self.add(TotalsSource { name: "alerts".to_owned(), totals, counts })
    }
}

struct ExecutorSource {
    name: String,
    executor: Executor,
    late: FollowedTotals<1>,
}

#[async_trait]
impl Source for ExecutorSource {
    fn name(&self) -> String {
        format!("executor:{}", self.name)
    }

    async fn read(&mut self, recording: &Recording) -> bool {
        self.late.follow([self.executor.counts().late()]);
        let labels = [&*self.name];
        recording.gauge(&catalogue::WAITERS, &labels).set(self.executor.waiting() as f64);
        recording.gauge(&catalogue::DRAINING, &labels).set(f64::from(u8::from(self.executor.is_draining())));
        true
    }
}
