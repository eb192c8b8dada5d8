//! Markers of waiting calls: the start of a call's wait, and its last delivery.
//!
//! A marker is a record of its own, with a key that is derived from the call's key. The first deferral of the call creates it, and
//! later deliveries update it. Each write claims the record and releases it at once. If the process is killed in between, the
//! claim expires, and the next delivery writes the marker again.
//!
//! Later calls of the same order read the marker to learn that a call waits itself. Without the marker, all calls of a chain
//! would exceed their patience as soon as the first one does, and any of them might run first. A call that was not delivered
//! for long, as all calls during an outage of the broker, learns from its own marker that it cannot tell which others were absent.
use std::time::Duration;

use super::position::derived_key;
use super::predecessor_record::read_record;
use crate::engine::Engine;
use crate::run::{Prepared, release};
use crate::{Claim, ClaimRequest, Held, Key, Micros, OnExpiry, Record, State, StoreError, Verdict};

/// The shortest lease of a marker's claim: longer than a store takes to answer.
const SHORTEST_CLAIM: Duration = Duration::from_millis(100);

/// The marker of a call: the start of its wait and its last delivery, read at `now`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WaitMarker {
    pub(super) first: Micros,
    pub(super) last: Micros,
    pub(super) now: Micros,
}

/// The time for which a call has waited for a missing predecessor.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Overdue {
    pub(super) waited: Duration,
    /// True if the time restarts now.
    pub(super) restarts: bool,
}

impl WaitMarker {
    /// Returns true if the marker is old enough to be written again.
    pub(super) fn is_stale(self, patience: Duration) -> bool {
        self.now - self.last >= marker_interval(patience)
    }

    /// Returns the latest time at which the call may have been delivered, as far as the marker tells.
    pub(super) fn present_until(self, patience: Duration) -> Micros {
        self.last + marker_interval(patience)
    }

    /// Returns the time for which the call has waited since `sign`, the last sign of its predecessor.
    ///
    /// A call that was not delivered for long cannot tell for how long its predecessor was absent, so its time restarts. The
    /// time restarts only once after each sign: a call that is delivered too rarely waits twice as long, but not for ever.
    pub(super) fn overdue(self, sign: Micros, patience: Duration) -> Overdue {
        let waited = waited(Some(self), sign);
        let was_away = self.now - self.last >= patience / 2;
        match waited >= patience && was_away && self.first < sign + patience {
            true => Overdue { waited: Duration::ZERO, restarts: true },
            false => Overdue { waited, restarts: false },
        }
    }
}

/// Returns the time for which a call has waited: since its first deferral, but not before `since`.
pub(super) fn waited(marker: Option<WaitMarker>, since: Micros) -> Duration {
    marker.map_or(Duration::ZERO, |marker| marker.now - marker.first.max(since))
}

/// Returns the shortest time between two writes of a marker.
pub(super) fn marker_interval(patience: Duration) -> Duration {
    patience / 4
}

/// Reads the marker of the call with this key.
pub(super) async fn read_marker(
    engine: &Engine,
    prepared: &Prepared,
    key: &Key,
) -> Result<Option<WaitMarker>, StoreError> {
    let (found, now) = read_record(engine, prepared, &marker_key(key)).await?;
    Ok(found.map(|Record { first_seen, updated_at, state, .. }| {
        let first = match state {
            State::Vacant { error, .. } => parse_start(&error).map_or(first_seen, |start| start.max(first_seen)),
            // A write is in progress, or its process was killed, so the start of the time is not known.
            _ => updated_at,
        };
        WaitMarker { first, last: updated_at, now }
    }))
}

