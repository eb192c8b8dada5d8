//! The canonical form of a value: its compact JSON, with everything that has no order sorted.
//!
//! JSON writes some different values alike. The canonical form keeps `None`, `()` and an infinity apart, and refuses a NaN, which
//! differs from itself.
mod compound;

use std::any::type_name;
use std::fmt::{self, Display};

use serde::{Serialize, Serializer};
use serde_json::Value;

use self::compound::{Fields, List, Object};

/// Returns the canonical form of a value.
///
/// # Errors
/// The value has none: it holds a NaN, or its own `Serialize` fails.
pub(crate) fn canonical(value: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, Unwritable> {
    let mut out = Vec::new();
    value.serialize(Writer(&mut out))?;
    Ok(out)
}

/// The reason for which a value has no canonical form.
#[derive(Debug)]
pub(crate) struct Unwritable(String);

impl Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unwritable {}

impl serde::ser::Error for Unwritable {
    fn custom<T: Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

type Done = Result<(), Unwritable>;

/// Structs by which serde_json hands over JSON that is text already.
const RAW: &str = "$serde_json::private::RawValue";
const NUMBER: &str = "$serde_json::private::Number";

/// Returns whether elements come in an order that says nothing: it differs between two sets that are equal.
fn is_unordered<I>() -> bool {
    let name = type_name::<I>().trim_start_matches('&').trim_start_matches("mut ");
    let outermost = name.split('<').next().unwrap_or_default();
    ["::HashSet", "::BinaryHeap"].iter().any(|unordered| outermost.ends_with(unordered))
}

struct Writer<'a>(&'a mut Vec<u8>);

impl<'a> Writer<'a> {
    fn plain(self, text: impl Display) -> Done {
        self.0.extend(text.to_string().into_bytes());
        Ok(())
    }

    fn quoted(self, text: &str) -> Done {
        self.plain(Value::from(text))
    }

    /// Begins `{"variant":`, if there is a variant.
    fn variant(&mut self, variant: Option<&str>) -> &'static str {
        match variant {
            Some(variant) => {
                self.0.extend(format!("{{{}:", Value::from(variant)).into_bytes());
                "}"
            }
            None => "",
        }
    }

    fn list(mut self, variant: Option<&str>) -> List<'a> {
        let end = self.variant(variant);
        self.0.push(b'[');
        List { out: self.0, is_first: true, end }
    }

    fn fields(mut self, variant: Option<&str>) -> Fields<'a> {
        let end = self.variant(variant);
        Fields { out: self.0, key: Vec::new(), all: Vec::new(), end }
    }
}

macro_rules! as_text {
    ($($method:ident: $ty:ty),*) => {$(
        fn $method(self, value: $ty) -> Done {
            self.plain(value)
        }
    )*};
}

impl<'a> Serializer for Writer<'a> {
    type Ok = ();
    type Error = Unwritable;
    type SerializeSeq = List<'a>;
    type SerializeTuple = List<'a>;
    type SerializeTupleStruct = List<'a>;
    type SerializeTupleVariant = List<'a>;
    type SerializeMap = Fields<'a>;
    type SerializeStruct = Object<'a>;
    type SerializeStructVariant = Fields<'a>;

