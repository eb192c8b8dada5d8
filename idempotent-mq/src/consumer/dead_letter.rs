//! The data of a dead-lettered message.
use std::borrow::Cow;
use std::time::Duration;

use idempotent_core::{Disposition, Key, Outcome, Record, Rejection, State};

use super::state::{ConsumerState, Phase};
use crate::handler::HandlerEnd;
use crate::time::within;
use crate::{DeadLetter, Delivery};

/// Builds the data of a dead letter from the record, the run and the message. The store is read once with a short timeout, because
/// an incomplete dead letter is better than none.
pub(super) async fn dead_letter<Tag>(
    shared: &ConsumerState<Tag>,
    delivery: &Delivery,
    ended: Option<&HandlerEnd>,
    reason: Cow<'static, str>,
) -> DeadLetter {
    let captured = ended.and_then(|ended| ended.captured.as_ref());
    // Only if the record is about this message: not for a mismatch, or for code that failed after a successful run.
    let of = captured.filter(|captured| matches!(captured.outcome, Outcome::Dead { .. } | Outcome::Failed));
    let key = of.and_then(|captured| captured.key.as_ref());
    let record = match key {
        Some(key) => recorded(shared, key).await,
        None => None,
    };
    let fencing = match of.map(|captured| &captured.outcome) {
        Some(Outcome::Dead { fencing }) => Some(*fencing),
        _ => record.as_ref().map(|record| record.fencing),
    };
    // After a rolled-back transaction, the record contains the last attempt only.
    let record_or_run = record.as_ref().map(|record| record.attempt).max(of.and_then(|captured| captured.attempt));
    let record_or_run = record_or_run.map(|attempts| attempts.max(delivery.attempt.unwrap_or_default()));
    let attempts = [record_or_run, delivery.attempt, delivery.delivered];
    let first_at = delivery.first_at.or(record.as_ref().map(|record| record.first_seen));
    DeadLetter {
        id: key.zip(fencing).map(|(key, fencing)| format!("{key}:{fencing}")),
        attempts: attempts.into_iter().flatten().find(|attempts| *attempts > 0).unwrap_or(1),
        first_at: first_at.unwrap_or(delivery.received_at).min(delivery.received_at),
        last_at: shared.clock().wall(),
        deaths: delivery.deaths.saturating_add(1),
        reason: record
            .as_ref()
            .and_then(|record| final_error(record, record_or_run, &reason))
            .map_or(reason, Cow::Owned),
    }
}

async fn recorded<Tag>(shared: &ConsumerState<Tag>, key: &Key) -> Option<Record> {
    let asked = within(shared.clock(), Duration::from_secs(1), shared.context.executor.store().peek(key));
    tokio::select! {
        biased;
        asked = asked => asked.and_then(Result::ok).flatten(),
        // A closing consumer needs the remaining time for the settlement.
        () = shared.reached(Phase::Closing) => None,
    }
}

/// Returns the final error of a dead key, or of a permanent failure for which the handler gave no reason of its own.
fn final_error(record: &Record, runs: Option<u32>, reason: &str) -> Option<String> {
    match &record.state {
        State::Dead { error } => {
            let (attempts, fencing, error) = (runs.unwrap_or(record.attempt), record.fencing, error.clone());
            Some(Rejection::Dead { attempts, fencing, error }.to_string())
        }
        State::Failed { error } if is_general(reason) => Some(format!("{reason}: {error}")),
        _ => None,
    }
}

/// Returns true if the reason only repeats the outcome.
fn is_general(reason: &str) -> bool {
    matches!(Outcome::Failed.disposition(), Disposition::DeadLetter { reason: general } if general == reason)
}
