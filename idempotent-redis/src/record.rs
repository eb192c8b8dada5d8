//! The stored form of a record; see `docs/redis-layout.md`.
//!
//! ```text
//! consuming, vacant, failed, dead:
//!     version 0x81 | state P V F D | fencing, 16 digits | attempt, its last 3 digits | owner 16 | flags
//!     | [fingerprint 17] | [display: length u32 + text] | error text
//!     | first seen 7 | updated 7 | until 7 | kept 7 | taken over 7 | attempt, its first 7 digits
//! consumed, short:   fencing, 16 digits | attempt, 3 digits
//! consumed, long:    version 0x81 | 0x60 + flags | fencing 7 | attempt 2 or 4 | [fingerprint 17] | [owner 16] | [value]
//! ```
//!
//! Numbers are big-endian, times in µs. `until` is the end of a lease, the `not_before` of a vacancy, or the last
//! write. The record is valid until `until + kept`.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    ClaimHandle, ClaimRequest, FencingToken, Fingerprint, OwnerToken, Record, State, StoreError, StoreErrorKind,
    Timestamp,
};

/// Version byte of the records that this version writes. No UTF-8 text begins with this byte. Later versions use the
/// bytes after it.
pub(crate) const VERSION: u8 = 0x81;
const VERSIONS: std::ops::RangeInclusive<u8> = 0x80..=0x8f;
const TIMES: usize = 5 * 7;
const FENCING: usize = 16;
/// Number of low-order digits of the attempt. Short consumed records store only these; other records store the
/// `THOUSANDS` separately.
const ATTEMPT: usize = 3;
const THOUSANDS: usize = 7;
const FIRST: &[u8; ATTEMPT] = b"001";

const SEEN: u8 = 1;
const SHOWN: u8 = 2;
/// Flag: a caller waits for the run to end.
const WATCHED: u8 = 4;
const OWNED: u8 = 2;
const VALUED: u8 = 4;
const WIDE: u8 = 8;
const CONSUMED: u8 = 0x60;

/// Suffix of a record's key for the steps of its run.
pub(crate) const STEPS_SUFFIX: &str = ":steps";
/// Suffix of a stream's key for its order table.
pub(crate) const ORDER_TABLE_SUFFIX: &str = ":line";

/// Longest duration in scripts: 100 years. Longer durations count as forever.
pub(crate) const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Converts to whole µs, rounded up, at most [`LONGEST`].
pub(crate) fn micros(span: Duration) -> u64 {
    let span = span.min(LONGEST);
    span.as_secs() * 1_000_000 + u64::from(span.subsec_nanos().div_ceil(1_000))
}

/// Converts to whole ms, rounded up, at least 1.
pub(crate) fn millis(span: Duration) -> u64 {
    micros(span).div_ceil(1_000).max(1)
}

/// Encodes the part of a claimed record between the fencing number and the times, which the server sets.
pub(crate) fn claimed(request: &ClaimRequest) -> Arc<[u8]> {
    if request.fingerprint.is_none() && request.display.is_none() {
        let mut out = [0; 16 + 1];
        out[..16].copy_from_slice(&request.owner.0.to_be_bytes());
        return Arc::new(out);
    }
    let mut out = Vec::with_capacity(34);
    extend_with_claim(&mut out, request.owner, request.fingerprint, request.display.as_deref());
    out.into()
}

