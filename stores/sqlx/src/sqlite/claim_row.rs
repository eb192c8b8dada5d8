//! The result row of a claim, which is sufficient to answer a grant and a duplicate of a consumed key.
use std::sync::Arc;

use idempotent_core::protocol;
use idempotent_core::{Claim, ClaimRequest, FencingToken, Fingerprint, Grant, OwnerToken, Record, State, Timestamp};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

/// The meaning of a claim's result row.
pub(super) enum ClaimRow {
    Answered(Claim),
    /// The whole record must be looked at. With `wrote`, the claim's own statement wrote the record.
    Look {
        wrote: bool,
    },
}

impl ClaimRow {
    /// A sound record that is done and within its time; then fencing number, fingerprint and value follow.
    pub(super) const CONSUMED: i64 = 2;
    /// The claim supplies the key. The row supplies the fencing number, the attempt and the previous grant.
    pub(super) const GRANTED: i64 = 1;
    /// The claim marked the key dead instead of granting it.
    pub(super) const WROTE: i64 = -1;
    /// The record is in another state.
    pub(super) const OTHER: i64 = 0;

    pub(super) fn read(row: &SqliteRow, request: &ClaimRequest) -> Result<Self, sqlx::Error> {
        let fencing = || Ok::<_, sqlx::Error>(FencingToken(row.try_get::<i64, _>(1)?.unsigned_abs()));
        Ok(match row.try_get::<i64, _>(0)? {
            Self::CONSUMED => Self::Answered(consumed(fencing()?, row.try_get(2)?, row.try_get(3)?, request)),
            Self::GRANTED => Self::Answered(Claim::Acquired(Grant {
                fencing: fencing()?,
                attempt: u32::try_from(row.try_get::<i64, _>(2)?).unwrap_or(u32::MAX),
                lease: request.lease,
                taken_over: row.try_get::<Option<i64>, _>(3)?.map(|fencing| FencingToken(fencing.unsigned_abs())),
            })),
            wrote => Self::Look { wrote: wrote == Self::WROTE },
        })
    }
}

/// Returns the answer of the protocol, which only compares the fingerprint.
fn consumed(fencing: FencingToken, fingerprint: Option<&[u8]>, value: Option<&[u8]>, request: &ClaimRequest) -> Claim {
    let fingerprint = fingerprint.and_then(|bytes| bytes.try_into().ok()).map(Fingerprint::from_bytes);
    let state = State::Consumed { owner: OwnerToken::NOT_KEPT, value: value.map(Arc::from) };
    let (then, end) = (Timestamp(0), Timestamp(u64::MAX));
    let record = Record {
        fencing,
        attempt: 0,
        fingerprint,
        state,
        expires_at: end,
        first_seen: then,
        updated_at: then,
        display: None,
    };
    protocol::claim(Some(&record), request, then).0
}
