//! Round upon round: the next messages are leased while those before them are sent and written down.
use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use idempotent_core::__private::backoff::delay;
use idempotent_core::{Entropy, OsEntropy};
use tracing::{debug, info, warn};

use super::round::LeasedBatch;
use super::{EAGER_DELAY, Relay, RelayCounts, RelayRound};
use crate::outbox::OutboxError;
use crate::outbox::database::OutboxDb;

const FIRST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// A look beside a round that found nothing is followed by a rest of so many times what it took.
const REST_FACTOR: u32 = 20;
/// Rounds under way: one is leased, one sent, one written down. A message whose predecessor in its aggregate is in one of them
/// is not leased, by whoever.
const MAX_ROUNDS: usize = 3;

/// What a part of a round came to.
enum RoundEvent {
    Taken(Result<Option<LeasedBatch>, OutboxError>),
    Worked(Result<RelayRound, OutboxError>),
}

/// When it looks for what is due.
#[derive(Clone, Copy)]
enum LookState {
    Now,
    /// It does. `again`: a round has ended meanwhile, and those behind its messages may have been passed over.
    Looking {
        again: bool,
    },
    At(Instant),
}

/// How soon it looks again.
#[derive(Debug, Default)]
struct LookSchedule {
    /// Rounds in a row that came to nothing, for want of a database or a broker.
    failures: u32,
    /// The last of them for want of a database.
    is_unavailable: bool,
    /// A message was written in this process; its transaction may be open.
    eager: Option<Duration>,
    /// When the last look began, if a round was under way.
    beside: Option<Instant>,
    /// Such a look found nothing: what is left stands behind what is under way, perhaps, and to find that out costs more the
    /// more there is. So until then no look beside a round; until a look does not find as many as it may.
    alone: Option<Instant>,
}

impl<Db: OutboxDb> Relay<Db> {
    /// Sends until `stop` ends; then it finishes the rounds it is in, within the [lease](Self::lease). It leases messages while
    /// those before them are sent and written down; those behind one of their aggregate wait until that is done. A look beside
    /// a sending that finds nothing is followed by a rest of twenty times what it took, a [poll](Self::poll) at most. A database
    /// or a broker that is away is tried again and again, with longer and longer rests, up to 30 s. Of a database that is away the
    /// log has one warning, and a line once it is back. After a round in which messages were refused and none was sent, the relay
    /// rests for 100 ms, or for a [poll](Self::poll) if that is shorter.
    ///
    /// # Cancellation
    /// Dropped, it leaves what it was just sending to its lease: others send it again then.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> RelayCounts {
        let mut stop = std::pin::pin!(stop);
        let mut steps: FuturesUnordered<BoxFuture<'_, RoundEvent>> = FuturesUnordered::new();
        let (mut schedule, mut look, mut stopped) = (LookSchedule::default(), LookState::Now, false);
        while !stopped || !steps.is_empty() {
            // One at a time finds out whether the database and the broker are back.
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
        let counts = self.counts();
        info!(target: "idempotent", outbox = self.outbox.0.table, ?counts, "relay stopped");
        counts
    }

    /// When it looks next, and what there is to send.
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
                // There may be more; else what is written next says so, or the end of this round.
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
        // Each of them is tried again in its own time; but where the broker is away there is no use in trying all others, too.
        if round.sent == 0 && round.failed > round.refused {
            return self.failed(schedule);
        }
        schedule.failures = 0;
        if round.sent == 0 && round.refused > 0 {
            return self.at(FIRST_REST.min(self.poll));
        }
        LookState::Now
    }

    /// Told once: an outage may be long.
    fn on_unavailable(&self, error: &OutboxError, schedule: &mut LookSchedule) -> LookState {
        let error = error as &(dyn std::error::Error + 'static);
        match schedule.is_unavailable {
            false => warn!(target: "idempotent", outbox = self.outbox.0.table, error, "a relay could not work"),
            true => debug!(target: "idempotent", outbox = self.outbox.0.table, error, "a relay cannot work yet"),
        }
        schedule.is_unavailable = true;
        self.failed(schedule)
    }

    fn on_available(&self, schedule: &mut LookSchedule) {
        if std::mem::take(&mut schedule.is_unavailable) {
            info!(target: "idempotent", outbox = self.outbox.0.table, "a relay works again");
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
