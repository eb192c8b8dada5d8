//! The stored form of a payload: business key, headers and body.
//!
//! The form begins with a version. Each part follows its length: the business key (length plus one, or 0 for none), the
//! number of headers, and their names and values. The body is the rest.
use idempotent_mq::Headers;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StoredPayload {
    pub(crate) business_key: Option<String>,
    pub(crate) headers: Headers,
    pub(crate) body: Vec<u8>,
}

const VERSION: u8 = 1;

impl StoredPayload {
    pub(crate) fn encode(business_key: Option<&str>, headers: &Headers, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        match business_key {
            Some(key) => {
                number(&mut bytes, key.len() + 1);
                bytes.extend(key.as_bytes());
            }
            None => number(&mut bytes, 0),
        }
        number(&mut bytes, headers.len());
        for (name, value) in headers.iter() {
            part(&mut bytes, name.as_bytes());
            part(&mut bytes, value);
        }
        bytes.extend(body);
        bytes
    }

    /// Decodes a payload, or returns `None` for bytes that this version has not written.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, mut rest) = bytes.split_first()?;
        if *version != VERSION {
            return None;
        }
        let business_key = match take_number(&mut rest)? {
            0 => None,
            size => Some(text(take(&mut rest, size - 1)?)?),
        };
        let mut headers = Headers::default();
        for _ in 0..take_number(&mut rest)? {
            let name = take_part(&mut rest).and_then(text)?;
            headers.push(name, take_part(&mut rest)?);
        }
        Some(Self { business_key, headers, body: rest.to_vec() })
    }
}

fn part(bytes: &mut Vec<u8>, part: &[u8]) {
    number(bytes, part.len());
    bytes.extend(part);
}

/// Writes a number with seven bits per byte, lowest first. The highest bit of a byte marks a continuation.
fn number(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).unwrap_or_default() | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap_or_default());
}

fn take_number(rest: &mut &[u8]) -> Option<usize> {
    let mut number = 0_usize;
    for shift in (0..usize::BITS).step_by(7) {
        let (byte, remaining) = rest.split_first()?;
        *rest = remaining;
        let bits = usize::from(byte & 0x7f);
        number |= bits.checked_shl(shift).filter(|shifted| shifted >> shift == bits)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], size: usize) -> Option<&'a [u8]> {
    let (part, remaining) = rest.split_at_checked(size)?;
    *rest = remaining;
    Some(part)
}

fn take_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = take_number(rest)?;
    take(rest, size)
}

fn text(bytes: &[u8]) -> Option<String> {
    Some(std::str::from_utf8(bytes).ok()?.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn sample() -> StoredPayload {
        let headers = [("trace", vec![0, 255, b'\n']), ("trace", vec![]), ("", vec![7; 300])].into_iter().collect();
        StoredPayload { business_key: Some("order-17".to_owned()), headers, body: (0..=255).collect() }
    }

    fn bytes(payload: &StoredPayload) -> Vec<u8> {
        StoredPayload::encode(payload.business_key.as_deref(), &payload.headers, &payload.body)
    }

    #[test]
    fn every_payload_decodes_as_encoded() {
        let empty_key = StoredPayload { business_key: Some(String::new()), ..StoredPayload::default() };
        for payload in [sample(), StoredPayload::default(), empty_key] {
            assert_eq!(StoredPayload::decode(&bytes(&payload)).unwrap(), payload);
        }
        assert_eq!(
            StoredPayload::encode(None, &Headers::default(), b"body").len(),
            4 + 3,
            "three bytes beside the body"
        );
    }

    #[test]
    fn truncated_payloads_and_other_versions_are_rejected_without_a_panic() {
        let whole = bytes(&sample());
        let head = whole.len() - 256;
        for size in 0..head {
            assert_eq!(StoredPayload::decode(&whole[..size]), None, "the first {size} bytes");
        }
        assert_eq!(StoredPayload::decode(&[2, 0, 0]), None);
        assert_eq!(StoredPayload::decode(&[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
