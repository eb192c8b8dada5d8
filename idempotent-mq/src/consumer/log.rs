//! Noting what is received, and what becomes of it, for the sender.
use std::time::Duration;

use idempotent_core::Outcome;
use tracing::warn;

use super::shared::{Job, Shared};
use super::worker::put_off;
use crate::counts::End;
use crate::decide::Decision;
use crate::time::within;
use crate::work::Ended;
use crate::{Concluded, Delivery, LogError, LogErrorKind, Receipt};

/// A log that does not answer in this time is down.
const ANSWER: Duration = Duration::from_secs(5);
/// When a delivery comes again that is done and could not be noted so.
const LATER: Duration = Duration::from_secs(5);

/// Notes deliveries before anything is done with them; and whether that went well.
pub(super) async fn note<Tag>(shared: &Shared<Tag>, deliveries: &[(Delivery, Tag)]) -> (Vec<Option<Receipt>>, bool) {
    let Some(log) = &shared.log else { return (vec![None; deliveries.len()], true) };
    let receipts: Vec<_> = deliveries.iter().map(|(delivery, _)| Receipt::of(delivery, shared.bits())).collect();
    let known: Vec<_> = receipts.iter().flatten().cloned().collect();
    let noted = known.is_empty() || asked(shared, log.received(&known)).await;
    (receipts, noted)
}

/// Notes what a delivery came to, before the broker is told. What is done and cannot be noted so is not acknowledged: it comes
/// again, is found to be done, and noted then.
pub(super) async fn conclude<Tag>(
    job: &Job<Tag>,
    decision: Decision,
    end: End,
    ended: Option<&Ended>,
) -> (Decision, End) {
    let (Some(log), Some(receipt)) = (&job.shared.log, &job.held.receipt) else { return (decision, end) };
    let how = concluded(&decision, ended);
    let noted = !job.held.noted || asked(&job.shared, log.concluded(receipt, how)).await;
    match how {
        Concluded::Done if !noted => (put_off(LATER, "the message log is down"), End::Deferred),
        _ => (decision, end),
    }
}

fn concluded(decision: &Decision, ended: Option<&Ended>) -> Concluded {
    let outcome = ended.and_then(|ended| ended.captured.as_ref()).map(|captured| &captured.outcome);
    match (decision, outcome) {
        (Decision::Ack, Some(Outcome::InFlight { .. })) => Concluded::PutOff,
        (Decision::Ack, _) => Concluded::Done,
        (Decision::DeadLetter { .. }, _) => Concluded::PutAside,
        // Not where its key is somebody else's by now, or may be.
        (Decision::Retry { attempt: true, .. }, None | Some(Outcome::Released { .. })) => Concluded::Failed,
        (Decision::Retry { attempt: true, .. }, Some(Outcome::Ran | Outcome::Replayed | Outcome::Unprotected)) => {
            Concluded::Failed
        }
        _ => Concluded::PutOff,
    }
}

async fn asked<Tag>(shared: &Shared<Tag>, answer: impl Future<Output = Result<(), LogError>>) -> bool {
    let silent = || Err(LogError::new(LogErrorKind::Transient, "no answer within 5 s"));
    match within(shared.clock(), ANSWER, answer).await.unwrap_or_else(silent) {
        Ok(()) => true,
        Err(error) => {
            warn!(target: "idempotent", group = &*shared.desk.group,
                error = &error as &(dyn std::error::Error + 'static), "the message log failed");
            false
        }
    }
}
