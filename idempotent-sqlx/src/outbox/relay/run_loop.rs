//! Round upon round: the next messages are leased while those before them are sent and written down.
use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use idempotent_core::__private::backoff::delay;
use idempotent_core::{Entropy, OsEntropy};
use tracing::{debug, info, warn};

use super::round::Batch;
use super::{EAGER, Relay, RelayCounts, RelayRound};
use crate::outbox::OutboxError;
use crate::outbox::database::OutboxDb;

const FIRST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// A look beside a round that found nothing is followed by a rest of so many times what it took.
const RESTS: u32 = 20;
/// Rounds under way: one is leased, one sent, one written down. A message whose predecessor in its aggregate is in one of them
/// is not leased, by whoever.
const SIDE_BY_SIDE: usize = 3;

/// What a part of a round came to.
enum Step {
    Taken(Result<Option<Batch>, OutboxError>),
    Worked(Result<RelayRound, OutboxError>),
}

/// When it looks for what is due.
#[derive(Clone, Copy)]
enum Look {
    Now,
    /// It does. `again`: a round has ended meanwhile, and those behind its messages may have been passed over.
    Looking {
        again: bool,
    },
    At(Instant),
}

/// How soon it looks again.
#[derive(Debug, Default)]
struct Pace {
    /// Rounds in a row that came to nothing, for want of a database or a broker.
    failures: u32,
    /// The last of them for want of a database.
    is_away: bool,
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
        let mut steps: FuturesUnordered<BoxFuture<'_, Step>> = FuturesUnordered::new();
        let (mut pace, mut look, mut stopped) = (Pace::default(), Look::Now, false);
        while !stopped || !steps.is_empty() {
            // One at a time finds out whether the database and the broker are back.
            let most = if pace.failures == 0 { SIDE_BY_SIDE } else { 1 };
            let now = self.clock.now();
            if let (Look::Now, Some(end)) = (look, pace.alone.filter(|end| now < *end && !steps.is_empty())) {
                look = Look::At(end);
            }
            if matches!(look, Look::Now) && !stopped && steps.len() < most {
                pace.beside = (!steps.is_empty()).then_some(now);
                steps.push(Box::pin(async { Step::Taken(self.take().await) }));
                look = Look::Looking { again: false };
            }
            let rests = matches!(look, Look::At(_)) && !stopped;
            let rested = async {
                match look {
                    Look::At(end) => self.clock.sleep_until(end).await,
                    _ => std::future::pending().await,
                }
            };
            let written = self.outbox.0.written.notified();
            tokio::select! {
                biased;
                () = &mut stop, if !stopped => stopped = true,
                Some(step) = steps.next() => {
                    let (next, batch) = self.after(step, look, &mut pace);
                    look = next;
                    if let Some(batch) = batch {
                        steps.push(Box::pin(async { Step::Worked(self.work(batch).await) }));
                    }
                }
                () = written, if rests && pace.failures == 0 => (pace.eager, look) = (Some(EAGER), Look::Now),
                () = rested, if rests => look = Look::Now,
            }
        }
        let counts = self.counts();
        info!(target: "idempotent", outbox = self.outbox.0.table, ?counts, "relay stopped");
        counts
    }

    /// When it looks next, and what there is to send.
    fn after(&self, step: Step, look: Look, pace: &mut Pace) -> (Look, Option<Batch>) {
        let again = matches!(look, Look::Looking { again: true });
        match step {
            Step::Taken(Err(error)) => (self.away(&error, pace), None),
            Step::Taken(Ok(None)) => {
                self.back(pace);
                pace.failures = 0;
                let now = self.clock.now();
                let rest = |began| now.saturating_duration_since(began).saturating_mul(RESTS).min(self.poll).max(EAGER);
                pace.alone = pace.beside.map(|began| now + rest(began));
                (if again { Look::Now } else { self.idle(pace) }, None)
            }
            Step::Taken(Ok(Some(batch))) => {
                // There may be more; else what is written next says so, or the end of this round.
                let is_full = u32::try_from(batch.leased.len()).is_ok_and(|leased| leased >= self.batch);
                pace.alone = pace.alone.filter(|_| is_full);
                (if is_full || again || pace.failures > 0 { Look::Now } else { self.idle(pace) }, Some(batch))
            }
            Step::Worked(worked) => {
                let next = self.worked(&worked, pace);
                (if matches!(look, Look::Looking { .. }) { Look::Looking { again: true } } else { next }, None)
            }
        }
    }

    fn worked(&self, worked: &Result<RelayRound, OutboxError>, pace: &mut Pace) -> Look {
        let round = match worked {
            Ok(round) => round,
            Err(error) => return self.away(error, pace),
        };
        self.back(pace);
        // Each of them is tried again in its own time; but where the broker is away there is no use in trying all others, too.
        if round.sent == 0 && round.failed > round.refused {
            return self.failed(pace);
        }
        pace.failures = 0;
        if round.sent == 0 && round.refused > 0 {
            return self.at(FIRST_REST.min(self.poll));
        }
        Look::Now
    }

    /// Told once: an outage may be long.
    fn away(&self, error: &OutboxError, pace: &mut Pace) -> Look {
        let error = error as &(dyn std::error::Error + 'static);
        match pace.is_away {
            false => warn!(target: "idempotent", outbox = self.outbox.0.table, error, "a relay could not work"),
            true => debug!(target: "idempotent", outbox = self.outbox.0.table, error, "a relay cannot work yet"),
        }
        pace.is_away = true;
        self.failed(pace)
    }

    fn back(&self, pace: &mut Pace) {
        if std::mem::take(&mut pace.is_away) {
            info!(target: "idempotent", outbox = self.outbox.0.table, "a relay works again");
        }
    }

    fn failed(&self, pace: &mut Pace) -> Look {
        pace.failures = pace.failures.saturating_add(1);
        self.at(delay(FIRST_REST, LONGEST_REST, pace.failures - 1, 20, OsEntropy.bits().unwrap_or_default()))
    }

    fn idle(&self, pace: &mut Pace) -> Look {
        match pace.eager {
            Some(eager) if eager < self.poll => {
                pace.eager = Some(eager * 2);
                self.at(eager)
            }
            _ => {
                pace.eager = None;
                self.at(delay(self.poll, self.poll, 0, 20, OsEntropy.bits().unwrap_or_default()))
            }
        }
    }

    fn at(&self, rest: Duration) -> Look {
        Look::At(self.clock.now() + rest)
    }
}
