//! What a message is as an entry.
use idempotent_mq::Outbound;

use crate::headers::is_dead_letter_field;

/// Names and values of one entry.
pub(super) type Fields<'a> = Vec<(&'a [u8], &'a [u8])>;

/// Which field is what.
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
    /// Those that mean something first: of a name that stands there twice, sources read the first.
    ///
    /// # Errors
    /// Why it cannot be an entry.
    pub(super) fn fields<'a>(&'a self, message: &'a Outbound) -> Result<Fields<'a>, String> {
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

/// Entries of one script: the server does nothing else meanwhile.
const MAX_ENTRIES: usize = 100;
/// Bytes of one script, but for an entry that alone has more: the server keeps it whole until it is done.
const MAX_BYTES: usize = 1 << 20;
/// Fields of one entry: a script cannot hand over many more.
const MAX_FIELDS: usize = 1_000;

/// What goes in one request each, in order.
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
    fn large_entries_and_those_of_many_fields_go_alone_and_the_order_stays() {
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
