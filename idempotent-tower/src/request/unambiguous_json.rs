//! JSON that everybody reads alike.
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The value, if there are no two readings of it: what one reader drops, another may act upon.
pub(crate) fn unambiguous(json: &[u8]) -> Option<Value> {
    if has_long_number(json) {
        return None;
    }
    serde_json::from_slice::<Plain>(json).ok().map(|plain| plain.0)
}

/// More digits than a `f64` keeps: two such numbers may be one number to some, and two to others.
const MOST_DIGITS: usize = 15;

/// Whether there is a number of too many digits, its exponent's among them, outside of strings.
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
                if digits > MOST_DIGITS {
                    return true;
                }
            }
            (false, b'.' | b'e' | b'E' | b'+' | b'-') => {}
            (false, _) => digits = 0,
        }
    }
    false
}

/// A value in which no name is given twice.
struct Plain(Value);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Read).map(Self)
    }
}

struct Read;

impl<'de> Visitor<'de> for Read {
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
        while let Some(Plain(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some((name, Plain(value))) = fields.next_entry::<String, _>()? {
            if all.insert(name, value).is_some() {
                return Err(A::Error::custom("a name is given twice"));
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
    fn what_everybody_reads_alike_is_read() {
        let json =
            r#" {"a": [null, true, -1, 1.5, 123456789012345, 1e300], "b": "12345678901234567890\\\"1", "": {}} "#;
        let value = unambiguous(json.as_bytes()).unwrap();
        assert_eq!(value, serde_json::from_str::<serde_json::Value>(json).unwrap());
    }

    #[test]
    fn what_is_read_in_two_ways_is_not() {
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
        assert_eq!(unambiguous("[".repeat(200).as_bytes()), None, "as deep as that");
    }
}