    as_text! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_u128: u128
    }

    fn serialize_f32(self, value: f32) -> Done {
        self.serialize_f64(f64::from(value))
    }

    fn serialize_f64(self, value: f64) -> Done {
        match value {
            nan if nan.is_nan() => {
                Err(Unwritable("a NaN differs from itself, so it tells no two calls apart".to_owned()))
            }
            finite if finite.is_finite() => self.plain(Value::from(finite)),
            infinite => self.plain(infinite),
        }
    }

    fn serialize_char(self, value: char) -> Done {
        self.quoted(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Done {
        self.quoted(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Done {
        self.collect_seq(value)
    }

    fn serialize_none(self) -> Done {
        self.plain("null")
    }

    /// `Some(1)` is `1`, as in JSON; of a `None` it tells itself apart.
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Done {
        let written = canonical(value)?;
        if written.ends_with(b"null") {
            self.0.extend(b"some ");
        }
        self.0.extend(written);
        Ok(())
    }

    fn serialize_unit(self) -> Done {
        self.plain("()")
    }

    fn serialize_unit_struct(self, _: &'static str) -> Done {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Done {
        self.quoted(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Done {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        mut self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Done {
        let end = self.variant(Some(variant));
        value.serialize(Writer(self.0))?;
        self.plain(end)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List<'a>, Unwritable> {
        Ok(self.list(None))
    }

    fn serialize_tuple(self, _: usize) -> Result<List<'a>, Unwritable> {
        Ok(self.list(None))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<List<'a>, Unwritable> {
        Ok(self.list(None))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<List<'a>, Unwritable> {
        Ok(self.list(Some(variant)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Fields<'a>, Unwritable> {
        Ok(self.fields(None))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Object<'a>, Unwritable> {
        Ok(match name {
            RAW | NUMBER => Object::Text(self.0),
            _ => Object::Fields(self.fields(None)),
        })
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Fields<'a>, Unwritable> {
        Ok(self.fields(Some(variant)))
    }

    fn collect_seq<I>(self, items: I) -> Done
    where
        I: IntoIterator,
        I::Item: Serialize,
    {
        let mut written = items.into_iter().map(|item| canonical(&item)).collect::<Result<Vec<_>, _>>()?;
        if is_unordered::<I>() {
            written.sort_unstable();
        }
        self.0.push(b'[');
        self.0.extend(written.join(&b','));
        self.0.push(b']');
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

    use super::*;

    fn text(value: &(impl Serialize + ?Sized)) -> String {
        String::from_utf8(canonical(value).unwrap()).unwrap()
    }

    #[derive(Serialize)]
    enum Shape {
        Unit,
        New(u8),
        Tuple(u8, char),
        Struct { b: u8, a: Option<u8> },
    }

    #[test]
    fn what_json_can_tell_is_written_as_json_with_sorted_names() {
        let json = serde_json::json!({"b": [1, {"z": -2.5, "a": "é\"\n"}], "a": true, "": [], "c": {}});
        assert_eq!(text(&json), r#"{"":[],"a":true,"b":[1,{"a":"é\"\n","z":-2.5}],"c":{}}"#);
        let shapes = [Shape::Unit, Shape::New(1), Shape::Tuple(2, 'x'), Shape::Struct { b: 3, a: Some(4) }];
        let all = r#"["Unit",{"New":1},{"Tuple":[2,"x"]},{"Struct":{"a":4,"b":3}}]"#;
        assert_eq!(text(&shapes), all);
        assert_eq!(serde_json::from_str::<Value>(all).unwrap(), serde_json::to_value(&shapes).unwrap());
        assert_eq!(text(&BTreeMap::from([(10, 'a'), (9, 'b')])), r#"{"10":"a","9":"b"}"#);
        assert_eq!(text(&HashMap::from([((1, 2), 3)])), "{[1,2]:3}", "which JSON has no form for");
        assert_eq!(text(&(1u8, "a", [2.0f32], u128::MAX)), format!("[1,\"a\",[2.0],{}]", u128::MAX));
    }

    #[test]
    fn equal_sets_are_written_alike_and_lists_keep_their_order() {
        for seed in 0..20 {
            let one: HashSet<String> = (0..50).map(|n| format!("{}", (n + seed) % 50)).collect();
            let two: HashSet<String> = (0..50).rev().map(|n| n.to_string()).collect();
            assert_eq!(text(&one), text(&two));
            assert_eq!(text(&[(1, &one)]), text(&[(1, &two)]));
        }
        let heap = |items: [u8; 4]| text(&BinaryHeap::from(items));
        assert_eq!(heap([1, 2, 3, 4]), heap([4, 1, 3, 2]));
        assert_ne!(
            text(&vec![HashSet::from([1]), HashSet::from([2])]),
            text(&vec![HashSet::from([2]), HashSet::from([1])])
        );
        assert_ne!(text(&vec!["HashSet", "a"]), text(&vec!["a", "HashSet"]));
    }

    #[test]
    fn what_json_writes_alike_differs() {
        let all = [
            text(&None::<u8>),
            text(&()),
            text(&Some(())),
            text(&Some(None::<u8>)),
            text(&Some(Some(None::<u8>))),
            text(&f64::INFINITY),
            text(&f64::NEG_INFINITY),
            text("null"),
            text("()"),
        ];
        let different: HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len() - 1, "only `()` and `Some(())` are one: {all:?}");
        assert_eq!(text(&Some(7)), text(&7));
        let refused = canonical(&[1.0, f64::NAN]).unwrap_err().to_string();
        assert!(refused.contains("NaN differs from itself"), "{refused}");
    }
}
