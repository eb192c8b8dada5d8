//! What is noted of a call that waits for its turn: since when, and when it was delivered last.
//!
//! One record beside the call's has both: it is first seen when the call is first put off, or says since when it counts, and
//! is updated by deliveries after that. It is claimed and let go at once, so a process that is killed in between leaves a
//! claim that ends by itself, and the next delivery notes anew.
//!
//! By it those behind a call know that it waits itself. Else all of a chain would be past their patience once the first
//! of them has waited for that long, and whichever is delivered first would run. And a call that was away itself, as all of
//! them are while a broker is down, knows that it cannot tell who else was.
use std::sync::Arc;
use std::time::Duration;

use super::position::derived_key;
use super::predecessor_record::read_record;
use crate::engine::Engine;
use crate::run::{Prepared, release};
use crate::{Claim, ClaimRequest, Held, Key, Micros, OnExpiry, Record, State, StoreError, Verdict};

/// A claim of a note that ends no sooner than a store answers.
const MIN_LEASE: Duration = Duration::from_millis(100);

/// Since when a call waits, and when it was delivered last; as of `now`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WaitMarker {
    pub(super) first: Micros,
    pub(super) last: Micros,
    pub(super) now: Micros,
}

impl WaitMarker {
    /// Whether a delivery is worth a note.
    pub(super) fn is_stale(self, patience: Duration) -> bool {
        self.now - self.last >= marker_interval(patience)
    }

    /// Until when its call was there at the latest, as far as the note tells.
    pub(super) fn present_until(self, patience: Duration) -> Micros {
        self.last + marker_interval(patience)
    }

    /// For how long its call has missed the one it waits for, of which there was a sign at `sign`, and whether that is to
    /// be counted anew.
    ///
    /// A call that was away itself for long cannot tell for how long the other one was. Only once after each sign: who is
    /// delivered too seldom waits twice as long, not for ever.
    pub(super) fn overdue(self, sign: Micros, patience: Duration) -> (Duration, bool) {
        let waited_so_far = waited(Some(self), sign);
        let was_absent = self.now - self.last >= patience / 2;
        match waited_so_far >= patience && was_absent && self.first < sign + patience {
            true => (Duration::ZERO, true),
            false => (waited_so_far, false),
        }
    }
}

/// How long a call has waited since it was first put off, and since `since`.
pub(super) fn waited(marker: Option<WaitMarker>, since: Micros) -> Duration {
    marker.map_or(Duration::ZERO, |marker| marker.now - marker.first.max(since))
}

/// A call that is delivered again and again, or waits in place, is noted no more often than this.
pub(super) fn marker_interval(patience: Duration) -> Duration {
    patience / 4
}

/// What is noted of the call of this key.
pub(super) async fn read_marker(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    key: &Key,
) -> Result<Option<WaitMarker>, StoreError> {
    let (found, now) = read_record(engine, prepared, &marker_key(key)).await?;
    Ok(found.map(|Record { first_seen, updated_at, state, .. }| {
        let first = match state {
            State::Vacant { error, .. } => parse_start(&error).map_or(first_seen, |since| since.max(first_seen)),
            // It is being noted, or who did that was killed: nobody knows whether it was counted anew.
            _ => updated_at,
        };
        WaitMarker { first, last: updated_at, now }
    }))
}

/// Notes that the call was delivered and waits, unless that was noted just now; `anew`: from now on.
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

async fn store_marker(engine: &Arc<Engine>, prepared: &Prepared, since: Option<Micros>) -> Result<(), StoreError> {
    let policy = &prepared.policy;
    let patience = policy.on_broken_order.patience();
    let key = marker_key(&prepared.request.key);
    let memory = policy.memory.max(patience.saturating_mul(2));
    let request = ClaimRequest {
        key: key.clone(),
        fingerprint: None,
        lease: policy.lease.min(marker_interval(patience).max(MIN_LEASE)),
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        memory,
        display: None,
        ..prepared.request.clone()
    };
    let timeout = policy.lease / 3;
    // Whoever else notes it at this moment notes the same.
    if let Claim::Acquired(grant) = engine.with_timeout(timeout, engine.store.claim(&request)).await? {
        let held = Held { key, owner: request.owner, fencing: Some(grant.fencing) };
        // Never deleted, not even to begin anew: without a note it would be taken for missing in between.
        let left = release(Verdict::Vacate, memory, &marker_text(since));
        engine.with_timeout(timeout, engine.store.release(&held, &left)).await?;
    }
    Ok(())
}

const WAITS: &str = "no run: waits for its turn";
const SINCE: &str = " since ";

/// What stands in a note: since when, in µs of the store's clock, where that is not when it was first seen.
fn marker_text(since: Option<Micros>) -> String {
    since.map_or_else(|| WAITS.to_owned(), |Micros(since)| format!("{WAITS}{SINCE}{since}"))
}

fn parse_start(text: &str) -> Option<Micros> {
    text.strip_prefix(WAITS)?.strip_prefix(SINCE)?.parse().ok().map(Micros)
}

/// Where it is noted: a record that no identity can name.
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
    fn a_note_says_since_when_it_counts() {
        assert_eq!(parse_start(&marker_text(Some(at(17)))), Some(at(17)));
        assert_eq!(parse_start(&marker_text(None)), None);
        assert_eq!(parse_start("no stock since 17"), None);
    }

    #[test]
    fn s0_31_one_is_missed_from_its_last_sign_on() {
        assert_eq!(waited(None, at(0)), Duration::ZERO);
        assert_eq!(waited(Some(marker(10, 50, 70)), at(0)), T);
        assert_eq!(marker(0, 99, 100).overdue(at(40), T), (T, false));
        assert_eq!(marker(0, 99, 100).overdue(at(41), T), (T - Duration::from_secs(1), false));
        // It was noted up to a quarter of the time before it was delivered last.
        assert_eq!((marker(0, 40, 54).is_stale(T), marker(0, 40, 55).is_stale(T)), (false, true));
        assert_eq!(marker(0, 40, 54).present_until(T), at(55));
    }

    #[test]
    fn s0_31_who_was_away_itself_counts_anew_once_after_each_sign() {
        let restart = (Duration::ZERO, true);
        assert_eq!(marker(0, 5, 300).overdue(at(15), T), restart);
        assert!(!marker(0, 271, 300).overdue(at(15), T).1, "for less than half of its time");
        assert_eq!(marker(0, 270, 300).overdue(at(15), T), restart);
        // Counted anew from 75 on, when that was missing already; or a sign has come since.
        assert_eq!(marker(75, 75, 300).overdue(at(15), T), (Duration::from_secs(225), false));
        assert_eq!(marker(75, 75, 300).overdue(at(16), T), restart);
        assert!(!marker(0, 0, 59).overdue(at(0), T).1, "its time is not over");
    }
}
