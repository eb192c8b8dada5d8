//! The meaning of a row for a request, as pure functions of [`protocol`](idempotent_core::protocol) for all dialects.
use idempotent_core::protocol::{self, Write};
use idempotent_core::{Claim, ClaimRequest, Dead, Grant, Record, State, StoreError, StoreErrorKind, Timestamp};

/// The maximum number of attempts of a statement that loses to other writers of the same key. Each lost attempt corresponds to
/// a grant of another caller; more than two have not been observed.
pub(crate) const TRIES: usize = 16;

/// Returns the answer to a claim that resulted in this record, or `None` if the record can be claimed by now.
/// With `wrote`, the claim's own statement wrote the record.
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

/// Returns the answer if the protocol leaves the record unchanged.
pub(crate) fn kept<T>((answer, write): (T, Write)) -> Option<T> {
    (write == Write::Keep).then_some(answer)
}

/// Returns the error after [`TRIES`] attempts.
pub(crate) fn outrun() -> StoreError {
    StoreError::new(StoreErrorKind::NotApplied)
        .because(format!("{TRIES} attempts lost to concurrent writers of this key; retry"))
}