fn extend_with_claim(out: &mut Vec<u8>, owner: OwnerToken, fingerprint: Option<Fingerprint>, display: Option<&str>) {
    out.extend(owner.0.to_be_bytes());
    let seen = if fingerprint.is_some() { SEEN } else { 0 };
    let shown = if display.is_some() { SHOWN } else { 0 };
    out.push(seen | shown);
    if let Some(fingerprint) = fingerprint {
        out.extend(fingerprint.to_bytes());
    }
    if let Some(display) = display {
        // Policies keep the text far below any limit.
        out.extend(u32::try_from(display.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend(display.as_bytes());
    }
}

/// Encodes the record of a first grant, as the claim script writes it. Returns `None` if the terms or the fencing number
/// are unknown.
pub(crate) fn granted_record(held: &ClaimHandle) -> Option<Arc<[u8]>> {
    let (terms, fencing) = (held.terms.as_ref()?, held.fencing?);
    let mut out = Vec::with_capacity(2 + FENCING + ATTEMPT + 34 + TIMES + THOUSANDS);
    out.extend([VERSION, b'P']);
    out.extend(digits(fencing));
    out.extend(FIRST);
    extend_with_claim(&mut out, held.owner, terms.fingerprint, terms.display.as_deref());
    let until = fencing.0.checked_add(micros(terms.lease).max(1))?;
    for time in [fencing.0, fencing.0, until, micros(terms.retention), 0] {
        out.extend(&time.to_be_bytes()[1..]);
    }
    out.extend([b'0'; THOUSANDS]);
    Some(out.into())
}

/// Encodes the consumed record of a first attempt with this fencing number.
pub(crate) fn consumed_record(
    fencing: FencingToken,
    fingerprint: Option<Fingerprint>,
    value: Option<&[u8]>,
) -> Arc<[u8]> {
    if fingerprint.is_none() && value.is_none() {
        let mut out = [0; FENCING + ATTEMPT];
        out[..FENCING].copy_from_slice(&digits(fencing));
        out[FENCING..].copy_from_slice(FIRST);
        return Arc::new(out);
    }
    let mut out = Vec::with_capacity(2 + 7 + 2 + 17 + value.map_or(0, <[u8]>::len));
    let seen = if fingerprint.is_some() { SEEN } else { 0 };
    let valued = if value.is_some() { VALUED } else { 0 };
    out.extend([VERSION, CONSUMED + (seen | valued)]);
    out.extend(&fencing.0.to_be_bytes()[1..]);
    out.extend(1_u16.to_be_bytes());
    if let Some(fingerprint) = fingerprint {
        out.extend(fingerprint.to_bytes());
    }
    out.extend(value.unwrap_or_default());
    out.into()
}

/// Returns the usual first bytes of a held record: first attempt, no flags. Without a fencing number, the number and
/// the attempt are left out.
pub(crate) fn guard(held: &ClaimHandle) -> Arc<[u8]> {
    const NUMBER: usize = 2 + FENCING;
    const OWNER: usize = NUMBER + ATTEMPT;
    let owner = held.owner.0.to_be_bytes();
    let Some(fencing) = held.fencing else {
        return [&[VERSION, b'P'][..], &owner, &[0]].concat().into();
    };
    let mut out = [0; OWNER + 16 + 1];
    out[..2].copy_from_slice(&[VERSION, b'P']);
    out[2..NUMBER].copy_from_slice(&digits(fencing));
    out[NUMBER..OWNER].copy_from_slice(FIRST);
    out[OWNER..OWNER + 16].copy_from_slice(&owner);
    Arc::new(out)
}

/// Encodes a fencing number as in records.
pub(crate) fn digits(fencing: FencingToken) -> [u8; FENCING] {
    let mut out = [b'0'; FENCING];
    let mut rest = fencing.0;
    for place in out.iter_mut().rev() {
        *place = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
    }
    out
}

/// Decodes a record strictly. `expires` is the expiry time of the key itself.
///
/// # Errors
/// The same as `Record::from_bytes`.
pub(crate) fn decode(bytes: &[u8], expires: Timestamp) -> Result<Record, StoreError> {
    if bytes.len() == FENCING + ATTEMPT && bytes.iter().all(u8::is_ascii_digit) {
        let (fencing, attempt) = bytes.split_at(FENCING);
        let attempt = u32::try_from(number("attempt", attempt)?).unwrap_or(u32::MAX);
        let state = State::Consumed { owner: OwnerToken::NOT_KEPT, value: None };
        return checked(consumed(number("fencing", fencing)?, attempt, None, state, expires));
    }
    let mut rest = match bytes {
        [VERSION, rest @ ..] => FieldReader(rest),
        [version, ..] if VERSIONS.contains(version) => {
            let found = version - VERSIONS.start();
            return Err(StoreError::new(StoreErrorKind::UnknownVersion)
                .because(format!("found version {found}, supported is {}", VERSION - VERSIONS.start())));
        }
        _ => return Err(foreign("it does not begin as a record does")),
    };
    let [state] = rest.take("state")?;
    match state {
        b'P' | b'V' | b'F' | b'D' => checked(rest.standing(state)?),
        b'T' | b'B' => {
            Err(foreign("the value is the fact of a tiered store; give that store a database or namespace of its own"))
        }
        CONSUMED..=0x6f => checked(rest.consumed(state - CONSUMED, expires)?),
        other => Err(corrupt("state", &format!("is {other:#04x}, which is none"))),
    }
}

pub(crate) fn foreign(why: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Foreign).because(why)
}

fn checked(record: Record) -> Result<Record, StoreError> {
    record.check()?;
    Ok(record)
}

fn consumed(fencing: u64, attempt: u32, fingerprint: Option<Fingerprint>, state: State, expires: Timestamp) -> Record {
    // The record keeps no other time. The fencing number is the time of the grant, or later if the number ran ahead.
    let granted = Timestamp(fencing);
    Record {
        fencing: FencingToken(fencing),
        attempt,
        fingerprint,
        state,
        expires_at: expires,
        first_seen: granted,
        updated_at: granted,
        display: None,
    }
}

fn corrupt(field: &str, what: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt).because(format!("field `{field}` {what}"))
}

