//! Bodies as the text of a message.
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// The mark of a body that is stored in Base64.
const ENCODED: &str = "base64";
/// The mark of an empty body, which SQS refuses.
const EMPTY: &str = "empty";
/// The text of an empty body.
const PLACEHOLDER: &str = "-";

/// A body as the text of a message, and the mark for its reader.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct StoredBody {
    pub(crate) text: String,
    pub(crate) mark: Option<&'static str>,
}

/// Returns the stored form of a body: the body itself if it is a text that SQS accepts, and Base64 otherwise.
pub(crate) fn store(body: &[u8]) -> StoredBody {
    match std::str::from_utf8(body) {
        Ok("") => StoredBody { text: PLACEHOLDER.to_owned(), mark: Some(EMPTY) },
        Ok(text) if is_text(text) => StoredBody { text: text.to_owned(), mark: None },
        _ => StoredBody { text: BASE64.encode(body), mark: Some(ENCODED) },
    }
}

/// Returns the bytes of a stored body. A damaged body in Base64 is returned as its text.
pub(crate) fn load(text: String, mark: Option<&str>) -> Vec<u8> {
    let decoded = match mark {
        Some(ENCODED) => BASE64.decode(&text).ok(),
        Some(EMPTY) => Some(Vec::new()),
        _ => None,
    };
    decoded.unwrap_or_else(|| text.into_bytes())
}

/// Returns true if SQS accepts all characters.
pub(crate) fn is_text(text: &str) -> bool {
    text.chars().all(is_character)
}

/// Returns true for a character that SQS accepts in bodies and attributes.
pub(crate) fn is_character(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_stored_as_it_is_and_every_other_body_returns_byte_for_byte() {
        for text in ["{\"a\": [1, 2.50]}", "-", " \t\r\n", "\u{7f}\u{e000}\u{1f600}\u{10ffff}"] {
            assert_eq!(store(text.as_bytes()), StoredBody { text: text.to_owned(), mark: None });
        }
        let all: Vec<u8> = (0..=255).collect();
        for body in [&all[..], b"", b"\0", b"\x1b[0m", "\u{fffe}".as_bytes(), "\u{ffff}".as_bytes()] {
            let StoredBody { text, mark } = store(body);
            assert!(mark.is_some() && !text.is_empty() && is_text(&text), "{body:?}");
            assert_eq!(load(text, mark), body);
        }
    }

    #[test]
    fn a_damaged_or_unknown_body_is_its_text() {
        for mark in [None, Some(ENCODED), Some("zstd")] {
            assert_eq!(load("%".to_owned(), mark), b"%");
        }
    }
}
