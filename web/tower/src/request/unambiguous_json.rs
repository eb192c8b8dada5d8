//! JSON that all parsers read in the same way.
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Parses JSON. Returns `None` if two parsers could read it differently: a field that one parser drops could change
/// what another one does.
pub(crate) fn unambiguous(json: &[u8]) -> Option<Value> {
    if has_long_number(json) {
        return None;
    }
    serde_json::from_slice::<UnambiguousValue>(json).ok().map(|plain| plain.0)
}

/// The number of decimal digits that `f64` represents exactly. Some parsers read two longer numbers as equal, and
/// others as different.
const MAX_DIGITS: usize = 15;

/// Returns whether a number outside of strings has too many digits, including the digits of its exponent.
fn has_long_number(json: &[u8]) -> bool {
    let (mut in_string, mut escaped, mut digits) = (false, false, 0);
    for byte in json {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => in_string = false,
            (true, _) => {}
            (false, b'"') => (in_string, digits) = (true, 0),
            (false, b'0'..=b'9') => {
                digits += 1;
                if digits > MAX_DIGITS {
                    return true;
                }
            }
            (false, b'.' | b'e' | b'E' | b'+' | b'-') => {}
            (false, _) => digits = 0,
        }
    }
    false
}

/// A JSON value without duplicate field names.
struct UnambiguousValue(Value);

impl<'de> Deserialize<'de> for UnambiguousValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(UniqueNameVisitor).map(Self)
    }
}

struct UniqueNameVisitor;

impl<'de> Visitor<'de> for UniqueNameVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(UnambiguousValue(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some((name, UnambiguousValue(value))) = fields.next_entry::<String, _>()? {
            if all.insert(name, value).is_some() {
                return Err(A::Error::custom("duplicate field name"));
            }
        }
        Ok(all.into())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::unambiguous;

    #[test]
    fn unambiguous_json_is_parsed() {
        let json = r#" {"a": [null, true, -1, 1.5, 123456789012345, 1e300], "b": "12345678901234567890\\\"1", "": {},
                "c": "\"1234567890123456"} "#;
        let value = unambiguous(json.as_bytes()).unwrap();
        assert_eq!(value, serde_json::from_str::<serde_json::Value>(json).unwrap());
    }

    #[test]
    fn ambiguous_json_is_refused() {
        for json in [
            r#"{"a":1,"a":2}"#,
            r#"{"x":[{"a":1,"b":2,"a":1}]}"#,
            r#"{"a":1,"\u0061":2}"#,
            "12345678901234567890123",
            "[0.1000000000000000055]",
            r#"["",12345678901234567]"#,
            "1e",
            "",
            "1 2",
        ] {
            assert_eq!(unambiguous(json.as_bytes()), None, "{json}");
        }
        assert_eq!(unambiguous("[".repeat(200).as_bytes()), None, "deeply nested");
    }

    #[test]
    fn digits_in_a_string_are_no_number() {
        assert!(super::has_long_number(b"[1234567890123456]"));
        assert!(!super::has_long_number(br#"["1234567890123456"]"#));
        assert!(!super::has_long_number(br#"["\"1234567890123456"]"#));
    }
}
