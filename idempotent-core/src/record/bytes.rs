//! The stored form of a [`Record`]: a compact, versioned binary format with a checksum.
//!
//! ```text
//! "id" | major u8 | minor u8 | body | first 4 bytes of the SHA-256 of all before
//! body: state u8 | fencing u64 | attempt u32 | expires u64 | first u64 | updated u64
//!     | fingerprint: 0, or algorithm u8 + 16 bytes | display: text | the state's own fields
//! text, blob: length u32 + bytes (u32::MAX: none); numbers little-endian
//! ```
//! A reader skips the fields that a higher minor version appends. A reader refuses a higher major version and leaves
//! the record unchanged.
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{Record, State, Timestamp};
use crate::{FencingToken, Fingerprint, OwnerToken, StoreError, StoreErrorKind};

const MAGIC: [u8; 2] = *b"id";
const MAJOR: u8 = 1;
const MINOR: u8 = 0;
const SUM: usize = 4;

impl Record {
    /// Encodes the record into its stored form.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        out.extend(MAGIC);
        out.extend([MAJOR, MINOR, state_code(&self.state)]);
        out.extend(self.fencing.0.to_le_bytes());
        out.extend(self.attempt.to_le_bytes());
        for time in [self.expires_at, self.first_seen, self.updated_at] {
            out.extend(time.0.to_le_bytes());
        }
        match &self.fingerprint {
            Some(fingerprint) => out.extend(fingerprint.to_bytes()),
            None => out.push(0),
        }
        push_blob(&mut out, self.display.as_deref().map(str::as_bytes));
        match &self.state {
            State::Vacant { not_before, error, taken_over } => {
                out.extend(not_before.0.to_le_bytes());
                out.extend(taken_over.map_or(0, |fencing| fencing.0).to_le_bytes());
                push_blob(&mut out, Some(error.as_bytes()));
            }
            State::Consuming { owner, until, taken_over } => {
                out.extend(owner.0.to_le_bytes());
                out.extend(until.0.to_le_bytes());
                out.extend(taken_over.map_or(0, |fencing| fencing.0).to_le_bytes());
            }
            State::Consumed { owner, value } => {
                out.extend(owner.0.to_le_bytes());
                push_blob(&mut out, value.as_deref());
            }
            State::Failed { error } | State::Dead { error } => push_blob(&mut out, Some(error.as_bytes())),
        }
        let sum = Sha256::digest(&out);
        out.extend(&sum[..SUM]);
        out
    }

    /// Decodes the stored form of a record. The decoder is strict.
    ///
    /// # Errors
    /// - [`Foreign`](StoreErrorKind::Foreign) if the bytes are not a record.
    /// - [`UnknownVersion`](StoreErrorKind::UnknownVersion) if a newer version wrote the record.
    /// - [`Corrupt`](StoreErrorKind::Corrupt), with the name of the field, if the record is damaged.
    ///
    /// In each case leave the stored bytes unchanged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        let Some(rest) = bytes.strip_prefix(&MAGIC) else {
            return Err(
                StoreError::new(StoreErrorKind::Foreign).because("the bytes do not begin with the marker of a record")
            );
        };
        let [major, minor, ..] = *rest else { return Err(corrupt("version", "is cut off")) };
        if major != MAJOR {
            return Err(StoreError::new(StoreErrorKind::UnknownVersion)
                .because(format!("found version {major}.{minor}, supported is {MAJOR}.{MINOR}")));
        }
        let Some((content, sum)) = bytes.split_last_chunk::<SUM>() else {
            return Err(corrupt("checksum", "is cut off"));
        };
        if Sha256::digest(content)[..SUM] != *sum {
            return Err(corrupt("checksum", "does not match: bytes are missing or changed"));
        }
        let mut body = RecordReader(content.get(4..).unwrap_or_default());
        let record = body.record()?;
        record.check()?;
        match (minor, body.0) {
            (0, [_, ..]) => Err(corrupt("end", "has trailing bytes")),
            _ => Ok(record),
        }
    }
}

fn state_code(state: &State) -> u8 {
    match state {
        State::Vacant { .. } => 0,
        State::Consuming { .. } => 1,
        State::Consumed { .. } => 2,
        State::Failed { .. } => 3,
        State::Dead { .. } => 4,
    }
}

