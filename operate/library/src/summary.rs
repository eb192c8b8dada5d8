//! The description of a record for operators.
use std::time::{Duration, SystemTime};

use idempotent_core::{Key, Record, RecordEntry, State, StateKind, Timestamp, UnreadableRecord};
use serde::{Deserialize, Serialize};

/// The state of a record in a [`RecordSummary`].
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StateName {
    /// See [`State::Vacant`].
    Vacant,
    /// See [`State::Consuming`].
    Consuming,
    /// See [`State::Consumed`].
    Consumed,
    /// See [`State::Failed`].
    Failed,
    /// See [`State::Dead`].
    Dead,
}

impl StateName {
    /// Returns the text of the name, as in JSON.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Vacant => "vacant",
            Self::Consuming => "consuming",
            Self::Consumed => "consumed",
            Self::Failed => "failed",
            Self::Dead => "dead",
        }
    }

    /// Returns the kind of state with this name.
    #[must_use]
    pub fn kind(self) -> StateKind {
        match self {
            Self::Vacant => StateKind::Vacant,
            Self::Consuming => StateKind::Consuming,
            Self::Consumed => StateKind::Consumed,
            Self::Failed => StateKind::Failed,
            Self::Dead => StateKind::Dead,
        }
    }

    fn of(state: &State) -> Self {
        match state {
            State::Vacant { .. } => Self::Vacant,
            State::Consuming { .. } => Self::Consuming,
            State::Consumed { .. } => Self::Consumed,
            State::Failed { .. } => Self::Failed,
            State::Dead { .. } => Self::Dead,
        }
    }
}

/// A record without its result and without its full owner token, at the store's time of the read.
///
/// The names of the fields are stable in JSON. Later versions may add fields. The texts are as stored: print them by
/// [`escaped`](crate::escaped).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RecordSummary {
    /// The storage key.
    pub key: String,
    /// The state.
    pub state: StateName,
    /// The number of runs granted so far.
    pub attempt: u32,
    /// The fencing number, which each repair has to name.
    pub fencing: u64,
    /// The first 32 bits of the owner's token, of a consuming key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The time left of the lease in ms, negative after its end, of a consuming key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_left_ms: Option<i64>,
    /// The fencing number of the previous owner, if this run took over its lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_over: Option<u64>,
    /// The time in ms until a vacant key may be claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_left_ms: Option<i64>,
    /// The error of the last run, of a vacant, failed or dead key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The visible part of the key, if the policy stores one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
    /// The size of the recorded result in bytes, of a consumed key with a result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    /// The time of the first claim, RFC 3339 in UTC. For a consumed key, a store may keep only the time of the grant.
    pub first_seen: String,
    /// The time of the last write.
    pub updated_at: String,
    /// The time since the last write in ms.
    pub age_ms: u64,
    /// The time in ms until the record expires, or nothing if the store keeps it forever or does not report the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

/// A record that the store cannot read. The names of the fields are stable in JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UnreadableSummary {
    /// The storage key.
    pub key: String,
    /// Always `unreadable`.
    pub state: UnreadableName,
    /// The reason, such as the name of the damaged field.
    pub reason: String,
}

/// The state of a record that the store cannot read.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnreadableName {
    /// The record cannot be read.
    #[default]
    Unreadable,
}

impl From<UnreadableRecord> for UnreadableSummary {
    fn from(record: UnreadableRecord) -> Self {
        Self { key: record.key.as_str().to_owned(), state: UnreadableName::Unreadable, reason: record.reason }
    }
}

impl RecordSummary {
    /// Describes a record that a search found at the store's time `now`.
    #[must_use]
    pub fn of_entry(entry: &RecordEntry, now: Timestamp) -> Self {
        Self { result_bytes: entry.result_bytes, ..Self::new(&entry.key, &entry.record, now) }
    }

