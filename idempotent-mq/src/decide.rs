//! How a delivery is settled by what its run came to. Pure: no I/O, no clock.
use std::borrow::Cow;
use std::time::Duration;

use idempotent_core::{Disposition, Outcome, RunSummary};

use crate::work::Ended;
use crate::{Delivery, HandlerResult, Schedule};

/// What is to become of a delivery.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Decision {
    Ack,
    /// Again after this.
    Retry {
        after: Duration,
        /// Whether this was an attempt, or the delivery was only put off.
        attempt: bool,
        reason: Cow<'static, str>,
    },
    DeadLetter {
        reason: Cow<'static, str>,
    },
    /// At once, to others.
    GiveBack,
}

/// What a consumer has to say about it.
#[derive(Debug)]
pub(crate) struct Rules {
    /// `None`: the executor's hints stand.
    pub(crate) schedule: Option<Schedule>,
    /// For attempts that no claim counts.
    pub(crate) max_runs: Option<u32>,
    /// A duplicate of a run in flight is acknowledged if its sender resends the message should that run die.
    pub(crate) acks_in_flight: bool,
}

/// The circumstances of a decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// This consumer takes no more deliveries.
    pub(crate) stopping: bool,
    /// The sender sends the message again if its run dies.
    pub(crate) resent: bool,
}

impl Rules {
    /// Returns what becomes of a delivery. `bits` are random.
    pub(crate) fn decide(
        &self,
        ended: &Ended,
        delivery: &Delivery,
        Circumstances { stopping, resent }: Circumstances,
        bits: u128,
    ) -> Decision {
        let Some(RunSummary { outcome, attempt, .. }) = &ended.captured else {
            return self.by_verdict(&ended.verdict, delivery, bits);
        };
        match outcome {
            // The run went well; the code around it may not have.
            Outcome::Ran | Outcome::Unprotected | Outcome::Replayed => self.by_verdict(&ended.verdict, delivery, bits),
            Outcome::Released { retry_after } => {
                let attempt = attempt.or(delivery.attempt).unwrap_or(1);
                let after = self.schedule.as_ref().map_or(*retry_after, |schedule| schedule.after(attempt, bits));
                retry(after.max(ended.verdict.asks_for()), true, "the handler failed")
            }
            Outcome::InFlight { .. } if self.acks_in_flight && resent => Decision::Ack,
            Outcome::Draining { .. } | Outcome::Abandoned | Outcome::Cancelled if stopping => Decision::GiveBack,
            Outcome::Dead { .. } => Decision::DeadLetter {
                reason: ended.rejection.clone().map_or(Cow::Borrowed("out of attempts"), Cow::Owned),
            },
            other => match other.disposition() {
                Disposition::Ack => Decision::Ack,
                Disposition::DeadLetter { reason } => Decision::DeadLetter {
                    reason: match (&ended.verdict, &ended.rejection) {
                        (HandlerResult::Never { reason }, _) => reason.clone(),
                        (_, Some(text)) => text.clone().into(),
                        _ => reason,
                    },
                },
                Disposition::Retry { after } => retry(after, is_attempt(other), other.name()),
                // One that a later version adds is not known to be done.
                _ => retry(SOON, false, other.name()),
            },
        }
    }

    /// Nobody but the message itself counts these attempts.
    fn by_verdict(&self, verdict: &HandlerResult, delivery: &Delivery, bits: u128) -> Decision {
        match verdict {
            HandlerResult::Done => Decision::Ack,
            HandlerResult::Never { reason } => Decision::DeadLetter { reason: reason.clone() },
            HandlerResult::Again { .. } if self.max_runs.zip(delivery.attempt).is_some_and(|(most, at)| at >= most) => {
                let reason = match delivery.attempt.unwrap_or_default() {
                    1 => Cow::Borrowed("out of attempts: failed once"),
                    times => format!("out of attempts: failed {times} times").into(),
                };
                Decision::DeadLetter { reason }
            }
            HandlerResult::Again { .. } => {
                let fallback = Schedule::default();
                let schedule = self.schedule.as_ref().unwrap_or(&fallback);
                let after = schedule.after(delivery.attempt.unwrap_or(1), bits);
                retry(after.max(verdict.asks_for()), true, "the handler failed")
            }
        }
    }
}

const SOON: Duration = Duration::from_secs(1);

fn retry(after: Duration, attempt: bool, reason: &'static str) -> Decision {
    Decision::Retry { after, attempt, reason: Cow::Borrowed(reason) }
}

/// Whether the handler ran, as far as anybody knows.
fn is_attempt(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::LeaseLost | Outcome::Unrecorded | Outcome::Abandoned)
}

impl HandlerResult {
    fn asks_for(&self) -> Duration {
        match self {
            Self::Again { after: Some(after), .. } => *after,
            _ => Duration::ZERO,
        }
    }
}
