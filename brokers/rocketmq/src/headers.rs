//! Mapping between headers and properties. Properties are text with unique names; all other headers are packed into one
//! property.
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use idempotent_mq::Headers;

use crate::properties::{Properties, as_property, is_free_name};

/// Encodes headers as properties. Headers that cannot be properties are packed into the property `packed`.
pub(crate) fn encode_headers(headers: &Headers, packed: &str) -> Properties {
    let mut properties = Properties::new();
    let mut others = Vec::new();
    for (header, value) in headers.iter() {
        match as_property(value) {
            Some(value) if is_free_name(header) && headers.all(header).count() == 1 => {
                properties.insert(header.to_owned(), value.to_owned());
            }
            _ => [header.as_bytes(), value].into_iter().for_each(|part| put_part(&mut others, part)),
        }
    }
    if !others.is_empty() {
        properties.insert(packed.to_owned(), BASE64.encode(others));
    }
    properties
}

/// Decodes packed headers in their order. Decoding ends at the first malformed part.
pub(crate) fn decode_packed(packed: &str) -> Headers {
    let bytes = BASE64.decode(packed).unwrap_or_default();
    let mut rest = bytes.as_slice();
    let mut headers = Headers::default();
    while let Some(name) = take_part(&mut rest)
        && let Some(value) = take_part(&mut rest)
        && let Ok(name) = std::str::from_utf8(name)
    {
        headers.push(name, value);
    }
    headers
}

/// Appends a part with its length in four bytes before it.
fn put_part(into: &mut Vec<u8>, part: &[u8]) {
    into.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
    into.extend(part);
}

fn take_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (part, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *rest = after;
    Some(part)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_cannot_be_properties_are_decoded_byte_for_byte_and_in_order() {
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
        let mut packed = encode_headers(&headers, "odd");
        assert_eq!(decode_packed(&packed.remove("odd").unwrap()), odd.into_iter().collect());
        assert_eq!(packed, Properties::from([("tenant".to_owned(), "größe".to_owned())]));
    }

    #[test]
    fn malformed_packed_headers_decode_to_none() {
        for bad in ["", "?", "AAAA", "AAAACAAA", "////////"] {
            assert!(decode_packed(bad).is_empty(), "{bad}");
        }
        assert!(encode_headers(&Headers::default(), "odd").is_empty());
    }
}
