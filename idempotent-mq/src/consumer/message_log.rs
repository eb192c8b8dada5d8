//! Recording of deliveries and their results in the message log.
use std::time::Duration;

use idempotent_core::Outcome;
use tracing::warn;

use super::state::{ConsumerState, DeliveryJob, LogEntry};
use super::worker::put_off;
use crate::consumer::counts::DeliveryEnd;
use crate::consumer::decision::Decision;
use crate::handler::HandlerEnd;
use crate::time::within;
use crate::{Delivery, DeliveryResult, LogError, LogErrorKind, LoggedDelivery, SenderState};

/// The timeout for an answer of the log.
const ANSWER: Duration = Duration::from_secs(5);
/// The delay of a completed delivery whose result could not be recorded.
const LATER: Duration = Duration::from_secs(5);

/// Records deliveries before any other step. Returns the log entry of each delivery that its sender
/// knows, and true if the log answered.
pub(super) async fn note<Tag>(
    shared: &ConsumerState<Tag>,
    deliveries: &[(Delivery, Tag)],
) -> (Vec<Option<LogEntry>>, bool) {
    let Some(log) = &shared.log else { return (vec![None; deliveries.len()], true) };
    let receipt = |delivery: &Delivery| {
        let receipt = LoggedDelivery::of(delivery, shared.bits())?;
        Some(LoggedDelivery { consumer: shared.logged_as.clone(), ..receipt })
    };
    let receipts: Vec<_> = deliveries.iter().map(|(delivery, _)| receipt(delivery)).collect();
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

/// Returns the end of a delivery that needs no run, because the log reports that the message is consumed or void. The store need not
/// know the message's key any more.
pub(super) fn without_run<Tag>(job: &DeliveryJob<Tag>) -> Option<DeliveryEnd> {
    // With this setting off, the consumer has no name in the log.
    job.shared.logged_as.as_ref()?;
    match job.held.log_entry.as_ref()?.state {
        SenderState::Consumed => Some(DeliveryEnd::Skipped),
        SenderState::Void => Some(DeliveryEnd::SkippedAsVoid),
        // A dead letter that was redriven, or a message of which only another group has said that it is consumed.
        _ => None,
    }
}

/// Records the result of a delivery before the settlement. A completed delivery whose result cannot be recorded is retried: its
/// duplicate is found to be done, and is recorded then.
pub(super) async fn conclude<Tag>(
    job: &DeliveryJob<Tag>,
    decision: Decision,
    end: DeliveryEnd,
    ended: Option<&HandlerEnd>,
) -> (Decision, DeliveryEnd) {
    let (Some(log), Some(entry)) = (&job.shared.log, &job.held.log_entry) else { return (decision, end) };
    let how = concluded(&decision, end, ended);
    let noted = asked(&job.shared, log.concluded(&entry.receipt, how)).await.is_some();
    match how {
        DeliveryResult::Done | DeliveryResult::Expired if !noted => {
            (put_off(LATER, "the message log is down"), DeliveryEnd::Deferred)
        }
        _ => (decision, end),
    }
}

fn concluded(decision: &Decision, end: DeliveryEnd, ended: Option<&HandlerEnd>) -> DeliveryResult {
    let outcome = ended.and_then(|ended| ended.captured.as_ref()).map(|captured| &captured.outcome);
    match (decision, outcome) {
        // Nothing has run: `Done` would let the consumer skip a copy that can run.
        (Decision::Ack, _) if end == DeliveryEnd::Expired => DeliveryResult::Expired,
        (Decision::Ack, _) if end == DeliveryEnd::SkippedAsVoid => DeliveryResult::Void,
        (Decision::Ack, Some(Outcome::InFlight { .. })) => DeliveryResult::Deferred,
        (Decision::Ack, _) => DeliveryResult::Done,
        (Decision::DeadLetter { .. }, _) => DeliveryResult::DeadLettered,
        // Only if the key cannot belong to another worker.
        (Decision::Retry { attempt: true, .. }, None | Some(Outcome::Released { .. })) => DeliveryResult::Failed,
        (Decision::Retry { attempt: true, .. }, Some(Outcome::Ran | Outcome::Replayed | Outcome::Unprotected)) => {
            DeliveryResult::Failed
        }
        _ => DeliveryResult::Deferred,
    }
}

async fn asked<Tag, T>(shared: &ConsumerState<Tag>, answer: impl Future<Output = Result<T, LogError>>) -> Option<T> {
    let silent = || Err(LogError::new(LogErrorKind::Transient, "no answer within 5 s"));
    match within(shared.clock(), ANSWER, answer).await.unwrap_or_else(silent) {
        Ok(answer) => Some(answer),
        Err(error) => {
            warn!(target: "idempotent", group = &*shared.context.group,
                error = &error as &(dyn std::error::Error + 'static), "consumer: the message log failed");
            None
        }
    }
}
