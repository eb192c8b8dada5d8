//! Bodies as jsonb.
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

/// The mark of a body that is stored in Base64.
pub(crate) const ENCODED: &str = "base64";

/// A body as the JSON text of the column `message`.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct StoredBody {
    pub(crate) json: String,
    pub(crate) is_encoded: bool,
}

/// Returns the stored form of a body: the body itself if jsonb can store it, and a string in Base64 otherwise, or if the body must
/// be exact.
pub(crate) fn store(body: &[u8], exact: bool) -> StoredBody {
    match std::str::from_utf8(body).ok().filter(|text| !exact && is_jsonb(text)) {
        Some(text) => StoredBody { json: text.to_owned(), is_encoded: false },
        None => StoredBody { json: format!("\"{}\"", BASE64.encode(body)), is_encoded: true },
    }
}

/// Returns true if PostgreSQL accepts the text as jsonb. A text that this function rejects may be valid, too.
fn is_jsonb(text: &str) -> bool {
    // Parsing as a value rejects half of a surrogate pair, deep nesting, and numbers beyond a double.
    !text.contains("\\u0000") && serde_json::from_str::<Value>(text).is_ok()
}

/// Returns the bytes of a stored body. A damaged body in Base64 is returned as its JSON text.
pub(crate) fn load(json: String, is_encoded: bool) -> Vec<u8> {
    let decoded = || BASE64.decode(serde_json::from_str::<String>(&json).ok()?).ok();
    match is_encoded.then(decoded).flatten() {
        Some(body) => body,
        None => json.into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_stored_as_it_is_and_every_other_body_returns_byte_for_byte() {
        for json in ["{\"a\": [1, 2.50]}", "null", "\"text\"", " 7 ", "\"\\ud83d\\ude00\""] {
            assert_eq!(store(json.as_bytes(), false), StoredBody { json: json.to_owned(), is_encoded: false });
        }
        let all: Vec<u8> = (0..=255).collect();
        let deep = "[".repeat(200) + &"]".repeat(200);
        let others =
            [&all[..], b"", b"{", b"\"\\u0000\"", b"\"\\ud83d\"", b"1e999", b"\xef\xbb\xbf{}", deep.as_bytes()];
        for body in others {
            let stored = store(body, false);
            assert!(stored.is_encoded, "{body:?}");
            assert_eq!(load(stored.json, true), body);
        }
        let exact = store(b"{ }", true);
        assert_eq!((exact.is_encoded, load(exact.json, true)), (true, b"{ }".to_vec()));
    }

    #[test]
    fn a_damaged_body_is_its_json_text() {
        for json in ["\"%\"", "{}", "null"] {
            assert_eq!(load(json.to_owned(), true), json.as_bytes());
        }
    }
}