/// Writes the marker of the call, unless a recent one exists. With `restarts`, the time of the call restarts now.
pub(super) async fn write_marker(
    engine: &Engine,
    prepared: &Prepared,
    marker: Option<WaitMarker>,
    restarts: bool,
) -> Result<(), StoreError> {
    let terms = &prepared.terms;
    let patience = terms.on_broken_order.patience();
    if !restarts && marker.is_some_and(|marker| !marker.is_stale(patience)) {
        return Ok(());
    }
    let start = marker.map(|marker| if restarts { marker.now } else { marker.first });
    let key = marker_key(&prepared.request.key);
    let memory = terms.memory.max(patience.saturating_mul(2));
    let request = ClaimRequest {
        key: key.clone(),
        fingerprint: None,
        lease: terms.lease.min(marker_interval(patience).max(SHORTEST_CLAIM)),
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        memory,
        display: None,
        ..prepared.request.clone()
    };
    let answers_in = terms.lease / 3;
    // Another process that writes the marker at this moment writes the same.
    if let Claim::Acquired(grant) = engine.in_time(answers_in, engine.store.claim(&request)).await? {
        let held = Held { key, owner: request.owner, fencing: Some(grant.fencing) };
        // The marker is never deleted, not even to restart the time: a call without a marker counts as missing.
        let left = release(Verdict::Vacate, memory, &error_text(start));
        engine.in_time(answers_in, engine.store.release(&held, &left)).await?;
    }
    Ok(())
}

const WAITS: &str = "no run: waits for its turn";
const SINCE: &str = " since ";

/// Returns the error text of a marker's record. The text names the start of the time, in µs of the store's clock, unless the
/// time starts with the record.
fn error_text(start: Option<Micros>) -> String {
    start.map_or_else(|| WAITS.to_owned(), |Micros(start)| format!("{WAITS}{SINCE}{start}"))
}

fn parse_start(text: &str) -> Option<Micros> {
    text.strip_prefix(WAITS)?.strip_prefix(SINCE)?.parse().ok().map(Micros)
}

/// Returns the key of a call's marker, which no identity has.
fn marker_key(key: &Key) -> Key {
    derived_key(key, b"idempotent: is there, and waits for its turn")
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(60);

    fn at(secs: u64) -> Micros {
        Micros(secs * 1_000_000)
    }

    fn marker(first: u64, last: u64, now: u64) -> WaitMarker {
        WaitMarker { first: at(first), last: at(last), now: at(now) }
    }

    #[test]
    fn a_marker_keeps_the_start_of_its_time() {
        assert_eq!(parse_start(&error_text(Some(at(17)))), Some(at(17)));
        assert_eq!(parse_start(&error_text(None)), None);
        assert_eq!(parse_start("no stock since 17"), None);
    }

    #[test]
    fn a_predecessor_is_missing_from_its_last_sign() {
        assert_eq!(waited(None, at(0)), Duration::ZERO);
        assert_eq!(waited(Some(marker(10, 50, 70)), at(0)), T);
        assert_eq!(marker(0, 99, 100).overdue(at(40), T), Overdue { waited: T, restarts: false });
        assert_eq!(
            marker(0, 99, 100).overdue(at(41), T),
            Overdue { waited: T - Duration::from_secs(1), restarts: false }
        );
        // The marker is up to a quarter of the patience older than the last delivery.
        assert_eq!((marker(0, 40, 54).is_stale(T), marker(0, 40, 55).is_stale(T)), (false, true));
        assert_eq!(marker(0, 40, 54).present_until(T), at(55));
    }

    #[test]
    fn a_call_that_was_not_delivered_restarts_its_time_once_after_each_sign() {
        let restarted = Overdue { waited: Duration::ZERO, restarts: true };
        assert_eq!(marker(0, 5, 300).overdue(at(15), T), restarted);
        assert!(!marker(0, 271, 300).overdue(at(15), T).restarts, "away for less than half of the patience");
        assert_eq!(marker(0, 270, 300).overdue(at(15), T), restarted);
        // The time restarted at 75, when the predecessor was missing already; or there was a sign since.
        assert_eq!(
            marker(75, 75, 300).overdue(at(15), T),
            Overdue { waited: Duration::from_secs(225), restarts: false }
        );
        assert_eq!(marker(75, 75, 300).overdue(at(16), T), restarted);
        assert!(!marker(0, 0, 59).overdue(at(0), T).restarts, "within the patience");
    }
}
