//! Headers as bytes.
use idempotent_mq::Headers;

/// Lengths and bytes, in order: names may come several times, and values are any bytes.
pub(crate) fn pack(headers: &Headers) -> Vec<u8> {
    let mut packed = Vec::new();
    for (name, value) in headers.iter() {
        put(&mut packed, name.as_bytes());
        put(&mut packed, value);
    }
    packed
}

fn put(packed: &mut Vec<u8>, bytes: &[u8]) {
    // Both are limited to far less.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    packed.extend_from_slice(&length.to_be_bytes());
    packed.extend_from_slice(bytes);
}

/// Decodes headers. Returns `None` for bytes of another program.
pub(crate) fn unpack(mut packed: &[u8]) -> Option<Headers> {
    let mut headers = Headers::default();
    while !packed.is_empty() {
        let name = std::str::from_utf8(take(&mut packed)?).ok()?.to_owned();
        headers.push(name, take(&mut packed)?.to_vec());
    }
    Some(headers)
}

fn take<'a>(packed: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = packed.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let bytes = rest.get(..length)?;
    *packed = &rest[length..];
    Some(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_in_order_with_their_doubles_and_any_bytes() {
        let headers: Headers = [("a", vec![0u8, 255]), ("", vec![]), ("a", b"x".to_vec())].into_iter().collect();
        let packed = pack(&headers);
        assert!(unpack(&packed).unwrap() == headers);
        assert!((1..packed.len()).filter(|end| unpack(&packed[..*end]).is_some()).count() <= 2, "only whole headers");
        assert!(unpack(&[0xff; 9]).is_none());
    }
}
