//! Headers that are no properties of RocketMQ's: those are text, each name once, with two characters that separate them.
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use idempotent_mq::Headers;

use crate::retry_headers::{is_mark, is_of_the_broker};

/// Names and values of properties.
pub(crate) type Properties = BTreeMap<String, String>;

/// Some of the headers are properties as they are; the others become one, of this name.
pub(crate) fn pack(headers: &Headers, name: &str) -> Properties {
    let mut properties = Properties::new();
    let mut others = Vec::new();
    for (header, value) in headers.iter() {
        match plain(value) {
            Some(value) if is_plain(header) && headers.all(header).count() == 1 => {
                properties.insert(header.to_owned(), value.to_owned());
            }
            _ => [header.as_bytes(), value].into_iter().for_each(|part| put(&mut others, part)),
        }
    }
    if !others.is_empty() {
        properties.insert(name.to_owned(), BASE64.encode(others));
    }
    properties
}

/// What was packed, in its order; what makes no sense is nothing.
pub(crate) fn unpack(packed: &str) -> Headers {
    let bytes = BASE64.decode(packed).unwrap_or_default();
    let mut rest = bytes.as_slice();
    let mut headers = Headers::default();
    while let Some(name) = take(&mut rest)
        && let Some(value) = take(&mut rest)
        && let Ok(name) = std::str::from_utf8(name)
    {
        headers.push(name, value);
    }
    headers
}

/// Whether a name can be a property's: neither empty, nor somebody else's.
fn is_plain(name: &str) -> bool {
    plain(name.as_bytes()).is_some() && !is_mark(name) && !is_of_the_broker(name)
}

/// Text that needs no packing.
pub(crate) fn plain(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    (!text.is_empty() && !text.contains(SEPARATORS)).then_some(text)
}

/// Between a name and its value, and between properties.
pub(crate) const SEPARATORS: [char; 2] = ['\u{1}', '\u{2}'];

fn put(into: &mut Vec<u8>, part: &[u8]) {
    into.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
    into.extend(part);
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    let (part, behind) = behind.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *rest = behind;
    Some(part)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_no_properties_come_back_byte_for_byte_and_in_order() {
        let odd: [(&str, &[u8]); 8] = [
            ("bytes", &[0, 255]),
            ("via", b"second"),
            ("", b"no name"),
            ("via", b"first"),
            ("empty", b""),
            ("split\u{2}name", b"x"),
            ("value", b"a\x01b"),
            ("UNIQ_KEY", b"the broker's"),
        ];
        let mut headers: Headers = odd.into_iter().collect();
        headers.push("tenant", "größe");
        let mut packed = pack(&headers, "odd");
        assert_eq!(unpack(&packed.remove("odd").unwrap()), odd.into_iter().collect());
        assert_eq!(packed, Properties::from([("tenant".to_owned(), "größe".to_owned())]));
    }

    #[test]
    fn n94_what_is_not_packed_headers_is_none() {
        for bad in ["", "?", "AAAA", "AAAACAAA", "////////"] {
            assert!(unpack(bad).is_empty(), "{bad}");
        }
        assert!(pack(&Headers::default(), "odd").is_empty());
    }
}