    /// Describes a record at the store's time `now`.
    #[must_use]
    pub fn new(key: &Key, record: &Record, now: Timestamp) -> Self {
        let (mut owner, mut lease_left_ms, mut taken_over) = (None, None, None);
        let (mut delay_left_ms, mut error, mut result_bytes) = (None, None, None);
        match &record.state {
            State::Vacant { not_before, error: last, taken_over: over } => {
                delay_left_ms = Some(left_ms(*not_before, now).max(0));
                error = Some(last.to_string()).filter(|error| !error.is_empty());
                taken_over = over.map(|fencing| fencing.0);
            }
            State::Consuming { owner: token, until, taken_over: over } => {
                owner = Some(format!("{:08x}", token.0 >> 96));
                lease_left_ms = Some(left_ms(*until, now));
                taken_over = over.map(|fencing| fencing.0);
            }
            State::Consumed { value, .. } => result_bytes = value.as_ref().map(|value| value.len() as u64),
            State::Failed { error: last } | State::Dead { error: last } => error = Some(last.to_string()),
        }
        let is_forever = record.expires_at >= Timestamp::FOREVER;
        Self {
            key: key.as_str().to_owned(),
            state: StateName::of(&record.state),
            attempt: record.attempt,
            fencing: record.fencing.0,
            owner,
            lease_left_ms,
            taken_over,
            delay_left_ms,
            error,
            display: record.display.as_deref().map(str::to_owned),
            result_bytes,
            first_seen: date(record.first_seen),
            updated_at: date(record.updated_at),
            age_ms: millis(now - record.updated_at),
            expires_in_ms: (!is_forever).then(|| millis(record.expires_at - now)),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time from `now` until `then` in ms, negative if `then` has passed.
fn left_ms(then: Timestamp, now: Timestamp) -> i64 {
    let signed = |time| i64::try_from(millis(time)).unwrap_or(i64::MAX);
    if then >= now { signed(then - now) } else { -signed(now - then) }
}

/// Returns a time of the store as RFC 3339 in UTC.
#[must_use]
pub fn date(time: Timestamp) -> String {
    // Beyond the year 9999 there is no such form.
    let time = time.0.min(253_402_300_799_000_000);
    humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + Duration::from_micros(time)).to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use idempotent_core::{FencingToken, Identity, OwnerToken, Scene};

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn summary(state: State, expires_at: Timestamp) -> RecordSummary {
        let key = Identity::new(Scene::Mq, "orders", "o-17").key("shop").unwrap();
        let record = Record {
            fencing: FencingToken(1_795_187_205_190_113),
            attempt: 2,
            fingerprint: None,
            state,
            expires_at,
            first_seen: Timestamp(1_795_187_175 * SECOND),
            updated_at: Timestamp(1_795_187_205 * SECOND),
            display: Some("order 17".into()),
        };
        RecordSummary::new(&key, &record, Timestamp(1_795_187_215 * SECOND))
    }

    #[test]
    fn a_consuming_key_has_a_lease_and_only_a_part_of_its_owner() {
        let state = State::Consuming {
            owner: OwnerToken(0x9f3c_02aa_1111_2222_3333_4444_5555_6666),
            until: Timestamp(1_795_187_235 * SECOND),
            taken_over: Some(FencingToken(5)),
        };
        let shown = summary(state, Timestamp(1_795_190_000 * SECOND));
        let json = serde_json::to_value(&shown).unwrap();
        let expected = serde_json::json!({
            "key": shown.key, "state": "consuming", "attempt": 2, "fencing": 1_795_187_205_190_113_u64,
            "owner": "9f3c02aa", "lease_left_ms": 20_000, "taken_over": 5, "display": "order 17",
            "first_seen": "2026-11-20T15:06:15.000Z", "updated_at": "2026-11-20T15:06:45.000Z", "age_ms": 10_000,
            "expires_in_ms": 2_785_000,
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn an_expired_lease_is_negative_and_a_passed_delay_is_zero() {
        let until = Timestamp(1_795_187_210 * SECOND);
        let shown = summary(State::Consuming { owner: OwnerToken(1), until, taken_over: None }, until);
        assert_eq!((shown.lease_left_ms, shown.expires_in_ms), (Some(-5_000), Some(0)));
        let shown = summary(State::Vacant { not_before: until, error: "".into(), taken_over: None }, until);
        assert_eq!((shown.delay_left_ms, shown.error), (Some(0), None));
    }

    #[test]
    fn a_result_is_shown_by_its_size_only_and_forever_by_no_end() {
        let value: Option<Arc<[u8]>> = Some(Arc::from(&b"secret"[..]));
        let shown = summary(State::Consumed { owner: OwnerToken(1), value }, Timestamp::FOREVER);
        assert_eq!((shown.result_bytes, shown.expires_in_ms), (Some(6), None));
        assert!(!serde_json::to_string(&shown).unwrap().contains("secret"));
    }
}
