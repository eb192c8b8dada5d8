//! The wait marker of a call: when it was first deferred, and when it was last delivered.
//!
//! The marker is a separate record next to the call's own. The record is created when the call is first deferred, and
//! later deliveries update it. Each write claims the record and releases it at once. If a process is killed in between,
//! the claim expires, and the next delivery writes the marker again.
//!
//! The marker shows the calls after this one that it waits itself. Otherwise a whole chain would run out of patience
//! with its first call, and the calls would run in the order of their deliveries. The marker also shows whether the
//! call itself was not delivered for long, for example while a broker was down. Such a call cannot judge whether others
//! are missing.
use std::sync::Arc;
use std::time::Duration;

use super::position::derived_key;
use super::predecessor_record::read_record;
use crate::engine::Engine;
use crate::run::{Prepared, release};
use crate::{Claim, ClaimHandle, ClaimRequest, Key, OnExpiry, Record, ReleaseKind, State, StoreError, Timestamp};

/// The shortest lease of a marker claim, long enough for the store to answer.
const MIN_LEASE: Duration = Duration::from_millis(100);

/// The first and the last delivery of a waiting call, as of `now`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WaitMarker {
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) now: Timestamp,
}

impl WaitMarker {
    /// Returns true if a new delivery should update the marker.
    pub(super) fn is_stale(self, patience: Duration) -> bool {
        self.now - self.last >= marker_interval(patience)
    }

    /// Returns the latest time at which the call may have been delivered, as far as the marker shows.
    pub(super) fn present_until(self, patience: Duration) -> Timestamp {
        self.last + marker_interval(patience)
    }

    /// Returns for how long the call has missed its predecessor, whose last sign of activity was at `sign`, and whether
    /// that time starts again now.
    ///
    /// A call that was not delivered for long itself cannot tell how long its predecessor was missing, so its time
    /// starts again. That happens only once after each sign, so a rarely delivered call waits twice as long, but not
    /// forever.
    pub(super) fn overdue(self, sign: Timestamp, patience: Duration) -> (Duration, bool) {
        let waited_so_far = waited(Some(self), sign);
        let was_absent = self.now - self.last >= patience / 2;
        match waited_so_far >= patience && was_absent && self.first < sign + patience {
            true => (Duration::ZERO, true),
            false => (waited_so_far, false),
        }
    }
}

/// Returns how long a call has waited since its first deferral, but not before `since`.
pub(super) fn waited(marker: Option<WaitMarker>, since: Timestamp) -> Duration {
    marker.map_or(Duration::ZERO, |marker| marker.now - marker.first.max(since))
}

/// Returns the shortest interval between updates of a marker.
pub(super) fn marker_interval(patience: Duration) -> Duration {
    patience / 4
}

/// Reads the wait marker of the call with this key.
pub(super) async fn read_marker(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    key: &Key,
) -> Result<Option<WaitMarker>, StoreError> {
    let (found, now) = read_record(engine, prepared, &marker_key(key)).await?;
    Ok(found.map(|Record { first_seen, updated_at, state, .. }| {
        let first = match state {
            State::Vacant { error, .. } => parse_start(&error).map_or(first_seen, |since| since.max(first_seen)),
            // Another process is writing the marker, or was killed before the end, so the restart time is unknown.
            _ => updated_at,
        };
        WaitMarker { first, last: updated_at, now }
    }))
}

/// Records that the call was delivered and waits, unless the marker is recent. With `restart`, the waiting time starts
/// again now.
pub(super) async fn write_marker(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    marker: Option<WaitMarker>,
    restart: bool,
) -> Result<(), StoreError> {
    let patience = prepared.policy.on_broken_order.patience();
    if !restart && marker.is_some_and(|marker| !marker.is_stale(patience)) {
        return Ok(());
    }
    let since = marker.map(|marker| if restart { marker.now } else { marker.first });
    store_marker(engine, prepared, since).await
}