fn number(field: &str, digits: &[u8]) -> Result<u64, StoreError> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    text.and_then(|text| text.parse().ok()).ok_or_else(|| corrupt(field, "is not a number"))
}

struct FieldReader<'a>(&'a [u8]);

impl<'a> FieldReader<'a> {
    fn take<const N: usize>(&mut self, field: &str) -> Result<[u8; N], StoreError> {
        let Some((taken, rest)) = self.0.split_first_chunk::<N>() else { return Err(corrupt(field, "is cut off")) };
        self.0 = rest;
        Ok(*taken)
    }

    fn seven(&mut self, field: &str) -> Result<u64, StoreError> {
        let [a, b, c, d, e, f, g] = self.take(field)?;
        Ok(u64::from_be_bytes([0, a, b, c, d, e, f, g]))
    }

    /// Removes the last `length` bytes and returns them.
    fn last(&mut self, field: &str, length: usize) -> Result<&'a [u8], StoreError> {
        let at = self.0.len().checked_sub(length).ok_or_else(|| corrupt(field, "is cut off"))?;
        let (rest, last) = self.0.split_at(at);
        self.0 = rest;
        Ok(last)
    }

    fn fingerprint(&mut self, seen: bool) -> Result<Option<Fingerprint>, StoreError> {
        seen.then(|| self.take("fingerprint").map(Fingerprint::from_bytes)).transpose()
    }

    fn owner(&mut self) -> Result<OwnerToken, StoreError> {
        self.take("owner").map(|bytes| OwnerToken(u128::from_be_bytes(bytes)))
    }

    /// Reads a record in any state but consumed.
    fn standing(&mut self, state: u8) -> Result<Record, StoreError> {
        let fencing = FencingToken(number("fencing", &self.take::<FENCING>("fencing")?)?);
        let below = number("attempt", &self.take::<ATTEMPT>("attempt")?)?;
        let attempt = number("attempt", self.last("attempt", THOUSANDS)?)? * 1_000 + below;
        let attempt = u32::try_from(attempt).map_err(|_| corrupt("attempt", "is 2^32 or more"))?;
        let mut times = FieldReader(self.last("times", TIMES)?);
        let owner = self.owner()?;
        let [flags] = self.take("flags")?;
        if flags & !(SEEN | SHOWN | WATCHED) != 0 {
            return Err(corrupt("flags", &format!("are {flags:#04x}, which are none")));
        }
        let fingerprint = self.fingerprint(flags & SEEN != 0)?;
        let display = if flags & SHOWN != 0 { Some(self.display()?) } else { None };
        let error: Arc<str> = std::str::from_utf8(self.0).map_err(|_| corrupt("error", "is not UTF-8"))?.into();
        let first_seen = Timestamp(times.seven("first_seen")?);
        let updated_at = Timestamp(times.seven("updated_at")?);
        let until = Timestamp(times.seven("until")?);
        let expires_at = Timestamp(until.0 + times.seven("kept")?);
        let taken_over = Some(FencingToken(times.seven("taken_over")?)).filter(|fencing| fencing.0 > 0);
        let state = match state {
            b'P' if !error.is_empty() => return Err(corrupt("error", "stands in a consuming record")),
            b'P' => State::Consuming { owner, until, taken_over },
            b'V' => State::Vacant { not_before: until, error, taken_over },
            b'F' => State::Failed { error },
            _ => State::Dead { error },
        };
        Ok(Record { fencing, attempt, fingerprint, state, expires_at, first_seen, updated_at, display })
    }

    fn display(&mut self) -> Result<Arc<str>, StoreError> {
        let length = u32::from_be_bytes(self.take("display")?);
        let cut = || corrupt("display", "is cut off");
        let (text, rest) = usize::try_from(length).ok().and_then(|at| self.0.split_at_checked(at)).ok_or_else(cut)?;
        self.0 = rest;
        std::str::from_utf8(text).map(Arc::from).map_err(|_| corrupt("display", "is not UTF-8"))
    }

    fn consumed(&mut self, flags: u8, expires: Timestamp) -> Result<Record, StoreError> {
        let fencing = self.seven("fencing")?;
        let attempt = if flags & WIDE != 0 {
            u32::from_be_bytes(self.take("attempt")?)
        } else {
            u16::from_be_bytes(self.take("attempt")?).into()
        };
        let fingerprint = self.fingerprint(flags & SEEN != 0)?;
        let owner = if flags & OWNED != 0 { self.owner()? } else { OwnerToken::NOT_KEPT };
        let value = if flags & VALUED != 0 {
            Some(Arc::from(self.0))
        } else if self.0.is_empty() {
            None
        } else {
            return Err(corrupt("end", "has bytes left over"));
        };
        Ok(consumed(fencing, attempt, fingerprint, State::Consumed { owner, value }, expires))
    }
}

#[cfg(test)]
mod tests;
