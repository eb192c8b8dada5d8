//! The loop of a relay: a batch is leased while earlier ones are sent and recorded.
use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use idempotent_core::__private::backoff::delay;
use idempotent_core::{Entropy, OsEntropy};
use tracing::{debug, info, warn};

use super::round::LeasedBatch;
use super::{EAGER_DELAY, MAX_ALERTING, Relay, RelayCounts, RelayRound};
use crate::outbox::OutboxError;
use crate::outbox::database::OutboxDb;

const FIRST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// After a look during a round that found nothing, the relay rests for this many times the duration of the look.
const REST_FACTOR: u32 = 20;
/// The maximum number of concurrent rounds: one is leased, one sent, one recorded. While a message is part of a
/// round, no relay leases the later messages of its aggregate.
const MAX_ROUNDS: usize = 3;

/// The result of a part of a round.
enum RoundEvent {
    Taken(Result<Option<LeasedBatch>, OutboxError>),
    Worked(Result<RelayRound, OutboxError>),
}

/// The time of the next look for due messages.
#[derive(Clone, Copy)]
enum LookState {
    Now,
    /// The relay is looking. `again`: a round has ended in the meantime, so the look may have skipped the messages
    /// that waited for it.
    Looking {
        again: bool,
    },
    At(Instant),
}

/// The state from which the relay derives the time of the next look.
#[derive(Debug, Default)]
struct LookSchedule {
    /// The number of consecutive rounds that failed because the database or the broker was unavailable.
    failures: u32,
    /// The last failure was that of the database.
    is_unavailable: bool,
    /// The next delay after a message was written in this process: its transaction may be open.
    eager: Option<Duration>,
    /// The start of the last look, if a round was running at that time.
    beside: Option<Instant>,
    /// A look during a round found nothing: the remaining messages may wait for those of the round, and each look
    /// costs more the more messages remain. Until this time the relay looks only between rounds, unless a look finds
    /// fewer messages than a batch has.
    alone: Option<Instant>,
}

