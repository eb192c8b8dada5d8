//! The description and selection of dead letters.
use std::collections::BTreeSet;

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, LetterId, StoredLetter};
use serde::{Deserialize, Serialize};

use crate::summary::date;

/// A dead letter without its body and without the values of its headers.
///
/// The names of the fields are stable in JSON. Later versions may add fields. The texts are as stored: print them by
/// [`escaped`](crate::escaped).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LetterSummary {
    /// The position in the listing, from 1 for the first letter on. It changes when an earlier letter is put back.
    pub position: u64,
    /// The name of the letter, by its place and its death.
    pub id: String,
    /// The id of the message, if it has one. Several letters may have one message id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The storage key, if the key failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The fencing number of the last run of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fencing: Option<u64>,
    /// The time of the dead-lettering, RFC 3339 in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub died_at: Option<String>,
    /// The reason. Nothing if another program dead-lettered the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of the last known attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The number of dead-letterings of the message, including this one.
    pub deaths: u32,
    /// The size of the body.
    pub body_bytes: usize,
}

impl LetterSummary {
    /// Describes a letter at this position.
    #[must_use]
    pub fn new(position: u64, stored: &StoredLetter) -> Self {
        let (delivery, letter) = (&stored.delivery, stored.letter.as_ref());
        let key = letter.and_then(DeadLetter::key);
        Self {
            position,
            id: stored.id.to_string(),
            message_id: delivery.id.clone(),
            fencing: key.as_ref().map(|(_, fencing)| fencing.0),
            key: key.map(|(key, _)| key.as_str().to_owned()),
            died_at: letter.map(|letter| date(letter.last_at)),
            reason: letter.map(|letter| letter.reason.to_string()),
            attempts: letter.map(|letter| letter.attempts),
            deaths: deaths(stored),
            body_bytes: delivery.body.len(),
        }
    }

    /// Returns the names of the letter in the audit log: its id, and the key or the message to which it belongs.
    #[must_use]
    pub fn subject(&self) -> String {
        match (&self.key, &self.message_id) {
            (Some(key), _) => format!("{} of key {key}", self.id),
            (None, Some(message)) => format!("{} of message {message}", self.id),
            (None, None) => self.id.clone(),
        }
    }
}

/// A selection of dead letters. The default selects all.
///
/// A letter of another program has no reason, attempts and time of death. A condition on one of them does not select it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LetterFilter {
    /// The ids of the letters. Empty for any.
    pub ids: BTreeSet<LetterId>,
    /// The id of the message. Several letters may have the same one.
    pub message_id: Option<String>,
    /// A part of the reason.
    pub cause: Option<String>,
    /// The end of the time of death. The letter died before it.
    pub died_before: Option<Timestamp>,
    /// The start of the time of death. The letter died at it or later.
    pub died_after: Option<Timestamp>,
    /// The smallest number of attempts.
    pub min_attempts: Option<u32>,
    /// The smallest number of deaths.
    pub min_deaths: Option<u32>,
    /// The largest number of deaths.
    pub max_deaths: Option<u32>,
}

impl LetterFilter {
    /// Returns whether the filter selects a letter.
    #[must_use]
    pub fn matches(&self, stored: &StoredLetter) -> bool {
        let deaths = deaths(stored);
        let has = |condition: &dyn Fn(&DeadLetter) -> bool| stored.letter.as_ref().is_some_and(condition);
        (self.ids.is_empty() || self.ids.contains(&stored.id))
            && self.message_id.as_ref().is_none_or(|id| stored.delivery.id.as_ref() == Some(id))
            && self.cause.as_ref().is_none_or(|cause| has(&|letter| letter.reason.contains(cause.as_str())))
            && self.died_before.is_none_or(|end| has(&|letter| letter.last_at < end))
            && self.died_after.is_none_or(|start| has(&|letter| letter.last_at >= start))
            && self.min_attempts.is_none_or(|least| has(&|letter| letter.attempts >= least))
            && self.min_deaths.is_none_or(|least| deaths >= least)
            && self.max_deaths.is_none_or(|most| deaths <= most)
    }
}

/// Returns the number of deaths, including this one.
fn deaths(stored: &StoredLetter) -> u32 {
    stored.letter.as_ref().map_or(stored.delivery.deaths.saturating_add(1), |letter| letter.deaths)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_mq::{Delivery, Position};

    use super::*;

    const KEY: &str = "shop:mq:orders:{Pv_mJFCxQoKrWCJDVdincw}";

    fn stored() -> StoredLetter {
        let delivery = Delivery::new(Position::of("orders"), b"secret".to_vec()).id("m-17").header("trace", "secret");
        let mut letter = DeadLetter::because("no stock", Timestamp(1_795_187_175_000_000));
        (letter.id, letter.attempts, letter.deaths) = (Some(format!("{KEY}:7")), 17, 2);
        StoredLetter::new("0/3@9".into(), delivery, Some(letter))
    }

    #[test]
    fn a_letter_is_described_without_its_body_and_its_headers() {
        let mut stored = stored();
        let summary = LetterSummary::new(3, &stored);
        assert_eq!(summary.subject(), format!("0/3@9 of key {KEY}"));
        let json = serde_json::to_value(summary).unwrap();
        let expected = serde_json::json!({
            "position": 3, "id": "0/3@9", "message_id": "m-17", "key": KEY, "fencing": 7, "died_at": "2026-11-20T15:06:15.000Z",
            "reason": "no stock", "attempts": 17, "deaths": 2, "body_bytes": 6,
        });
        assert_eq!(json, expected);
        stored.letter = None;
        let foreign = LetterSummary::new(1, &stored);
        assert_eq!(foreign.subject(), "0/3@9 of message m-17");
        let expected =
            serde_json::json!({ "position": 1, "id": "0/3@9", "message_id": "m-17", "deaths": 1, "body_bytes": 6 });
        assert_eq!(serde_json::to_value(foreign).unwrap(), expected);
    }

    #[test]
    fn each_condition_selects_by_its_own_field() {
        let mut stored = stored();
        let at = stored.letter.as_ref().unwrap().last_at;
        let later = Timestamp(at.0 + 1);
        type Set = fn(&mut LetterFilter, bool, (Timestamp, Timestamp));
        let conditions: [(&str, Set); 8] = [
            ("id", |filter, fits, _| {
                filter.ids.insert(if fits { "0/3@9".into() } else { "0/3@8".into() });
            }),
            ("message", |filter, fits, _| filter.message_id = Some(if fits { "m-17".into() } else { "m-1".into() })),
            ("cause", |filter, fits, _| filter.cause = Some(if fits { "stock".into() } else { "Stock".into() })),
            ("before", |filter, fits, (at, later)| filter.died_before = Some(if fits { later } else { at })),
            ("after", |filter, fits, (at, later)| filter.died_after = Some(if fits { at } else { later })),
            ("attempts", |filter, fits, _| filter.min_attempts = Some(if fits { 17 } else { 18 })),
            ("min deaths", |filter, fits, _| filter.min_deaths = Some(if fits { 2 } else { 3 })),
            ("max deaths", |filter, fits, _| filter.max_deaths = Some(if fits { 2 } else { 1 })),
        ];
        for (name, set) in conditions {
            for fits in [true, false] {
                let mut filter = LetterFilter::default();
                set(&mut filter, fits, (at, later));
                assert_eq!(filter.matches(&stored), fits, "{name}");
            }
        }
        stored.letter = None;
        assert!(LetterFilter::default().matches(&stored));
    }
}
