//! Taking deliveries from the source, as many as there is room for.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::__private::backoff::delay;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tracing::{error, warn};

use super::log::note;
use super::shared::{Held, Job, Phase, Shared};
use crate::time::{pause, within};
use crate::{Received, Source, SourceError, SourceErrorKind};

/// What intake has to say to the dispatcher, in the order it happened.
pub(super) enum News<Tag> {
    Job(Job<Tag>),
    /// Some of those handed over are somebody else's.
    Revoked,
    /// There will be nothing more.
    Broken(SourceError),
}

pub(super) struct Intake<S: Source> {
    pub(super) source: S,
    pub(super) shared: Arc<Shared<S::Tag>>,
    /// One for each delivery that may be held.
    pub(super) places: Arc<Semaphore>,
    pub(super) news: mpsc::UnboundedSender<News<S::Tag>>,
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl<S: Source> Intake<S> {
    /// Until the consumer stops, or the source fails for good.
    pub(super) async fn run(mut self) {
        let shared = self.shared.clone();
        tokio::select! {
            biased;
            () = shared.reached(Phase::Draining) => {}
            () = self.take() => {}
        }
        if within(shared.clock(), Duration::from_secs(1), self.source.close()).await.is_none() {
            warn!(target: "idempotent", group = &*shared.desk.group, "the source did not close within a second");
        }
    }

    async fn take(&mut self) {
        let (mut number, mut failures) = (0, 0u32);
        loop {
            let most = self.shared.breaker.room().await;
            let Some(mut places) = free(self.places.clone(), most).await else { return };
            // It may have closed while there was no place.
            if self.shared.breaker.rest().is_some() {
                continue;
            }
            match self.source.receive(places.len()).await {
                Ok(Received::Deliveries(deliveries)) => {
                    failures = 0;
                    let (entries, noted) = note(&self.shared, &deliveries).await;
                    for ((mut delivery, tag), entry) in deliveries.into_iter().zip(entries) {
                        number += 1;
                        delivery.received_at = self.shared.clock().wall();
                        let job = Job::new(&self.shared, Held::new(delivery, tag, entry, noted), number, places.pop());
                        self.shared.breaker.took();
                        self.tell(News::Job(job));
                    }
                }
                Ok(Received::Revoked(areas)) => {
                    failures = 0;
                    self.shared.revoke(&areas);
                    self.tell(News::Revoked);
                }
                Err(error) if error.kind() == SourceErrorKind::Transient => {
                    failures = failures.saturating_add(1);
                    drop(places);
                    rest(&self.shared, &error, failures).await;
                }
                Err(broken) => {
                    self.shared.counters.source_errors();
                    error!(target: "idempotent", group = &*self.shared.desk.group,
                        error = &broken as &(dyn std::error::Error + 'static), "the source failed for good");
                    self.tell(News::Broken(broken));
                    return;
                }
            }
        }
    }

    fn tell(&self, news: News<S::Tag>) {
        // The dispatcher outlives intake; where it does not, the process is going down.
        let _ = self.news.send(news);
    }
}

/// All places that are free, at least one, at most so many.
async fn free(all: Arc<Semaphore>, most: usize) -> Option<Vec<OwnedSemaphorePermit>> {
    // Never closed: `None` only if it were.
    let mut places = vec![all.clone().acquire_owned().await.ok()?];
    while places.len() < most
        && let Ok(place) = all.clone().try_acquire_owned()
    {
        places.push(place);
    }
    Some(places)
}

async fn rest<Tag>(shared: &Shared<Tag>, error: &SourceError, failures: u32) {
    shared.counters.source_errors();
    let rest = delay(FIRST_PAUSE, LONGEST_PAUSE, failures - 1, 20, shared.bits());
    warn!(target: "idempotent", group = &*shared.desk.group, failures, ?rest,
        error = error as &(dyn std::error::Error + 'static), "receiving failed");
    pause(shared.clock(), rest).await;
}