impl<Db: OutboxDb> Relay<Db> {
    /// Sends messages until `stop` completes, and then finishes the running rounds, within the [lease](Self::lease), and waits for the
    /// alerts of given-up messages.
    /// The relay leases messages while earlier ones are sent and recorded; later messages of an aggregate wait for
    /// earlier ones. After a look during a round that finds nothing, the relay rests for twenty times the duration of
    /// the look, at most one [poll](Self::poll). If the database or the broker is unavailable, the relay retries with
    /// growing delays of up to 30 s. An outage of the database is logged once as a warning, and its end once. After a
    /// round in which messages were refused and none was sent, the relay rests for 100 ms, or for a
    /// [poll](Self::poll) if that is shorter.
    ///
    /// # Cancellation
    /// Messages that were being sent stay leased, and another relay sends them again once the leases expire.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> RelayCounts {
        let mut stop = std::pin::pin!(stop);
        let mut steps: FuturesUnordered<BoxFuture<'_, RoundEvent>> = FuturesUnordered::new();
        let (mut schedule, mut look, mut stopped) = (LookSchedule::default(), LookState::Now, false);
        while !stopped || !steps.is_empty() {
            // A single round checks whether the database and the broker are available again.
            let most = if schedule.failures == 0 { MAX_ROUNDS } else { 1 };
            let now = self.clock.now();
            if let (LookState::Now, Some(end)) = (look, schedule.alone.filter(|end| now < *end && !steps.is_empty())) {
                look = LookState::At(end);
            }
            if matches!(look, LookState::Now) && !stopped && steps.len() < most {
                schedule.beside = (!steps.is_empty()).then_some(now);
                steps.push(Box::pin(async { RoundEvent::Taken(self.take().await) }));
                look = LookState::Looking { again: false };
            }
            let rests = matches!(look, LookState::At(_)) && !stopped;
            let rested = async {
                match look {
                    LookState::At(end) => self.clock.sleep_until(end).await,
                    _ => std::future::pending().await,
                }
            };
            let written = self.outbox.0.written.notified();
            tokio::select! {
                biased;
                () = &mut stop, if !stopped => stopped = true,
                Some(step) = steps.next() => {
                    let (next, batch) = self.after(step, look, &mut schedule);
                    look = next;
                    if let Some(batch) = batch {
                        steps.push(Box::pin(async { RoundEvent::Worked(self.work(batch).await) }));
                    }
                }
                () = written, if rests && schedule.failures == 0 => (schedule.eager, look) = (Some(EAGER_DELAY), LookState::Now),
                () = rested, if rests => look = LookState::Now,
            }
        }
        // Given-up messages are marked after their alerts. Otherwise, another relay would send the alerts again.
        drop(self.alerting.acquire_many(MAX_ALERTING).await);
        let counts = self.counts();
        let happened = |count: u64| (count > 0).then_some(count);
        info!(target: "idempotent", outbox = self.outbox.0.table, sent = happened(counts.sent), failed = happened(counts.failed),
            given_up = happened(counts.given_up), alerts_failed = happened(counts.alerts_failed), "relay stopped");
        counts
    }

    /// Returns the time of the next look, and the batch to send.
    fn after(
        &self,
        step: RoundEvent,
        look: LookState,
        schedule: &mut LookSchedule,
    ) -> (LookState, Option<LeasedBatch>) {
        let again = matches!(look, LookState::Looking { again: true });
        match step {
            RoundEvent::Taken(Err(error)) => (self.on_unavailable(&error, schedule), None),
            RoundEvent::Taken(Ok(None)) => {
                self.on_available(schedule);
                schedule.failures = 0;
                let now = self.clock.now();
                let rest = |began| {
                    now.saturating_duration_since(began).saturating_mul(REST_FACTOR).min(self.poll).max(EAGER_DELAY)
                };
                schedule.alone = schedule.beside.map(|began| now + rest(began));
                (if again { LookState::Now } else { self.idle(schedule) }, None)
            }
            RoundEvent::Taken(Ok(Some(batch))) => {
                // More messages may be due. Otherwise the next write or the end of this round triggers a look.
                let is_full = u32::try_from(batch.leased.len()).is_ok_and(|leased| leased >= self.batch);
                schedule.alone = schedule.alone.filter(|_| is_full);
                (
                    if is_full || again || schedule.failures > 0 { LookState::Now } else { self.idle(schedule) },
                    Some(batch),
                )
            }
            RoundEvent::Worked(worked) => {
                let next = self.worked(&worked, schedule);
                (
                    if matches!(look, LookState::Looking { .. }) { LookState::Looking { again: true } } else { next },
                    None,
                )
            }
        }
    }

    fn worked(&self, worked: &Result<RelayRound, OutboxError>, schedule: &mut LookSchedule) -> LookState {
        let round = match worked {
            Ok(round) => round,
            Err(error) => return self.on_unavailable(error, schedule),
        };
        self.on_available(schedule);
        // Each message is retried at its own time; while the broker is unavailable, trying the others is pointless.
        if round.sent == 0 && round.failed > round.refused {
            return self.failed(schedule);
        }
        schedule.failures = 0;
        if round.sent == 0 && round.refused > 0 {
            return self.at(FIRST_REST.min(self.poll));
        }
        LookState::Now
    }

    /// Logs the first failure of an outage as a warning, and later ones at debug level.
    fn on_unavailable(&self, error: &OutboxError, schedule: &mut LookSchedule) -> LookState {
        let error = error as &(dyn std::error::Error + 'static);
        match schedule.is_unavailable {
            false => warn!(target: "idempotent", outbox = self.outbox.0.table, error, "relay round failed"),
            true => debug!(target: "idempotent", outbox = self.outbox.0.table, error, "relay round failed again"),
        }
        schedule.is_unavailable = true;
        self.failed(schedule)
    }

    fn on_available(&self, schedule: &mut LookSchedule) {
        if std::mem::take(&mut schedule.is_unavailable) {
            info!(target: "idempotent", outbox = self.outbox.0.table, "relay recovered");
        }
    }

    fn failed(&self, schedule: &mut LookSchedule) -> LookState {
        schedule.failures = schedule.failures.saturating_add(1);
        self.at(delay(FIRST_REST, LONGEST_REST, schedule.failures - 1, 20, OsEntropy.bits().unwrap_or_default()))
    }

    fn idle(&self, schedule: &mut LookSchedule) -> LookState {
        match schedule.eager {
            Some(eager) if eager < self.poll => {
                schedule.eager = Some(eager * 2);
                self.at(eager)
            }
            _ => {
                schedule.eager = None;
                self.at(delay(self.poll, self.poll, 0, 20, OsEntropy.bits().unwrap_or_default()))
            }
        }
    }

    fn at(&self, rest: Duration) -> LookState {
        LookState::At(self.clock.now() + rest)
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used)]
#[path = "run_loop_tests.rs"]
mod tests;
