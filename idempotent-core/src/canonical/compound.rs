//! Lists, maps and structs that are being written.
use serde::Serialize;
use serde::ser::{
    Error as _, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};
use serde_json::Value;

use super::{Done, NUMBER, Unwritable, Writer, canonical};

/// A list that is being written.
pub(super) struct List<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) is_first: bool,
    pub(super) end: &'static str,
}

impl List<'_> {
    fn item<T: Serialize + ?Sized>(&mut self, item: &T) -> Done {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
        item.serialize(Writer(self.out))
    }

    fn finish(self) -> Done {
        self.out.push(b']');
        Writer(self.out).plain(self.end)
    }
}

macro_rules! list {
    ($($kind:ident $method:ident),*) => {$(
        impl $kind for List<'_> {
            type Ok = ();
            type Error = Unwritable;

            fn $method<T: Serialize + ?Sized>(&mut self, item: &T) -> Done {
                self.item(item)
            }

            fn end(self) -> Done {
                self.finish()
            }
        }
    )*};
}
list! {
    SerializeSeq serialize_element, SerializeTuple serialize_element, SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
}

/// Names and values that are being written, to be sorted by name.
pub(super) struct Fields<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) all: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) end: &'static str,
}

impl Fields<'_> {
    fn finish(mut self) -> Done {
        self.all.sort_unstable();
        self.out.push(b'{');
        for (index, (name, value)) in self.all.iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            // A number or a word as a name is text, as in JSON.
            let is_bare = name.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
            let quote = if is_bare { &b"\""[..] } else { b"" };
            self.out.extend([quote, name, quote, b":", value].concat());
        }
        self.out.push(b'}');
        Writer(self.out).plain(self.end)
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Done {
        self.all.push((canonical(name)?, canonical(value)?));
        Ok(())
    }
}

impl SerializeMap for Fields<'_> {
    type Ok = ();
    type Error = Unwritable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Done {
        self.key = canonical(key)?;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Done {
        self.all.push((std::mem::take(&mut self.key), canonical(value)?));
        Ok(())
    }

    fn end(self) -> Done {
        self.finish()
    }
}

impl SerializeStructVariant for Fields<'_> {
    type Ok = ();
    type Error = Unwritable;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Done {
        self.field(name, value)
    }

    fn end(self) -> Done {
        self.finish()
    }
}

/// A struct that is being written, or JSON that is text already.
pub(super) enum Object<'a> {
    Fields(Fields<'a>),
    Text(&'a mut Vec<u8>),
}

impl SerializeStruct for Object<'_> {
    type Ok = ();
    type Error = Unwritable;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Done {
        match self {
            Self::Fields(fields) => fields.field(name, value),
            Self::Text(out) => {
                let text: String = serde_json::from_slice(&canonical(value)?).map_err(Unwritable::custom)?;
                match name {
                    // Its digits, which a `Value` may not hold.
                    NUMBER => Writer(out).plain(text),
                    _ => serde_json::from_str::<Value>(&text).map_err(Unwritable::custom)?.serialize(Writer(out)),
                }
            }
        }
    }

    fn end(self) -> Done {
        match self {
            Self::Fields(fields) => fields.finish(),
            Self::Text(_) => Ok(()),
        }
    }
}
