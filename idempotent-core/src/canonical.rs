//! The canonical form of a value: compact JSON in which everything unordered is sorted.
//!
//! JSON writes some different values in the same way. The canonical form distinguishes `None`, `()` and the infinities,
//! and refuses NaN, which differs from itself.
mod compound;

use std::any::type_name;
use std::fmt::{self, Display};

use serde::{Serialize, Serializer};
use serde_json::Value;

use self::compound::{FieldsWriter, ListWriter, StructWriter};

/// Returns the canonical form of a value.
///
/// # Errors
/// Returns an error if the value contains a NaN, or if its own `Serialize` fails.
pub(crate) fn canonical(value: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, NoCanonicalForm> {
    let mut out = Vec::new();
    value.serialize(CanonicalWriter(&mut out))?;
    Ok(out)
}

/// The reason why a value has no canonical form.
#[derive(Debug)]
pub(crate) struct NoCanonicalForm(String);

impl Display for NoCanonicalForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoCanonicalForm {}

impl serde::ser::Error for NoCanonicalForm {
    fn custom<T: Display>(text: T) -> Self {
        Self(text.to_string())
    }
}

type WriteResult = Result<(), NoCanonicalForm>;

/// The struct names by which serde_json passes raw JSON text.
const RAW: &str = "$serde_json::private::RawValue";
const NUMBER: &str = "$serde_json::private::Number";

/// Returns whether the type's elements are unordered, so that two equal sets may iterate differently.
fn is_unordered<I>() -> bool {
    let name = type_name::<I>().trim_start_matches('&').trim_start_matches("mut ");
    let outermost = name.split('<').next().unwrap_or_default();
    ["::HashSet", "::BinaryHeap"].iter().any(|unordered| outermost.ends_with(unordered))
}

struct CanonicalWriter<'a>(&'a mut Vec<u8>);

impl<'a> CanonicalWriter<'a> {
    fn plain(self, text: impl Display) -> WriteResult {
        self.0.extend(text.to_string().into_bytes());
        Ok(())
    }

    fn quoted(self, text: &str) -> WriteResult {
        self.plain(Value::from(text))
    }

    /// Writes `{"variant":` if there is a variant, and returns the closing text.
    fn variant(&mut self, variant: Option<&str>) -> &'static str {
        match variant {
            Some(variant) => {
                self.0.extend(format!("{{{}:", Value::from(variant)).into_bytes());
                "}"
            }
            None => "",
        }
    }

    fn list(mut self, variant: Option<&str>) -> ListWriter<'a> {
        let end = self.variant(variant);
        self.0.push(b'[');
        ListWriter { out: self.0, is_first: true, end }
    }

    fn fields(mut self, variant: Option<&str>) -> FieldsWriter<'a> {
        let end = self.variant(variant);
        FieldsWriter { out: self.0, key: Vec::new(), all: Vec::new(), end }
    }
}

macro_rules! as_text {
    ($($method:ident: $ty:ty),*) => {$(
        fn $method(self, value: $ty) -> WriteResult {
            self.plain(value)
        }
    )*};
}

impl<'a> Serializer for CanonicalWriter<'a> {
    type Ok = ();
    type Error = NoCanonicalForm;
    type SerializeSeq = ListWriter<'a>;
    type SerializeTuple = ListWriter<'a>;
    type SerializeTupleStruct = ListWriter<'a>;
    type SerializeTupleVariant = ListWriter<'a>;
    type SerializeMap = FieldsWriter<'a>;
    type SerializeStruct = StructWriter<'a>;
    type SerializeStructVariant = FieldsWriter<'a>;