async fn store_marker(engine: &Arc<Engine>, prepared: &Prepared, since: Option<Timestamp>) -> Result<(), StoreError> {
    let policy = &prepared.policy;
    let patience = policy.on_broken_order.patience();
    let key = marker_key(&prepared.request.key);
    let retention = policy.retain_failures.max(patience.saturating_mul(2));
    let request = ClaimRequest {
        key: key.clone(),
        fingerprint: None,
        lease: policy.lease.min(marker_interval(patience).max(MIN_LEASE)),
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        retention,
        display: None,
        ..prepared.request.clone()
    };
    let timeout = policy.lease / 3;
    // A concurrent writer writes the same marker.
    if let Claim::Acquired(grant) = engine.with_timeout(timeout, engine.store.claim(&request)).await? {
        let held = ClaimHandle::granted(&request, &grant);
        // The marker is never deleted, not even for a restart: without it, the call would be taken for missing.
        let left = release(ReleaseKind::Vacate, retention, &marker_text(since));
        engine.with_timeout(timeout, engine.store.release(&held, &left)).await?;
    }
    Ok(())
}

const WAITS: &str = "no run: waits for its turn";
const SINCE: &str = " since ";

/// Builds the text of a marker: its start in µs of the store's clock, if that is not the record's creation.
fn marker_text(since: Option<Timestamp>) -> String {
    since.map_or_else(|| WAITS.to_owned(), |Timestamp(since)| format!("{WAITS}{SINCE}{since}"))
}

fn parse_start(text: &str) -> Option<Timestamp> {
    text.strip_prefix(WAITS)?.strip_prefix(SINCE)?.parse().ok().map(Timestamp)
}

/// Returns the key of the marker, which no identity produces.
fn marker_key(key: &Key) -> Key {
    derived_key(key, b"idempotent: is there, and waits for its turn")
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(60);

    fn at(secs: u64) -> Timestamp {
        Timestamp(secs * 1_000_000)
    }

    fn marker(first: u64, last: u64, now: u64) -> WaitMarker {
        WaitMarker { first: at(first), last: at(last), now: at(now) }
    }

    #[test]
    fn a_marker_text_contains_its_restart_time() {
        assert_eq!(parse_start(&marker_text(Some(at(17)))), Some(at(17)));
        assert_eq!(parse_start(&marker_text(None)), None);
        assert_eq!(parse_start("no stock since 17"), None);
    }

    #[test]
    fn a_predecessor_is_missing_from_its_last_sign_of_activity() {
        assert_eq!(waited(None, at(0)), Duration::ZERO);
        assert_eq!(waited(Some(marker(10, 50, 70)), at(0)), T);
        assert_eq!(marker(0, 99, 100).overdue(at(40), T), (T, false));
        assert_eq!(marker(0, 99, 100).overdue(at(41), T), (T - Duration::from_secs(1), false));
        // The marker was updated up to a quarter of the patience before the last delivery.
        assert_eq!((marker(0, 40, 54).is_stale(T), marker(0, 40, 55).is_stale(T)), (false, true));
        assert_eq!(marker(0, 40, 54).present_until(T), at(55));
    }

    #[test]
    fn an_absent_call_restarts_its_wait_once_after_each_sign() {
        let restart = (Duration::ZERO, true);
        assert_eq!(marker(0, 5, 300).overdue(at(15), T), restart);
        assert!(!marker(0, 271, 300).overdue(at(15), T).1, "for less than half of its time");
        assert_eq!(marker(0, 270, 300).overdue(at(15), T), restart);
        // The time restarted at 75, when the predecessor was already missing; then without a new sign, and with one.
        assert_eq!(marker(75, 75, 300).overdue(at(15), T), (Duration::from_secs(225), false));
        assert_eq!(marker(75, 75, 300).overdue(at(16), T), restart);
        assert!(!marker(0, 0, 59).overdue(at(0), T).1, "its time is not over");
    }
}
