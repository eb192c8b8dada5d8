//! The items of a table: the stored form of records.
use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use idempotent_core::protocol::CAS_MARGIN;
use idempotent_core::{Key, Record, State, StoreError, StoreErrorKind, Timestamp, Version};

/// The partition key: the text of the record's key, at most 145 bytes. DynamoDB accepts 2,048.
pub(crate) const ID: &str = "id";
/// A random number, another one after each write.
pub(crate) const VERSION: &str = "version";
/// The time of the deletion, in seconds since 1970.
pub(crate) const TTL: &str = "ttl";
/// The bytes of the record.
const RECORD: &str = "record";
/// The longest TTL. A record that lives longer is never removed.
const LONGEST_TTL: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The largest record, in bytes. An item has at most 400 KB, with the names and the other attributes.
const LARGEST: usize = 399_000;

pub(crate) type Attributes = HashMap<String, AttributeValue>;

/// Returns the partition key of a key's item.
pub(crate) fn id(key: &Key) -> AttributeValue {
    AttributeValue::S(key.as_str().to_owned())
}

pub(crate) fn of(key: &Key, version: Version, record: &Record) -> Attributes {
    let mut item = Attributes::from([
        (ID.to_owned(), id(key)),
        (VERSION.to_owned(), AttributeValue::N(version.to_string())),
        (RECORD.to_owned(), AttributeValue::B(Blob::new(bytes(key, record)))),
    ]);
    if let Some(second) = removal(record) {
        item.insert(TTL.to_owned(), AttributeValue::N(second.to_string()));
    }
    item
}

/// Returns the bytes of a record. A record that has no room in an item loses its result, as if the result were larger than `max_result` of
/// the policy: an error would let the key be taken over after its run.
fn bytes(key: &Key, record: &Record) -> Vec<u8> {
    let whole = record.to_bytes();
    match &record.state {
        State::Consumed { owner, value: Some(_) } if whole.len() > LARGEST => {
            tracing::warn!(target: "idempotent", %key, bytes = whole.len(),
                "the result is not kept, because an item of DynamoDB has at most 400 KB; lower `max_result` of the policy");
            Record { state: State::Consumed { owner: *owner, value: None }, ..record.clone() }.to_bytes()
        }
        _ => whole,
    }
}

/// Returns the record of an item and its version.
///
/// # Errors
/// Another program wrote the item, or the record is unreadable.
pub(crate) fn parse(item: &Attributes, table: &str) -> Result<(Record, Version), StoreError> {
    let (Some(AttributeValue::B(bytes)), Some(version)) = (item.get(RECORD), version(item)) else {
        return Err(StoreError::new(StoreErrorKind::Foreign).because(format!(
            "an item of the table `{table}` lacks the attribute `{RECORD}` or `{VERSION}`; use a table without other items"
        )));
    };
    Ok((Record::from_bytes(bytes.as_ref())?, version))
}

pub(crate) fn version(item: &Attributes) -> Option<Version> {
    item.get(VERSION)?.as_n().ok()?.parse().ok().filter(|version| *version != 0)
}

/// Returns the second since 1970 after which DynamoDB may delete the item, or `None` for a record that is kept for ever. The record stays
/// at least as long as [`removable`](idempotent_core::protocol::removable) demands.
fn removal(record: &Record) -> Option<u64> {
    let end = record.expires_at.max(Timestamp(record.fencing.0));
    (end - record.updated_at < LONGEST_TTL).then(|| (end + CAS_MARGIN).0.div_ceil(1_000_000))
}
