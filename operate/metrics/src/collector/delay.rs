//! The sizes of delay queues and delay tables.
use std::time::Duration;

use async_trait::async_trait;

use super::MetricsCollector;
use super::source::Source;
use crate::catalogue;
use crate::recording::Recording;

impl MetricsCollector {
    /// Adds a delay table. Each reading [counts](idempotent_sqlx::DelayTable::counts) its tasks, so one process of a fleet is
    /// enough.
    #[cfg(all(feature = "delay", any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
    pub fn delay_table<Db: idempotent_sqlx::DelayDb>(
        self,
        name: impl Into<String>,
        table: &idempotent_sqlx::DelayTable<Db>,
    ) -> Self {
        self.add(DelaySource { name: name.into(), queue: table.clone() })
    }

    /// Adds a delay queue on Redis. Each reading [counts](idempotent_redis::DelayQueue::counts) its messages, so one process of
    /// a fleet is enough.
    #[cfg(feature = "delay-queue")]
    pub fn delay_queue(self, name: impl Into<String>, queue: &idempotent_redis::DelayQueue) -> Self {
        self.add(DelaySource { name: name.into(), queue: queue.clone() })
    }
}

/// A delay queue or table.
#[async_trait]
trait Delayed: Send + Sync {
    /// Returns the numbers of ready, waiting, held and dead messages, and the age of the oldest ready one.
    async fn sizes(&self) -> Option<([u64; 4], Option<Duration>)>;
}

#[cfg(all(feature = "delay", any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
#[async_trait]
impl<Db: idempotent_sqlx::DelayDb> Delayed for idempotent_sqlx::DelayTable<Db> {
    async fn sizes(&self) -> Option<([u64; 4], Option<Duration>)> {
        let counts = self.counts().await.ok()?;
        Some(([counts.ready, counts.waiting, counts.in_flight, counts.dead], counts.oldest))
    }
}

#[cfg(feature = "delay-queue")]
#[async_trait]
impl Delayed for idempotent_redis::DelayQueue {
    async fn sizes(&self) -> Option<([u64; 4], Option<Duration>)> {
        let counts = self.counts().await.ok()?;
        Some(([counts.ready, counts.waiting, counts.in_flight, counts.dead], counts.oldest))
    }
}

struct DelaySource<Q> {
    name: String,
    queue: Q,
}

impl<Q> DelaySource<Q> {
    fn set(&self, recording: &Recording, sizes: [f64; 4], oldest: f64) {
        for (state, size) in ["ready", "waiting", "in_flight", "dead"].into_iter().zip(sizes) {
            recording.gauge(&catalogue::DELAY_MESSAGES, &[&self.name, state]).set(size);
        }
        recording.gauge(&catalogue::DELAY_OLDEST, &[&self.name]).set(oldest);
    }
}

#[async_trait]
impl<Q: Delayed> Source for DelaySource<Q> {
    fn name(&self) -> String {
        format!("delay:{}", self.name)
    }

    async fn read(&mut self, recording: &Recording) -> bool {
        let Some((sizes, oldest)) = self.queue.sizes().await else { return false };
        self.set(recording, sizes.map(|size| size as f64), oldest.unwrap_or_default().as_secs_f64());
        true
    }

    fn set_unknown(&self, recording: &Recording) {
        self.set(recording, [f64::NAN; 4], f64::NAN);
    }
}
