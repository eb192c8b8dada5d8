//! The stored form of a record: a written record is read back, and a read record is written back, byte for byte.
use std::sync::Arc;

use arbitrary::{Arbitrary, Result, Unstructured};
use idempotent_core::{FencingToken, Fingerprint, OwnerToken, Record, State, StoreError, StoreErrorKind, Timestamp};
use sha2::{Digest, Sha256};

/// The functions under test.
#[derive(Debug)]
pub struct Form {
    /// Encodes a record, as [`Record::to_bytes`] does.
    pub encode: fn(&Record) -> Vec<u8>,
    /// Decodes a record, as [`Record::from_bytes`] does.
    pub decode: fn(&[u8]) -> std::result::Result<Record, StoreError>,
}

impl Form {
    /// The real functions.
    pub const REAL: Self = Self { encode: Record::to_bytes, decode: Record::from_bytes };
}

/// Checks the input as it is, as a body with a corrected checksum, and as the fields of a record to write.
pub fn hold(form: &Form, input: &[u8]) -> &'static str {
    read(form, input);
    if let Ok(record) = drawn(&mut Unstructured::new(input)) {
        written(form, &record);
    }
    read(form, &sealed(input))
}

fn read(form: &Form, bytes: &[u8]) -> &'static str {
    match (form.decode)(bytes) {
        Ok(record) => {
            record.check().expect("what is read keeps the rules");
            let again = (form.encode)(&record);
            assert_eq!((form.decode)(&again).expect("what is written is read"), record);
            // A newer minor version may have appended data. Otherwise, each record has exactly one form.
            let (body, again) = (&bytes[4..bytes.len() - 4], &again[4..again.len() - 4]);
            assert!(body.starts_with(again), "what is read is written back as it was");
            if bytes[3] == 0 {
                assert_eq!(body.len(), again.len(), "nothing is left over");
                "read"
            } else {
                "read of a newer minor version"
            }
        }
        Err(error) => refused(bytes, &error),
    }
}

fn written(form: &Form, record: &Record) {
    let found = (form.decode)(&(form.encode)(record));
    match at_fault(record) {
        None => assert_eq!(&found.expect("what is written is read"), record),
        Some(field) => {
            let error = found.expect_err("what the rules refuse is not read");
            assert_eq!(error.kind(), StoreErrorKind::Corrupt);
            assert!(error.to_string().contains(&format!("field `{field}`")), "{field}: {error}");
        }
    }
}

/// Returns the first invalid field in stored order, or else the error of two fields together.
fn at_fault(record: &Record) -> Option<&'static str> {
    let its = match record.state {
        State::Vacant { not_before, .. } => ("not_before", not_before),
        State::Consuming { until, .. } => ("until", until),
        _ => ("", Timestamp(0)),
    };
    let times =
        [("expires_at", record.expires_at), ("first_seen", record.first_seen), ("updated_at", record.updated_at), its];
    if let Some((field, _)) = times.into_iter().find(|(_, time)| *time > Timestamp::FOREVER) {
        return Some(field);
    }
    match record.state {
        _ if record.fencing.0 >= 1 << 53 => Some("fencing"),
        State::Consuming { until, .. } if until > record.updated_at + Record::LONGEST_LEASE => Some("until"),
        _ => None,
    }
}

