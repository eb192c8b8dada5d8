//! The decision how a delivery is settled. Pure functions, without I/O and clock.
use std::borrow::Cow;
use std::time::Duration;

use idempotent_core::{Disposition, Outcome, RunSummary};

use crate::handler::HandlerEnd;
use crate::{Delivery, HandlerResult, Schedule};

/// The decision about a delivery.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Decision {
    Ack,
    /// Delivers the message again after a delay.
    Retry {
        after: Duration,
        /// True after an attempt, and false for a deferral.
        attempt: bool,
        reason: Cow<'static, str>,
    },
    DeadLetter {
        reason: Cow<'static, str>,
    },
    /// Returns the message to the broker at once.
    GiveBack,
}

/// The settings of a consumer that influence decisions.
#[derive(Debug)]
pub(crate) struct SettlementRules {
    /// The retry schedule. `None` uses the executor's hints.
    pub(crate) schedule: Option<Schedule>,
    /// The limit of attempts that no claim counts.
    pub(crate) max_runs: Option<u32>,
    /// True if a keyed handler acknowledges a duplicate of a run in flight, provided that the sender resends the message. The run of
    /// an annotated handler reports its own choice.
    pub(crate) acks_in_flight: bool,
}

/// The circumstances of a decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionContext {
    /// The consumer is draining.
    pub(crate) stopping: bool,
    /// The sender resends the message if its run dies.
    pub(crate) resent: bool,
    /// The handler has begun.
    pub(crate) begun: bool,
}

impl SettlementRules {
    /// Decides about a delivery. `bits` must be random.
    pub(crate) fn decide(
        &self,
        ended: &HandlerEnd,
        delivery: &Delivery,
        DecisionContext { stopping, resent, begun }: DecisionContext,
        bits: impl FnOnce() -> u128,
    ) -> Decision {
        let Some(RunSummary { outcome, attempt, acks_in_flight, .. }) = &ended.captured else {
            return self.by_verdict(&ended.verdict, delivery, bits);
        };
        match outcome {
            // The run succeeded, but the code around it may have failed.
            Outcome::Ran | Outcome::Unprotected | Outcome::Replayed => self.by_verdict(&ended.verdict, delivery, bits),
            Outcome::Released { retry_after } => {
                let attempt = attempt.or(delivery.attempt).unwrap_or(1);
                let after = self.schedule.as_ref().map_or(*retry_after, |schedule| schedule.after(attempt, bits()));
                retry(after.max(ended.verdict.asks_for()), true, "the handler failed")
            }
            Outcome::InFlight { .. } if (self.acks_in_flight || *acks_in_flight) && resent => Decision::Ack,
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
                Disposition::Retry { after } => retry(after, begun && is_attempt(other), other.name()),
                // A variant of a later version is not known to mean success.
                _ => retry(SOON, false, other.name()),
            },
        }
    }

    /// Decides by the handler's result. Only the message itself counts these attempts.
    fn by_verdict(&self, verdict: &HandlerResult, delivery: &Delivery, bits: impl FnOnce() -> u128) -> Decision {
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
                let after = schedule.after(delivery.attempt.unwrap_or(1), bits());
                retry(after.max(verdict.asks_for()), true, "the handler failed")
            }
        }
    }
}

const SOON: Duration = Duration::from_secs(1);

fn retry(after: Duration, attempt: bool, reason: &'static str) -> Decision {
    Decision::Retry { after, attempt, reason: Cow::Borrowed(reason) }
}

/// Returns true if the handler may have run.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Position;

    /// Returns the decision about the first delivery of a message whose handler returned "done".
    fn decision(outcome: Outcome, stopping: bool) -> Decision {
        let rules = SettlementRules { schedule: None, max_runs: None, acks_in_flight: false };
        let captured = Some(RunSummary::new(outcome, None, None));
        let ended = HandlerEnd { captured, verdict: HandlerResult::Done, rejection: None };
        let delivery = Delivery::new(Position::of("orders"), Vec::new());
        rules.decide(&ended, &delivery, DecisionContext { stopping, resent: false, begun: true }, || 0)
    }

    #[test]
    fn a_duplicate_without_a_result_is_acknowledged() {
        for outcome in [Outcome::Replayed, Outcome::ConsumedWithoutResult, Outcome::Duplicate] {
            assert_eq!(decision(outcome.clone(), false), Decision::Ack, "{outcome:?}");
        }
    }

    #[test]
    fn a_consumer_that_drains_returns_what_has_not_run() {
        let after = Duration::from_secs(7);
        for outcome in [Outcome::Draining { retry_after: after }, Outcome::Abandoned, Outcome::Cancelled] {
            assert_eq!(decision(outcome.clone(), true), Decision::GiveBack, "{outcome:?}");
            assert!(matches!(decision(outcome, false), Decision::Retry { .. }));
        }
        assert_eq!(
            decision(Outcome::InFlight { retry_after: after }, true),
            Decision::Retry { after, attempt: false, reason: Outcome::InFlight { retry_after: after }.name().into() }
        );
    }
}
