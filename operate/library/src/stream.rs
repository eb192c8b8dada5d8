//! The description of a stream of numbered calls.
use std::time::Duration;

use idempotent_core::{StreamBlocker, StreamView, Timestamp};
use serde::{Deserialize, Serialize};

use crate::summary::date;

/// The order of a stream, at the store's time of the read.
///
/// The names of the fields are stable in JSON. Later versions may add fields.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StreamSummary {
    /// The largest number that was admitted. All smaller numbers are over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// The storage key of its call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_key: Option<String>,
    /// The scope of that call, which is usually the scope of the stream. The store keeps only a hash of the stream itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The storage key of the call that was admitted last, unless its run is known to have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<String>,
    /// The first number that was delivered and waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// The time since its first delivery in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_ms: Option<u64>,
    /// The time of its last delivery, RFC 3339 in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_delivered: Option<String>,
    /// The number that was registered, was not delivered, and blocks the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by_number: Option<u64>,
    /// The storage key of the call that blocks the next number until it is consumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// The numbers that wait or are expected, ascending.
    pub waiting: Vec<StreamNumbers>,
}

/// Consecutive numbers of a [`StreamSummary`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StreamNumbers {
    /// The first number.
    pub from: u64,
    /// The last number.
    pub to: u64,
    /// True if the number was delivered, so that it waits.
    pub is_delivered: bool,
}

impl StreamSummary {
    /// Describes a stream at the store's time `now`.
    #[must_use]
    pub fn new(view: &StreamView, now: Timestamp) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let first = view.first_waiting();
        let (mut blocked_by, mut blocked_by_number) = (None, None);
        match &view.blocker {
            Some(StreamBlocker::LastAdmitted(key)) => blocked_by = Some(key.as_str().to_owned()),
            Some(StreamBlocker::Expected(number)) => blocked_by_number = Some(*number),
            _ => {}
        }
        let numbers = |numbers: &idempotent_core::WaitingNumbers| StreamNumbers {
            from: numbers.from,
            to: numbers.to,
            is_delivered: numbers.delivered.is_some(),
        };
        Self {
            last: view.last.as_ref().map(|last| last.number),
            last_key: view.last.as_ref().map(|last| last.key.as_str().to_owned()),
            // NAMESPACE:SCENE:SCOPE
            scope: view.last.as_ref().and_then(|last| last.key.name().splitn(3, ':').nth(2)).map(str::to_owned),
            running: view.running.as_ref().map(|key| key.as_str().to_owned()),
            next: first.map(|(number, _)| number),
            waiting_ms: first.map(|(_, (first, _))| millis(now - first)),
            last_delivered: first.map(|(_, (_, last))| date(last)),
            blocked_by_number,
            blocked_by,
            waiting: view.waiting.iter().map(numbers).collect(),
        }
    }
}
