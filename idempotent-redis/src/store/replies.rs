//! Interpretation of script replies.
//!
//! A script performs the writes of the protocol. For every other case the script returns the unchanged record, and the
//! protocol's own functions decide here.
use std::time::Duration;

use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimRequest, Consumed, Dead, FencingToken, Grant, Key, Record, RecordEntry, Settled, State, StoreError,
    StoreErrorKind, Timestamp,
};

use crate::batching::call::reply::{ReplyBody, ScriptReply};
use crate::cache::{CacheGeneration, ConsumedCache, PayloadKnowledge};
use crate::record::decode;

/// Returns the result of a claim, and caches a consumed key.
pub(crate) fn claim(
    answer: ScriptReply,
    request: &ClaimRequest,
    cache: &ConsumedCache,
    generation: Option<CacheGeneration>,
) -> Result<Claim, StoreError> {
    let now = Timestamp(answer.now);
    let ReplyBody::Tagged(reply) = answer.body else {
        // The key was free: the fencing number is the server time.
        let fencing = FencingToken(answer.now);
        return Ok(Claim::Acquired(Grant { fencing, attempt: 1, lease: request.lease, taken_over: None }));
    };
    match reply.split_first() {
        Some((b'G', granted)) => grant(granted, request),
        Some((b'D', record)) => match decode(record, Timestamp::FOREVER)? {
            Record { fencing, attempt, state: State::Dead { error }, .. } => {
                Ok(Claim::Dead(Dead { attempts: attempt, fencing, error }))
            }
            _ => Err(disagrees()),
        },
        Some((b'T', rest)) => {
            let (rest, bytes) = rest.split_at_checked(16).ok_or_else(disagrees)?;
            let rest = std::str::from_utf8(rest).ok().and_then(|ms| ms.trim().parse::<i64>().ok());
            let rest = rest.ok_or_else(disagrees)?;
            let record = decode(bytes, Timestamp::FOREVER)?;
            let rest = u64::try_from(rest).map_or(Duration::MAX, Duration::from_millis);
            if let State::Consumed { value, .. } = &record.state {
                let consumed = Consumed { fencing: record.fencing, value: value.clone() };
                cache.insert(&request.key, generation, rest, PayloadKnowledge::Known(record.fingerprint), &consumed);
            }
            kept(protocol::claim(Some(&record), request, now))
        }
        Some((b'R', bytes)) => kept(protocol::claim(Some(&decode(bytes, Timestamp::FOREVER)?), request, now)),
        _ => Err(disagrees()),
    }
}

/// Parses a grant: taken-over number (7 bytes), fencing number (16 digits) and attempt (10 digits).
fn grant(granted: &[u8], request: &ClaimRequest) -> Result<Claim, StoreError> {
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u64>().ok();
    let (Some((over, counts)), lease) = (granted.split_first_chunk::<7>(), request.lease) else {
        return Err(disagrees());
    };
    let [a, b, c, d, e, f, g] = *over;
    let over = FencingToken(u64::from_be_bytes([0, a, b, c, d, e, f, g]));
    let (fencing, attempt) = counts.split_at_checked(16).ok_or_else(disagrees)?;
    let attempt = number(attempt).and_then(|attempt| u32::try_from(attempt).ok()).ok_or_else(disagrees)?;
    let fencing = FencingToken(number(fencing).ok_or_else(disagrees)?);
    Ok(Claim::Acquired(Grant { fencing, attempt, lease, taken_over: Some(over).filter(|over| over.0 > 0) }))
}

/// Returns the result of a renewal, completion or release.
pub(crate) fn settled(
    answer: &ScriptReply,
    decide: impl FnOnce(Option<&Record>, Timestamp) -> (Settled, Write),
) -> Result<Settled, StoreError> {
    let now = Timestamp(answer.now);
    let ReplyBody::Tagged(reply) = &answer.body else { return Ok(Settled::Done) };
    match reply.split_first() {
        Some((b'A', _)) => kept(decide(None, now)),
        Some((b'R', bytes)) => kept(decide(Some(&decode(bytes, Timestamp::FOREVER)?), now)),
        _ => Err(disagrees()),
    }
}

/// Returns the value of a key, even if it has expired, and the server time.
pub(crate) fn seen(answer: ScriptReply) -> Result<Option<(Record, Timestamp)>, StoreError> {
    let now = Timestamp(answer.now);
    let ReplyBody::Value(Some(reply), ends) = answer.body else { return Ok(None) };
    let expires = u64::try_from(ends).map_or(Timestamp::FOREVER, |ends| Timestamp(ends.saturating_mul(1_000)));
    match reply.split_first() {
        Some((b'R', bytes)) => Ok(Some((decode(bytes, expires)?, now))),
        _ => Err(disagrees()),
    }
}

/// Returns the record that a search has read, without its result, or `None` if the search has not read it.
pub(crate) fn found(key: &Key, answer: ScriptReply) -> Result<Option<RecordEntry>, StoreError> {
    let ReplyBody::Value(Some(reply), ends) = answer.body else { return Ok(None) };
    let expires = u64::try_from(ends).map_or(Timestamp::FOREVER, |ends| Timestamp(ends.saturating_mul(1_000)));
    match reply.split_first() {
        Some((b'R', bytes)) => Ok(Some(RecordEntry::new(key.clone(), decode(bytes, expires)?))),
        Some((b'C', rest)) => {
            let at = rest.iter().position(|byte| *byte == b' ').ok_or_else(disagrees)?;
            let length = std::str::from_utf8(&rest[..at]).ok().and_then(|length| length.parse::<i64>().ok());
            let head = &rest[at + 1..];
            let entry = RecordEntry::new(key.clone(), decode(head, expires)?);
            // The head ends within the result.
            let unread =
                u64::try_from(length.ok_or_else(disagrees)?).ok().and_then(|all| all.checked_sub(head.len() as u64));
            let bytes = entry.result_bytes.zip(unread).map(|(read, unread)| read + unread);
            Ok(Some(entry.with_result_bytes(bytes)))
        }
        _ => Err(disagrees()),
    }
}

/// Checks that the protocol agrees with a script that wrote nothing.
fn kept<T>((answer, write): (T, Write)) -> Result<T, StoreError> {
    if write == Write::Keep { Ok(answer) } else { Err(disagrees()) }
}

fn disagrees() -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt).because(
        "a script skipped a write that the protocol requires: a field of the record is out of range, or this is a bug",
    )
}
