//! The header with the key of a request: any bytes are a valid key or are rejected, and no error shows them.
use http::HeaderMap;
use http::header::HeaderValue;
use idempotent_tower::{InvalidKey, KeyRules, KeySyntax};

/// The function under test.
#[derive(Debug)]
pub struct Reader {
    /// Returns the key in these headers, if there are any.
    pub read: fn(KeySyntax, &HeaderMap) -> Result<Option<String>, InvalidKey>,
}

impl Reader {
    /// The real function, [`KeyRules::read`].
    pub const REAL: Self = Self { read };
}

fn read(syntax: KeySyntax, headers: &HeaderMap) -> Result<Option<String>, InvalidKey> {
    let key = KeyRules::default().syntax(syntax).read(headers)?;
    Ok(key.map(|key| key.as_str().to_owned()))
}

const SYNTAXES: [KeySyntax; 3] = [KeySyntax::Lenient, KeySyntax::Structured, KeySyntax::Bare];

/// Checks the input as the header's value, in each syntax, and as several lines, cut at each newline.
pub fn hold(reader: &Reader, input: &[u8]) -> &'static str {
    let lines: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
    let mut headers = HeaderMap::new();
    for line in &lines {
        // hyper rejects bytes that are not a header value, so they never arrive here.
        let Ok(value) = HeaderValue::from_bytes(line) else { return "no header" };
        headers.append("idempotency-key", value);
    }
    if let [value] = lines[..] {
        return SYNTAXES.map(|syntax| by_itself(reader, syntax, value, &headers))[0];
    }
    for syntax in SYNTAXES {
        assert_eq!((reader.read)(syntax, &headers), Err(InvalidKey::SeveralLines), "also where all are alike");
    }
    "several lines"
}

fn by_itself(reader: &Reader, syntax: KeySyntax, value: &[u8], headers: &HeaderMap) -> &'static str {
    let value = value.trim_ascii();
    match (reader.read)(syntax, headers) {
        Ok(Some(key)) => {
            assert!((1..=255).contains(&key.len()), "{} bytes", key.len());
            assert!(key.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{key:?}");
            assert!(!key.trim().is_empty(), "{key:?}");
            if value == key.as_bytes() && is_bare(value) {
                assert_ne!(syntax, KeySyntax::Structured);
                let both = syntax == KeySyntax::Lenient;
                assert!(!both || one(reader, syntax, quoted(&key).as_bytes()) == Some(key), "both forms are one key");
                return "bare";
            }
            assert_ne!(syntax, KeySyntax::Bare);
            // Without its parameters, a key has exactly one written form.
            let rest = value.strip_prefix(quoted(&key).as_bytes()).expect("the key is what stands in the quotes");
            assert!(
                rest.is_empty() || rest.trim_ascii_start().starts_with(b";"),
                "{:?}",
                rest.escape_ascii().to_string()
            );
            if rest.is_empty() { "quoted" } else { "with parameters" }
        }
        Ok(None) => panic!("a header that is there is a key or is refused"),
        Err(why) => {
            refused(syntax, value);
            silent(value, &why.to_string());
            if value.is_empty() { "empty" } else { "refused" }
        }
    }
}

fn one(reader: &Reader, syntax: KeySyntax, value: &[u8]) -> Option<String> {
    let headers = HeaderMap::from_iter([("idempotency-key".parse().ok()?, HeaderValue::from_bytes(value).ok()?)]);
    (reader.read)(syntax, &headers).ok().flatten()
}

/// Checks that a rejected value is not a valid key.
fn refused(syntax: KeySyntax, value: &[u8]) {
    let fits = |length: usize| (1..=255).contains(&length);
    let taken = syntax != KeySyntax::Structured && is_bare(value) && fits(value.len());
    assert!(!taken, "{:?} is a key", value.escape_ascii().to_string());
    let inner = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let plain = |byte: &u8| (0x20..0x7f).contains(byte) && !b"\"\\".contains(byte);
    let key = |inner: &[u8]| inner.iter().all(plain) && fits(inner.len()) && !inner.trim_ascii().is_empty();
    let taken = inner.is_some_and(|inner| syntax != KeySyntax::Bare && key(inner));
    assert!(!taken, "{:?} is a key", value.escape_ascii().to_string());
}

/// Checks that the text is the same for every value, except for its length.
fn silent(value: &[u8], text: &str) {
    let numbers = |char: char| char.is_ascii_digit();
    let text = text.replace(numbers, "");
    let known = [
        InvalidKey::List,
        InvalidKey::NotAString,
        InvalidKey::Blank,
        InvalidKey::Characters,
        InvalidKey::Length { length: 0, min_len: 1, max_len: 255 },
    ];
    let known = known.map(|why| why.to_string().replace(numbers, ""));
    assert!(known.contains(&text), "{:?}: {text}", value.escape_ascii().to_string());
}

fn is_bare(value: &[u8]) -> bool {
    value.iter().all(|byte| byte.is_ascii_graphic() && !b"\",;\\".contains(byte))
}

/// Returns the form of RFC 9651, section 4.1.6.
fn quoted(key: &str) -> String {
    format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""))
}