/// Checks the whole text of the error: it names the field, and shows no part of the record.
fn refused(bytes: &[u8], error: &StoreError) -> &'static str {
    let text = error.to_string();
    match error.kind() {
        StoreErrorKind::Foreign => {
            assert!(!bytes.starts_with(b"id"));
            assert_eq!(
                text,
                "the key holds a value that this library did not write; it was left unchanged: the bytes do not begin with the marker of a record"
            );
            "foreign"
        }
        StoreErrorKind::UnknownVersion => {
            assert_ne!(bytes[2], 1);
            let (major, minor) = (bytes[2], bytes[3]);
            let known = "a newer version wrote the record; it was left unchanged: found version";
            assert_eq!(text, format!("{known} {major}.{minor}, supported is 1.0"));
            "unknown version"
        }
        StoreErrorKind::Corrupt => {
            let rest = text.strip_prefix("the record is corrupt and was left unchanged: field `").unwrap();
            let (field, what) = rest.split_once("` ").unwrap();
            assert!(FIELDS.contains(&field), "{text}");
            let state = bytes.get(4).map(|state| format!("is {state}, allowed are 0 to 4"));
            assert!(REASONS.contains(&what) || (field == "state" && Some(what) == state.as_deref()), "{text}");
            "corrupt"
        }
        _ => panic!("{text}"),
    }
}

const FIELDS: [&str; 17] = [
    "version",
    "checksum",
    "state",
    "fencing",
    "attempt",
    "expires_at",
    "first_seen",
    "updated_at",
    "fingerprint",
    "display",
    "not_before",
    "taken_over",
    "error",
    "owner",
    "until",
    "value",
    "end",
];

const REASONS: [&str; 8] = [
    "is cut off",
    "does not match: bytes are missing or changed",
    "has trailing bytes",
    "is later than the latest time",
    "is missing",
    "is not UTF-8",
    "is 2^53 or more",
    "is more than 31 days after the record's last write",
];

/// Seals the input with a correct checksum, like a writer that knows the format.
#[must_use]
pub fn sealed(input: &[u8]) -> Vec<u8> {
    let mut bytes = match input.strip_prefix(b"id") {
        Some(_) => input[..input.len().saturating_sub(4).max(2)].to_vec(),
        None => [&[b'i', b'd', 1, 0], input].concat(),
    };
    bytes.extend(&Sha256::digest(&bytes)[..4]);
    bytes
}

fn drawn(from: &mut Unstructured<'_>) -> Result<Record> {
    let updated_at = time(from)?;
    Ok(Record {
        // Mostly below 2^53.
        fencing: FencingToken(u64::arbitrary(from)? >> from.int_in_range(8..=40)?),
        attempt: from.arbitrary()?,
        fingerprint: Option::<[u8; Fingerprint::LEN]>::arbitrary(from)?.map(|mut bytes| {
            bytes[0] = bytes[0].max(1); // 0 means that there is none
            Fingerprint::from_bytes(bytes)
        }),
        expires_at: time(from)?,
        first_seen: time(from)?,
        updated_at,
        display: Option::<&str>::arbitrary(from)?.map(Arc::from),
        state: state(from, updated_at)?,
    })
}

fn state(from: &mut Unstructured<'_>, updated_at: Timestamp) -> Result<State> {
    let taken_over = |from: &mut Unstructured<'_>| {
        Ok(Option::<u64>::arbitrary(from)?.filter(|number| *number > 0).map(FencingToken))
    };
    let owner = OwnerToken(from.arbitrary()?);
    Ok(match from.int_in_range(0..=4)? {
        0 => State::Vacant { not_before: time(from)?, taken_over: taken_over(from)?, error: from.arbitrary()? },
        1 => {
            let until =
                Timestamp(updated_at.0.saturating_add(u64::from(u32::arbitrary(from)?) << from.int_in_range(0..=16)?));
            State::Consuming { owner, until, taken_over: taken_over(from)? }
        }
        2 => State::Consumed { owner, value: Option::<&[u8]>::arbitrary(from)?.map(Arc::from) },
        3 => State::Failed { error: from.arbitrary()? },
        _ => State::Dead { error: from.arbitrary()? },
    })
}

/// Returns any time, and in one of eight cases a time after the maximum.
fn time(from: &mut Unstructured<'_>) -> Result<Timestamp> {
    let past: u8 = from.arbitrary()?;
    Ok(Timestamp(u64::arbitrary(from)? >> 1 | u64::from(past % 8 == 7) << 63))
}