fn push_blob(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    let length = bytes.map_or(u32::MAX, |bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX - 1));
    out.extend(length.to_le_bytes());
    out.extend(bytes.unwrap_or_default());
}

fn corrupt(field: &str, what: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt).because(format!("field `{field}` {what}"))
}

struct RecordReader<'a>(&'a [u8]);

impl<'a> RecordReader<'a> {
    fn record(&mut self) -> Result<Record, StoreError> {
        let [state] = self.take("state")?;
        let fencing = FencingToken(self.u64("fencing")?);
        let attempt = u32::from_le_bytes(self.take("attempt")?);
        let expires_at = self.time("expires_at")?;
        let first_seen = self.time("first_seen")?;
        let updated_at = self.time("updated_at")?;
        let fingerprint = self.fingerprint()?;
        let display = self.blob("display")?.map(|bytes| text("display", bytes)).transpose()?;
        let state = match state {
            0 => State::Vacant {
                not_before: self.time("not_before")?,
                taken_over: self.taken_over()?,
                error: self.text("error")?,
            },
            1 => State::Consuming { owner: self.owner()?, until: self.time("until")?, taken_over: self.taken_over()? },
            2 => State::Consumed { owner: self.owner()?, value: self.blob("value")?.map(Arc::from) },
            3 => State::Failed { error: self.text("error")? },
            4 => State::Dead { error: self.text("error")? },
            other => return Err(corrupt("state", &format!("is {other}, allowed are 0 to 4"))),
        };
        Ok(Record { fencing, attempt, fingerprint, state, expires_at, first_seen, updated_at, display })
    }

    fn take<const N: usize>(&mut self, field: &str) -> Result<[u8; N], StoreError> {
        let Some((taken, rest)) = self.0.split_first_chunk::<N>() else { return Err(corrupt(field, "is cut off")) };
        self.0 = rest;
        Ok(*taken)
    }

    fn u64(&mut self, field: &str) -> Result<u64, StoreError> {
        self.take(field).map(u64::from_le_bytes)
    }

    fn time(&mut self, field: &str) -> Result<Timestamp, StoreError> {
        match Timestamp(self.u64(field)?) {
            time if time <= Timestamp::FOREVER => Ok(time),
            _ => Err(corrupt(field, "is later than the latest time")),
        }
    }

    fn taken_over(&mut self) -> Result<Option<FencingToken>, StoreError> {
        let number = self.u64("taken_over")?;
        Ok((number > 0).then_some(FencingToken(number)))
    }

    fn owner(&mut self) -> Result<OwnerToken, StoreError> {
        self.take("owner").map(|bytes| OwnerToken(u128::from_le_bytes(bytes)))
    }

    fn fingerprint(&mut self) -> Result<Option<Fingerprint>, StoreError> {
        let [algorithm] = self.take("fingerprint")?;
        if algorithm == 0 {
            return Ok(None);
        }
        let mut bytes = [algorithm; Fingerprint::LEN];
        bytes[1..].copy_from_slice(&self.take::<16>("fingerprint")?);
        Ok(Some(Fingerprint::from_bytes(bytes)))
    }

    fn blob(&mut self, field: &str) -> Result<Option<&'a [u8]>, StoreError> {
        let length = u32::from_le_bytes(self.take(field)?);
        if length == u32::MAX {
            return Ok(None);
        }
        let (taken, rest) = usize::try_from(length)
            .ok()
            .and_then(|n| self.0.split_at_checked(n))
            .ok_or_else(|| corrupt(field, "is cut off"))?;
        self.0 = rest;
        Ok(Some(taken))
    }

    fn text(&mut self, field: &str) -> Result<Arc<str>, StoreError> {
        self.blob(field)?.map_or_else(|| Err(corrupt(field, "is missing")), |bytes| text(field, bytes))
    }
}

fn text(field: &str, bytes: &[u8]) -> Result<Arc<str>, StoreError> {
    std::str::from_utf8(bytes).map(Arc::from).map_err(|_| corrupt(field, "is not UTF-8"))
}
