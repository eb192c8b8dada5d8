//! The state of an executor, and the counts of alerts.
use async_trait::async_trait;
use idempotent_core::{Alerts, Executor};

use super::MetricsCollector;
use super::source::{FollowedTotal, Source};
use crate::catalogue;
use crate::recording::Recording;

impl MetricsCollector {
    /// Adds an executor: its waiting calls, its late numbers, and whether it drains.
    pub fn executor(self, name: impl Into<String>, executor: &Executor) -> Self {
        let name = name.into();
        let late = FollowedTotal::new(self.recording.counter(&catalogue::ORDER_LATE, &[&name]));
        self.add(ExecutorSource { name, executor: executor.clone(), late })
    }

    /// Adds the counts of alerts.
    pub fn alerts(self, alerts: &Alerts) -> Self {
        let states = ["raised", "suppressed", "dropped", "sent", "failed"];
        let totals = states.map(|state| FollowedTotal::new(self.recording.counter(&catalogue::ALERTS, &[state])));
        self.add(AlertsSource { alerts: alerts.clone(), totals })
    }
}

struct ExecutorSource {
    name: String,
    executor: Executor,
    late: FollowedTotal,
}

#[async_trait]
impl Source for ExecutorSource {
    fn name(&self) -> String {
        format!("executor:{}", self.name)
    }

    async fn read(&mut self, recording: &Recording) -> bool {
        self.late.follow(self.executor.counts().late());
        let labels = [&*self.name];
        recording.gauge(&catalogue::WAITERS, &labels).set(self.executor.waiting() as f64);
        recording.gauge(&catalogue::DRAINING, &labels).set(f64::from(u8::from(self.executor.is_draining())));
        true
    }

    fn set_unknown(&self, _: &Recording) {}
}

struct AlertsSource {
    alerts: Alerts,
    totals: [FollowedTotal; 5],
}

#[async_trait]
impl Source for AlertsSource {
    fn name(&self) -> String {
        "alerts".to_owned()
    }

    async fn read(&mut self, _: &Recording) -> bool {
        let counts = self.alerts.counts();
        let counts = [counts.raised, counts.suppressed, counts.dropped, counts.sent, counts.failed];
        self.totals.iter_mut().zip(counts).for_each(|(total, count)| total.follow(count));
        true
    }

    fn set_unknown(&self, _: &Recording) {}
}
