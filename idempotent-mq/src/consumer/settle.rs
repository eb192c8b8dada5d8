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
    /// In a different way.
    Otherwise(DeliveryEnd),
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
        let failed = match insist(job, settlement).await {
            Ok(()) => return SettleResult::AsDecided,
            Err(failed) if failed.kind() != SourceErrorKind::Fatal => return SettleResult::Not,
            Err(refused) => refused,
        };
        match settlement {
            Settlement::DeadLetter(letter) => match insist(job, &instead_of(job, letter)).await {
                Ok(()) => SettleResult::Otherwise(DeliveryEnd::Deferred),
                Err(refused) if refused.kind() == SourceErrorKind::Fatal => SettleResult::Refused(refused),
                Err(_) => SettleResult::Not,
            },
            // Nothing is left to try.
            Settlement::GiveBack => SettleResult::Not,
            _ => SettleResult::Refused(failed),
        }
    };
    tokio::select! {
        biased;
        settled = tries => settled,
        () = over => SettleResult::Not,
    }
}

/// Returns the retry that replaces a refused dead letter, so that the message is neither lost nor stuck.
fn instead_of<Tag>(job: &DeliveryJob<Tag>, letter: &DeadLetter) -> Settlement {
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
        SourceErrorKind::Fatal => error!(target: "idempotent", group, how, error, "settling refused"),
    }
}

fn unanswered() -> SourceError {
    SourceError::new(SourceErrorKind::Transient, "no answer within 5 s")
}
