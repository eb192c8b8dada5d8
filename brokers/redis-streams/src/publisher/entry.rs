//! Encoding of messages as entries.
use idempotent_mq::OutboundMessage;

use crate::carrier::is_dead_letter_field;

/// Names and values of one entry.
pub(super) type Fields<'a> = Vec<(&'a [u8], &'a [u8])>;

/// The names of the fields with a meaning.
#[derive(Debug)]
pub(super) struct FieldNames {
    pub(super) body: String,
    pub(super) id: String,
    pub(super) business_key: String,
}

impl Default for FieldNames {
    fn default() -> Self {
        Self { body: "body".to_owned(), id: "id".to_owned(), business_key: "key".to_owned() }
    }
}

impl FieldNames {
    /// Encodes a message. Fields with a meaning come first, because sources read the first field of a name.
    ///
    /// # Errors
    /// The reason why the message cannot be an entry.
    pub(super) fn fields<'a>(&'a self, message: &'a OutboundMessage) -> Result<Fields<'a>, String> {
        let Self { body, id, business_key } = self;
        if body == id || body == business_key || id == business_key {
            return Err("body, id and business key must use three different fields; rename one".to_owned());
        }
        for (what, value) in [("topic", &message.topic), ("id", &message.id)] {
            if value.is_empty() {
                return Err(format!("{what} is empty; set it"));
            }
        }
        let mut fields = vec![(body.as_bytes(), &*message.body), (id.as_bytes(), message.id.as_bytes())];
        fields.extend(message.business_key.as_ref().map(|key| (business_key.as_bytes(), key.as_bytes())));
        for (name, value) in message.headers.iter() {
            if is_dead_letter_field(name.as_bytes()) {
                return Err(format!("header `{name}` is reserved for dead letters; rename it"));
            }
            fields.push((name.as_bytes(), value));
        }
        Ok(fields)
    }
}

/// Maximum number of entries per script call. Other clients wait while a script runs.
const MAX_ENTRIES: usize = 100;
/// Maximum number of bytes per script call, unless a single entry is larger. The server holds them in memory.
const MAX_BYTES: usize = 1 << 20;
/// Maximum number of fields of a batched entry. Scripts are limited to not many more.
const MAX_FIELDS: usize = 1_000;

/// Splits entries into requests, in order.
pub(super) fn batches<'a, 'b>(mut entries: &'a [(&'b str, Fields<'b>)]) -> Vec<&'a [(&'b str, Fields<'b>)]> {
    let mut batches = Vec::new();
    while !entries.is_empty() {
        let mut bytes = 0;
        let fits = |(_, fields): &&(&str, Fields<'_>)| {
            bytes += fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
            bytes <= MAX_BYTES && fields.len() <= MAX_FIELDS
        };
        let count = entries.iter().take(MAX_ENTRIES).take_while(fits).count().max(1);
        let (part, rest) = entries.split_at(count);
        batches.push(part);
        entries = rest;
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_entries_and_entries_with_many_fields_are_sent_alone_and_in_order() {
        let (small, half, large) = (vec![0_u8; 1], vec![0_u8; MAX_BYTES / 2], vec![0_u8; MAX_BYTES + 1]);
        let of = |value| vec![(&b"body"[..], value)];
        let many: Fields<'_> = (0..=MAX_FIELDS).map(|_| (&b"h"[..], &small[..])).collect();
        let entries = [of(&small[..]), of(&half), of(&half), of(&large), of(&small), many, of(&small), of(&small)];
        let entries: Vec<_> = entries.into_iter().map(|fields| ("s", fields)).collect();
        let counts: Vec<_> = batches(&entries).iter().map(|part| part.len()).collect();
        assert_eq!(counts, [2, 1, 1, 1, 1, 2]);
        let hundreds = vec![("s", of(&small)); 250];
        assert_eq!(batches(&hundreds).iter().map(|part| part.len()).collect::<Vec<_>>(), [100, 100, 50]);
        assert_eq!(batches(&[]).len(), 0);
    }
}