    as_text! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_u128: u128
    }

    fn serialize_f32(self, value: f32) -> WriteResult {
        self.serialize_f64(f64::from(value))
    }

    fn serialize_f64(self, value: f64) -> WriteResult {
        match value {
            nan if nan.is_nan() => {
                Err(NoCanonicalForm("a NaN differs from itself, so it cannot identify a call".to_owned()))
            }
            finite if finite.is_finite() => self.plain(Value::from(finite)),
            infinite => self.plain(infinite),
        }
    }

    fn serialize_char(self, value: char) -> WriteResult {
        self.quoted(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> WriteResult {
        self.quoted(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> WriteResult {
        self.collect_seq(value)
    }

    fn serialize_none(self) -> WriteResult {
        self.plain("null")
    }

    /// Writes `Some(1)` as `1`, like JSON. A `Some` around a `None` gets a prefix that distinguishes it.
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> WriteResult {
        let written = canonical(value)?;
        if written.ends_with(b"null") {
            self.0.extend(b"some ");
        }
        self.0.extend(written);
        Ok(())
    }

    fn serialize_unit(self) -> WriteResult {
        self.plain("()")
    }

    fn serialize_unit_struct(self, _: &'static str) -> WriteResult {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> WriteResult {
        self.quoted(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> WriteResult {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        mut self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> WriteResult {
        let end = self.variant(Some(variant));
        value.serialize(CanonicalWriter(self.0))?;
        self.plain(end)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<ListWriter<'a>, NoCanonicalForm> {
        Ok(self.list(None))
    }

    fn serialize_tuple(self, _: usize) -> Result<ListWriter<'a>, NoCanonicalForm> {
        Ok(self.list(None))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<ListWriter<'a>, NoCanonicalForm> {
        Ok(self.list(None))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<ListWriter<'a>, NoCanonicalForm> {
        Ok(self.list(Some(variant)))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<FieldsWriter<'a>, NoCanonicalForm> {
        Ok(self.fields(None))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<StructWriter<'a>, NoCanonicalForm> {
        Ok(match name {
            RAW | NUMBER => StructWriter::Text(self.0),
            _ => StructWriter::Fields(self.fields(None)),
        })
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<FieldsWriter<'a>, NoCanonicalForm> {
        Ok(self.fields(Some(variant)))
    }

    fn collect_seq<I>(self, items: I) -> WriteResult
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

    use serde::ser::SerializeStruct;

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
    fn values_that_json_can_represent_are_written_as_json_with_sorted_names() {
        let json = serde_json::json!({"b": [1, {"z": -2.5, "a": "é\"\n"}], "a": true, "": [], "c": {}});
        assert_eq!(text(&json), r#"{"":[],"a":true,"b":[1,{"a":"é\"\n","z":-2.5}],"c":{}}"#);
        let shapes = [Shape::Unit, Shape::New(1), Shape::Tuple(2, 'x'), Shape::Struct { b: 3, a: Some(4) }];
        let all = r#"["Unit",{"New":1},{"Tuple":[2,"x"]},{"Struct":{"a":4,"b":3}}]"#;
        assert_eq!(text(&shapes), all);
        assert_eq!(serde_json::from_str::<Value>(all).unwrap(), serde_json::to_value(&shapes).unwrap());
        assert_eq!(text(&BTreeMap::from([(10, 'a'), (9, 'b')])), r#"{"10":"a","9":"b"}"#);
        assert_eq!(text(&HashMap::from([((1, 2), 3)])), "{[1,2]:3}", "JSON has no form for this key");
        assert_eq!(text(&(1u8, "a", [2.0f32], u128::MAX)), format!("[1,\"a\",[2.0],{}]", u128::MAX));
    }

    #[test]
    fn equal_sets_have_one_form_and_lists_keep_their_order() {
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

    /// JSON text in a struct of this name, the form in which serde_json passes it.
    struct Text(&'static str, &'static str);

    impl Serialize for Text {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut writer = serializer.serialize_struct(self.0, 1)?;
            writer.serialize_field(self.0, self.1)?;
            writer.end()
        }
    }

    #[test]
    fn raw_json_is_written_in_canonical_form_and_a_number_with_all_its_digits() {
        assert_eq!(text(&Text(RAW, r#"{"b": 1, "a": [ ]}"#)), r#"{"a":[],"b":1}"#);
        assert_eq!(text(&Text(NUMBER, "1.00000000000000000000001")), "1.00000000000000000000001");
        assert_eq!(text(&Text("Other", "1")), r#"{"Other":"1"}"#);
    }

    #[test]
    fn values_with_equal_json_have_different_forms() {
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
