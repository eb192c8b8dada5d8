//! Writers for lists, maps and structs.
use serde::Serialize;
use serde::ser::{
    Error as _, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};
use serde_json::Value;

use super::{CanonicalWriter, NUMBER, NoCanonicalForm, WriteResult, canonical};

/// A list while it is written.
pub(super) struct ListWriter<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) is_first: bool,
    pub(super) end: &'static str,
}

impl ListWriter<'_> {
    fn item<T: Serialize + ?Sized>(&mut self, item: &T) -> WriteResult {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
        item.serialize(CanonicalWriter(self.out))
    }

    fn finish(self) -> WriteResult {
        self.out.push(b']');
        CanonicalWriter(self.out).plain(self.end)
    }
}

macro_rules! list {
    ($($kind:ident $method:ident),*) => {$(
        impl $kind for ListWriter<'_> {
            type Ok = ();
            type Error = NoCanonicalForm;

            fn $method<T: Serialize + ?Sized>(&mut self, item: &T) -> WriteResult {
                self.item(item)
            }

            fn end(self) -> WriteResult {
                self.finish()
            }
        }
    )*};
}
list! {
    SerializeSeq serialize_element, SerializeTuple serialize_element, SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
}

/// The fields of a map or struct while it is written, collected to be sorted by name.
pub(super) struct FieldsWriter<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) all: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) end: &'static str,
}

impl FieldsWriter<'_> {
    fn finish(mut self) -> WriteResult {
        self.all.sort_unstable();
        self.out.push(b'{');
        for (index, (name, value)) in self.all.iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            // A number or a word as a name is quoted, as in JSON.
            let is_bare = name.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
            let quote = if is_bare { &b"\""[..] } else { b"" };
            self.out.extend([quote, name, quote, b":", value].concat());
        }
        self.out.push(b'}');
        CanonicalWriter(self.out).plain(self.end)
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> WriteResult {
        self.all.push((canonical(name)?, canonical(value)?));
        Ok(())
    }
}

impl SerializeMap for FieldsWriter<'_> {
    type Ok = ();
    type Error = NoCanonicalForm;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> WriteResult {
        self.key = canonical(key)?;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> WriteResult {
        self.all.push((std::mem::take(&mut self.key), canonical(value)?));
        Ok(())
    }

    fn end(self) -> WriteResult {
        self.finish()
    }
}

impl SerializeStructVariant for FieldsWriter<'_> {
    type Ok = ();
    type Error = NoCanonicalForm;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> WriteResult {
        self.field(name, value)
    }

    fn end(self) -> WriteResult {
        self.finish()
    }
}

/// A struct while it is written, or raw JSON text.
pub(super) enum StructWriter<'a> {
    Fields(FieldsWriter<'a>),
    Text(&'a mut Vec<u8>),
}

impl SerializeStruct for StructWriter<'_> {
    type Ok = ();
    type Error = NoCanonicalForm;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> WriteResult {
        match self {
            Self::Fields(fields) => fields.field(name, value),
            Self::Text(out) => {
                let text: String = serde_json::from_slice(&canonical(value)?).map_err(NoCanonicalForm::custom)?;
                match name {
                    // Write the digits themselves, because a `Value` may not have enough precision.
                    NUMBER => CanonicalWriter(out).plain(text),
                    _ => serde_json::from_str::<Value>(&text)
                        .map_err(NoCanonicalForm::custom)?
                        .serialize(CanonicalWriter(out)),
                }
            }
        }
    }

    fn end(self) -> WriteResult {
        match self {
            Self::Fields(fields) => fields.finish(),
            Self::Text(_) => Ok(()),
        }
    }
}
