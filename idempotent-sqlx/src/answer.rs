//! What a row means for a request: pure, the same for every dialect, and always the words of
//! [`protocol`](idempotent_core::protocol).
use idempotent_core::protocol::{self, Write};
use idempotent_core::{Claim, ClaimRequest, Dead, Grant, Record, State, StoreError, StoreErrorKind, Timestamp};

/// How often a statement is sent again because another writer of the same key was faster. Each round is lost
/// to one grant of somebody else, so more than two were never seen.
pub(crate) const TRIES: usize = 16;

/// The answer to a claim that left this record behind; none if the record may be claimed by now: ask again.
/// `wrote` says that the claim's own statement wrote it.
pub(crate) fn claim(record: &Record, wrote: bool, request: &ClaimRequest, now: Timestamp) -> Option<Claim> {
    match &record.state {
        // Judged before the record's own end: a grant is a grant, however short it was asked for.
        State::Consuming { owner, taken_over, .. } if *owner == request.owner => Some(Claim::Acquired(Grant {
            fencing: record.fencing,
            attempt: record.attempt,
            lease: request.lease,
            taken_over: *taken_over,
        })),
        // Buried just now, and kept for no time at all.
        State::Dead { error } if wrote => {
            Some(Claim::Dead(Dead { attempts: record.attempt, fencing: record.fencing, error: error.clone() }))
        }
        _ => kept(protocol::claim(Some(record), request, now)),
    }
}

/// The answer, if the protocol leaves the record as it is.
pub(crate) fn kept<T>((answer, write): (T, Write)) -> Option<T> {
    (write == Write::Keep).then_some(answer)
}

/// The error after [`TRIES`].
pub(crate) fn outrun() -> StoreError {
    StoreError::new(StoreErrorKind::NotApplied)
        .because(format!("{TRIES} attempts lost to concurrent writers of this key; retry"))
}
