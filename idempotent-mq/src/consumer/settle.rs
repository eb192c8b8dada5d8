//! Telling the source, as often as it takes; never something milder than what was decided.
use std::borrow::Cow;
use std::time::Duration;

use tracing::{error, warn};

use super::shared::{Job, Phase, Shared};
use crate::counts::End;
use crate::time::{pause, within};
use crate::{DeadLetter, Retry, Settlement, SourceError, SourceErrorKind};

/// A source that does not answer in this time is asked again.
const ANSWER: Duration = Duration::from_secs(5);
/// No longer than this in all: the broker has given up on the connection by then, or will.
const PATIENCE: Duration = Duration::from_secs(15);
/// When a message comes again whose dead letter the source refuses.
const LATER: Duration = Duration::from_secs(300);

/// How telling the source went.
pub(super) enum Settled {
    AsDecided,
    /// In another way.
    Otherwise(End),
    /// Not at all: the broker delivers it again by itself.
    Not,
    /// It is refused for good, and so may all others be.
    Refused(SourceError),
}

/// Settles a delivery.
pub(super) async fn settle<Tag: Send + Sync + 'static>(job: &Job<Tag>, settlement: &Settlement) -> Settled {
    let shared = &job.shared;
    // A drain does not wait for a broker that is away.
    let over = async {
        shared.reached(Phase::Closing).await;
        pause(shared.clock(), Shared::<Tag>::AFTER_CLOSE).await;
    };
    let tries = async {
        let failed = match insist(job, settlement).await {
            Ok(()) => return Settled::AsDecided,
            Err(failed) if failed.kind() != SourceErrorKind::Fatal => return Settled::Not,
            Err(refused) => refused,
        };
        match settlement {
            Settlement::DeadLetter(letter) => match insist(job, &instead_of(job, letter)).await {
                Ok(()) => Settled::Otherwise(End::Deferred),
                Err(refused) if refused.kind() == SourceErrorKind::Fatal => Settled::Refused(refused),
                Err(_) => Settled::Not,
            },
            // There is nothing milder.
            Settlement::GiveBack => Settled::Not,
            _ => Settled::Refused(failed),
        }
    };
    tokio::select! {
        biased;
        settled = tries => settled,
        () = over => Settled::Not,
    }
}

/// In place of a dead letter that is refused: neither lost nor stuck. Somebody will see the errors and make a place for it.
fn instead_of<Tag>(job: &Job<Tag>, letter: &DeadLetter) -> Settlement {
    let shared = &job.shared;
    Settlement::Retry(Retry {
        after: shared.postponed.step(job.delivery(), LATER, shared.clock().now()),
        attempt: job.delivery().attempt.unwrap_or(1),
        first_at: letter.first_at,
        reason: Cow::Borrowed("the dead letter was refused"),
    })
}

async fn insist<Tag: Send + Sync + 'static>(job: &Job<Tag>, settlement: &Settlement) -> Result<(), SourceError> {
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
        tell(&shared.desk.group, settlement, &failed);
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
