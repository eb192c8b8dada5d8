//! What is known of a message that is given up.
use std::borrow::Cow;
use std::time::Duration;

use idempotent_core::{Key, Outcome, Record, Rejection, State};

use super::shared::{Phase, Shared};
use crate::time::within;
use crate::work::Ended;
use crate::{DeadLetter, Delivery};

/// What goes beside a dead letter, as far as the record, the run and the message's own marks know it. The store is asked
/// once and not for long: a dead letter without its story is better than none.
pub(super) async fn obituary<Tag>(
    shared: &Shared<Tag>,
    delivery: &Delivery,
    ended: Option<&Ended>,
    reason: Cow<'static, str>,
) -> DeadLetter {
    let captured = ended.and_then(|ended| ended.captured.as_ref());
    // Only where the message is the one the record tells of: a mismatch, or code that failed behind a good run, is not.
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
    // Of a run whose transaction was rolled back the record knows no attempts but the last one.
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
        reason: record.as_ref().and_then(|record| last_words(record, record_or_run)).map_or(reason, Cow::Owned),
    }
}

async fn recorded<Tag>(shared: &Shared<Tag>, key: &Key) -> Option<Record> {
    let asked = within(shared.clock(), Duration::from_secs(1), shared.desk.executor.store().peek(key));
    tokio::select! {
        biased;
        asked = asked => asked.and_then(Result::ok).flatten(),
        // What time is left belongs to the settling.
        () = shared.reached(Phase::Closing) => None,
    }
}

/// Why the key is dead. A failure for good has its reason from the handler that said so.
fn last_words(record: &Record, runs: Option<u32>) -> Option<String> {
    match &record.state {
        State::Dead { error } => {
            let (attempts, fencing, error) = (runs.unwrap_or(record.attempt), record.fencing, error.clone());
            Some(Rejection::Dead { attempts, fencing, error }.to_string())
        }
        _ => None,
    }
}
