//! A message's headers as bytes, and the digest of its content.
use idempotent_mq::{Headers, Outbound};
use sha2::{Digest, Sha256};

/// Lengths and bytes, in order: names may come several times, and values are any bytes.
pub(super) fn pack(headers: &Headers) -> Vec<u8> {
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

/// `None` if somebody else wrote it.
pub(super) fn unpack(mut packed: &[u8]) -> Option<Headers> {
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

/// By which two messages of one id are told apart.
pub(super) fn digest(message: &Outbound) -> [u8; 32] {
    let mut sum = Sha256::new();
    let optional = |text: &Option<String>| text.as_ref().map(|text| text.as_bytes().to_vec());
    let parts = [
        Some(message.topic.as_bytes().to_vec()),
        optional(&message.business_key),
        optional(&message.aggregate),
        Some(pack(&message.headers)),
        Some(message.body.clone()),
    ];
    for part in parts {
        // What is absent is not what is empty.
        sum.update(part.as_ref().map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
        sum.update(part.unwrap_or_default());
    }
    sum.finalize().into()
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

    #[test]
    fn what_stands_elsewhere_is_another_message() {
        let one = Outbound::new("t", "id", "b");
        let others = [
            Outbound::new("tb", "id", ""),
            one.clone().business_key("k"),
            one.clone().aggregate("k"),
            one.clone().aggregate(""),
            one.clone().header("n", "v"),
            Outbound::new("t", "id", "c"),
        ];
        let mut digests: Vec<_> = others.iter().chain([&one]).map(digest).collect();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), 7);
        assert_eq!(digest(&one), digest(&Outbound::new("t", "other id", "b")));
    }
}
