//! Noting what is received, and what becomes of it, for the sender.
use std::time::Duration;

use idempotent_core::Outcome;
use tracing::warn;

use super::shared::{Job, LogEntry, Shared};
use super::worker::put_off;
use crate::counts::End;
use crate::decide::Decision;
use crate::time::within;
use crate::work::Ended;
use crate::{Delivery, DeliveryResult, LogError, LogErrorKind, LoggedDelivery, SenderState};

/// A log that does not answer in this time is down.
const ANSWER: Duration = Duration::from_secs(5);
/// When a delivery comes again that is done and could not be noted so.
const LATER: Duration = Duration::from_secs(5);

/// Notes deliveries before anything is done with them. Returns the log's entry for each that its sender knows, and whether the
/// log answered.
pub(super) async fn note<Tag>(shared: &Shared<Tag>, deliveries: &[(Delivery, Tag)]) -> (Vec<Option<LogEntry>>, bool) {
    let receipts: Vec<_> = deliveries.iter().map(|(delivery, _)| LoggedDelivery::of(delivery, shared.bits())).collect();
    let Some(log) = &shared.log else { return (vec![None; deliveries.len()], true) };
    let asked_for: Vec<_> = receipts.iter().flatten().cloned().collect();
    let answer = match asked_for.is_empty() {
        true => Some(Vec::new()),
        false => asked(shared, log.received(&asked_for)).await,
    };
    let noted = answer.is_some();
    let mut states = answer.unwrap_or_default().into_iter();
    let entry = |receipt: Option<LoggedDelivery>| {
        let receipt = receipt?;
        let state = states.next().unwrap_or_default();
        (state != SenderState::Foreign).then_some(LogEntry { receipt, state })
    };
    (receipts.into_iter().map(entry).collect(), noted)
}

/// Notes what a delivery came to, before the broker is told. What is done and cannot be noted so is not acknowledged: it comes
/// again, is found to be done, and noted then.
pub(super) async fn conclude<Tag>(
    job: &Job<Tag>,
    decision: Decision,
    end: End,
    ended: Option<&Ended>,
) -> (Decision, End) {
    let (Some(log), Some(entry)) = (&job.shared.log, &job.held.log_entry) else { return (decision, end) };
    let how = concluded(&decision, ended);
    let noted = asked(&job.shared, log.concluded(&entry.receipt, how)).await.is_some();
    match how {
        DeliveryResult::Done if !noted => (put_off(LATER, "the message log is down"), End::Deferred),
        _ => (decision, end),
    }
}

fn concluded(decision: &Decision, ended: Option<&Ended>) -> DeliveryResult {
    let outcome = ended.and_then(|ended| ended.captured.as_ref()).map(|captured| &captured.outcome);
    match (decision, outcome) {
        (Decision::Ack, Some(Outcome::InFlight { .. })) => DeliveryResult::Deferred,
        (Decision::Ack, _) => DeliveryResult::Done,
        (Decision::DeadLetter { .. }, _) => DeliveryResult::DeadLettered,
        // Not where its key is somebody else's by now, or may be.
        (Decision::Retry { attempt: true, .. }, None | Some(Outcome::Released { .. })) => DeliveryResult::Failed,
        (Decision::Retry { attempt: true, .. }, Some(Outcome::Ran | Outcome::Replayed | Outcome::Unprotected)) => {
            DeliveryResult::Failed
        }
        _ => DeliveryResult::Deferred,
    }
}

async fn asked<Tag, T>(shared: &Shared<Tag>, answer: impl Future<Output = Result<T, LogError>>) -> Option<T> {
    let silent = || Err(LogError::new(LogErrorKind::Transient, "no answer within 5 s"));
    match within(shared.clock(), ANSWER, answer).await.unwrap_or_else(silent) {
        Ok(answer) => Some(answer),
        Err(error) => {
            warn!(target: "idempotent", group = &*shared.desk.group,
                error = &error as &(dyn std::error::Error + 'static), "the message log failed");
            None
        }
    }
}
