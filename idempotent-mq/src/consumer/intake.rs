//! The intake: receives deliveries from the source, up to the prefetch.
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::__private::backoff::delay;
use tracing::{error, warn};

use super::job_queue::JobQueue;
use super::message_log::note;
use super::state::{ConsumerState, DeliveryJob, HeldDelivery, Phase};
use crate::time::{pause, within};
use crate::{Position, Received, Source, SourceError, SourceErrorKind};

pub(super) struct Intake<S: Source> {
    pub(super) source: S,
    pub(super) shared: Arc<ConsumerState<S::Tag>>,
    pub(super) queue: Arc<JobQueue<S::Tag>>,
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl<S: Source> Intake<S> {
    /// Runs until the consumer stops, or the source fails permanently.
    pub(super) async fn run(mut self) {
        let shared = self.shared.clone();
        tokio::select! {
            biased;
            () = shared.reached(Phase::Draining) => {}
            () = self.take() => {}
        }
        if within(shared.clock(), Duration::from_secs(1), self.source.close()).await.is_none() {
            warn!(target: "idempotent", group = &*shared.context.group, "consumer: the source did not close within 1 s");
        }
    }

    async fn take(&mut self) {
        let mut brake = Brake::default();
        loop {
            let most = self.shared.breaker.room().await;
            let room = self.shared.room().await.min(most);
            // The breaker may have opened while there was no room.
            if self.shared.breaker.rest().is_some() {
                continue;
            }
            match self.source.receive(room).await {
                Ok(Received::Deliveries(deliveries)) => {
                    brake.received(deliveries.len());
                    let received_at = self.shared.clock().wall();
                    let (entries, noted) = note(&self.shared, &deliveries).await;
                    for ((mut delivery, tag), entry) in deliveries.into_iter().zip(entries) {
                        delivery.received_at = received_at;
                        let held = HeldDelivery::new(delivery, tag, entry, noted, self.shared.breaker.clone());
                        let job = DeliveryJob::new(&self.shared, held);
                        self.shared.breaker.took();
                        self.queue.take(job);
                    }
                }
                Ok(Received::Revoked(areas)) => {
                    self.shared.revoke(&areas);
                    self.queue.drop_revoked();
                    if brake.is_vain(&areas, self.shared.counters.counts().settled()) {
                        rest(&self.shared, &mut brake, &vain()).await;
                    }
                }
                Err(error) if error.kind() == SourceErrorKind::Transient => {
                    rest(&self.shared, &mut brake, &error).await;
                }
                Err(broken) => {
                    self.shared.counters.source_errors();
                    error!(target: "idempotent", group = &*self.shared.context.group,
                        error = &broken as &(dyn std::error::Error + 'static), "consumer: the source failed permanently");
                    self.queue.fail(broken);
                    return;
                }
            }
        }
    }
}

fn vain() -> SourceError {
    SourceError::new(
        SourceErrorKind::Transient,
        "all deliveries were revoked before one of them was settled; see the log of the source for the reason",
    )
}

/// Counts and logs a failure, and waits.
async fn rest<Tag>(shared: &ConsumerState<Tag>, brake: &mut Brake, error: &SourceError) {
    shared.counters.source_errors();
    let failures = brake.failed(shared.counters.counts().settled(), shared.clock().now());
    let rest = delay(FIRST_PAUSE, LONGEST_PAUSE, failures - 1, 20, shared.bits());
    warn!(target: "idempotent", group = &*shared.context.group, failures, ?rest,
        error = error as &(dyn std::error::Error + 'static), "consumer: receiving failed; retrying");
    pause(shared.clock(), rest).await;
}

/// The failures in a row, which make the pauses of the intake longer. A row ends when a delivery is settled, when the source reports
/// that it has none, and after a minute without a failure.
#[derive(Debug, Default)]
struct Brake {
    failures: u32,
    last: Option<Instant>,
    /// The number of settled deliveries at the last failure or revocation.
    settled: u64,
    has_received: bool,
}

impl Brake {
    fn received(&mut self, deliveries: usize) {
        match deliveries {
            0 => self.failures = 0,
            _ => self.has_received = true,
        }
    }

    /// Returns true if a whole source revoked deliveries, and none was settled since the last failure or revocation. A connection
    /// that always ends before a settlement would otherwise be opened again without a pause. A partition may move at any time.
    fn is_vain(&mut self, areas: &[Position], settled: u64) -> bool {
        let is_source = areas.iter().any(|area| area.partition.is_none() && area.offset.is_none());
        let was_settled = std::mem::replace(&mut self.settled, settled) != settled;
        if was_settled {
            self.failures = 0;
        }
        std::mem::take(&mut self.has_received) && is_source && !was_settled
    }

    /// Returns the number of failures in a row, including this one.
    fn failed(&mut self, settled: u64, now: Instant) -> u32 {
        let was_settled = std::mem::replace(&mut self.settled, settled) != settled;
        let is_apart = self.last.is_some_and(|last| now.saturating_duration_since(last) > 2 * LONGEST_PAUSE);
        self.failures = if was_settled || is_apart { 1 } else { self.failures.saturating_add(1) };
        self.last = Some(now);
        self.failures
    }
}
