//! Settling with retries. A settlement is never replaced by an acknowledgement.
use std::borrow::Cow;
use std::time::Duration;

use tracing::{error, warn};

use super::state::{ConsumerState, DeliveryJob, Phase};
use crate::consumer::counts::DeliveryEnd;
use crate::time::{pause, within};
use crate::{DeadLetter, Retry, Settlement, SourceError, SourceErrorKind};

/// The timeout for an answer of the source.
const ANSWER: Duration = Duration::from_secs(5);
/// The limit for all attempts. The broker closes a dead connection about then.
const PATIENCE: Duration = Duration::from_secs(15);
/// The delay of a message whose dead letter the source refuses.
const LATER: Duration = Duration::from_secs(300);

/// The result of a settlement.
pub(super) enum SettleResult {
    AsDecided,
    /// The source accepted this other settlement.
    Otherwise(Settlement, DeliveryEnd),
    /// The delivery was not settled. The broker delivers the message again.
    Not,
    /// The source refused permanently, and may refuse all other settlements.
    Refused(SourceError),
}

/// Settles a delivery.
pub(super) async fn settle<Tag: Send + Sync + 'static>(
    job: &DeliveryJob<Tag>,
    settlement: &Settlement,
) -> SettleResult {
    let shared = &job.shared;
    // A drain does not wait for an unavailable broker.
    let over = async {
        shared.reached(Phase::Closing).await;
        pause(shared.clock(), ConsumerState::<Tag>::AFTER_CLOSE).await;
    };
    let tries = async {
        let refused = match insist(job, settlement).await {
            Ok(()) => return SettleResult::AsDecided,
            Err(failed) if !is_refusal(&failed) => return SettleResult::Not,
            Err(refused) => refused,
        };
        let (other, end) = match settlement {
            Settlement::DeadLetter(letter) => (retry_instead(job, letter), DeliveryEnd::Deferred),
            Settlement::Retry(retry) if refused.kind() == SourceErrorKind::Refused => {
                (dead_letter_instead(job, retry, &refused), DeliveryEnd::DeadLettered)
            }
            // Nothing is left to try.
            Settlement::GiveBack => return SettleResult::Not,
            _ => return SettleResult::Refused(refused),
        };
        match insist(job, &other).await {
            Ok(()) => SettleResult::Otherwise(other, end),
            Err(refused) if refused.kind() == SourceErrorKind::Fatal => SettleResult::Refused(refused),
            Err(_) => SettleResult::Not,
        }
    };
    tokio::select! {
        biased;
        settled = tries => settled,
        () = over => SettleResult::Not,
    }
}

/// Returns true if the same settlement would be refused again.
fn is_refusal(error: &SourceError) -> bool {
    matches!(error.kind(), SourceErrorKind::Refused | SourceErrorKind::Fatal)
}

/// Returns the dead letter that replaces the refused retry of one message.
fn dead_letter_instead<Tag>(job: &DeliveryJob<Tag>, retry: &Retry, refused: &SourceError) -> Settlement {
    let delivery = job.delivery();
    let reason = format!("{}, and a retry is impossible: {refused}", retry.reason);
    let mut letter = DeadLetter::because(reason, job.shared.clock().wall());
    letter.attempts = delivery.attempt.or(delivery.delivered).unwrap_or(1).max(1);
    (letter.first_at, letter.deaths) = (retry.first_at, delivery.deaths.saturating_add(1));
    Settlement::DeadLetter(letter)
}

/// Returns the retry that replaces a refused dead letter, so that the message is neither lost nor stuck.
fn retry_instead<Tag>(job: &DeliveryJob<Tag>, letter: &DeadLetter) -> Settlement {
    let shared = &job.shared;
    Settlement::Retry(Retry {
        after: shared.postponed.step(job.delivery(), LATER, shared.clock().now()),
        attempt: job.delivery().attempt.unwrap_or(1),
        first_at: letter.first_at,
        reason: Cow::Borrowed("the dead letter was refused"),
    })
}

async fn insist<Tag: Send + Sync + 'static>(
    job: &DeliveryJob<Tag>,
    settlement: &Settlement,
) -> Result<(), SourceError> {
    let (shared, held) = (&job.shared, &job.held);
    let deadline = shared.clock().now() + PATIENCE;
    let mut rest = Duration::from_millis(100);
    loop {
        let asked = shared.settler.settle(&held.delivery, &held.tag, settlement);
        let answer = within(shared.clock(), ANSWER, asked).await;
        let failed = match answer.unwrap_or_else(|| Err(unanswered())) {
            Ok(()) => return Ok(()),
            Err(failed) => failed,
        };
        shared.counters.source_errors();
        tell(&shared.context.group, settlement, &failed);
        let worth_it = failed.kind() == SourceErrorKind::Transient;
        if !worth_it || shared.clock().now() + rest >= deadline || held.is_revoked() {
            return Err(failed);
        }
        pause(shared.clock(), rest).await;
        rest = (rest * 2).min(Duration::from_secs(3));
    }
}

fn tell(group: &str, settlement: &Settlement, failed: &SourceError) {
    let (how, error) = (settlement.name(), failed as &(dyn std::error::Error + 'static));
    match failed.kind() {
        SourceErrorKind::Transient => warn!(target: "idempotent", group, how, error, "settling failed"),
        SourceErrorKind::Gone => warn!(target: "idempotent", group, how, error, "too late to settle"),
        SourceErrorKind::Refused | SourceErrorKind::Fatal => {
            error!(target: "idempotent", group, how, error, "settling refused");
        }
    }
}

fn unanswered() -> SourceError {
    SourceError::new(SourceErrorKind::Transient, "no answer within 5 s")
}
