//! The decisions of `protocol.rs`, changed by a bug.
mod claim;
mod settle;

use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{FencingToken, Record, State, Timestamp};

pub(super) use self::claim::claim;
pub(super) use self::settle::{complete, release, renew};
use super::Bug;

/// Returns the record as it is stored in the map.
pub(super) fn kept(bug: Option<Bug>, mut record: Record, now: Timestamp) -> Record {
    match bug {
        Some(Bug::SecondsRounded) => {
            let cut = |time: &mut Timestamp| time.0 -= time.0 % 1_000_000;
            cut(&mut record.expires_at);
            match &mut record.state {
                State::Consuming { until, .. } => cut(until),
                State::Vacant { not_before, .. } => cut(not_before),
                _ => {}
            }
        }
        Some(Bug::LateEnd) => {
            let late = |time: &mut Timestamp| *time = *time + Duration::from_millis(1);
            late(&mut record.expires_at);
            match &mut record.state {
                State::Consuming { until, .. } => late(until),
                State::Vacant { not_before, .. } => late(not_before),
                _ => {}
            }
        }
        Some(Bug::TenYearsAtMost) => {
            let ten_years = Duration::from_secs(10 * 365 * 86_400);
            record.expires_at = record.expires_at.min(now + ten_years);
        }
        Some(Bug::MemoryEndsEarly) if !matches!(record.state, State::Consumed { .. }) => {
            record.expires_at.0 -= 1_000;
        }
        Some(Bug::ForgettingForgetsNumber) if record.attempt == 0 && record.fingerprint.is_none() => {
            if let State::Vacant { error, .. } = &record.state
                && &**error == "made claimable by an operator"
            {
                record.fencing = FencingToken(0);
            }
        }
        Some(Bug::ErrorDropped) => {
            if let State::Vacant { error, .. } | State::Failed { error } | State::Dead { error } = &mut record.state {
                *error = Arc::from("");
            }
        }
        Some(Bug::TextEndsAtNul) => {
            let cut = |text: &mut Arc<str>| *text = text.split('\0').next().unwrap_or_default().into();
            if let State::Vacant { error, .. } | State::Failed { error } | State::Dead { error } = &mut record.state {
                cut(error);
            }
            record.display.as_mut().map(cut);
        }
        Some(Bug::ValueCutOff) => {
            if let State::Consumed { value: Some(value), .. } = &mut record.state {
                *value = Arc::from(&value[..value.len().min(1 << 16)]);
            }
        }
        _ => {}
    }
    record
}
