//! Codecs, which encode a result for replay.
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::panic_guard::catch_panic;
use crate::{CodecError, Fingerprint};

/// Encodes and decodes results of type `T`.
///
/// The type parameter is on the trait, so that your codec can handle a foreign type: encrypt or compress it, or use
/// another format.
///
/// ```
/// use idempotent_core::{Codec, CodecError};
///
/// struct Hex;
/// impl Codec<u64> for Hex {
///     fn encode(value: &u64) -> Result<Option<Vec<u8>>, CodecError> {
///         Ok(Some(format!("{value:x}").into_bytes()))
///     }
///     fn decode(bytes: Option<&[u8]>) -> Result<u64, CodecError> {
///         let text = std::str::from_utf8(bytes.unwrap_or_default()).map_err(CodecError::decode::<u64>)?;
///         u64::from_str_radix(text, 16).map_err(CodecError::decode::<u64>)
///     }
/// }
/// assert_eq!(Hex::decode(Hex::encode(&255)?.as_deref())?, 255);
/// # Ok::<(), CodecError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "the codec `{Self}` cannot store a `{T}` for replay",
    label = "this codec does not encode a `{T}`",
    note = "derive serde's Serialize and Deserialize for `{T}`, set a codec of your own by `codec = …`, or set \
            `codec = idempotent::Discard` to replay the default value",
    note = "`codec = idempotent::http::AxumJson` stores an `axum::Json`, and `reply = idempotent::Http` a whole response (feature `axum`)"
)]
pub trait Codec<T> {
    /// Encodes a value, or returns `None` to keep nothing.
    ///
    /// # Errors
    /// Returns a [`CodecError`] if the value cannot be encoded. The run counts as done nevertheless.
    fn encode(value: &T) -> Result<Option<Vec<u8>>, CodecError>;

    /// Decodes the bytes of a kept value. `None` means that the run succeeded and no value was kept.
    ///
    /// # Errors
    /// Returns a [`CodecError`] if the bytes are not a `T`. Duplicates then get no result, and the handler does not run
    /// again.
    fn decode(bytes: Option<&[u8]>) -> Result<T, CodecError>;
}

/// Encodes a value. A codec that panics returns an error.
pub(crate) fn encode<C: Codec<T>, T>(value: &T) -> Result<Option<Vec<u8>>, CodecError> {
    catch_panic("codec", || C::encode(value)).unwrap_or_else(|| Err(CodecError::encode::<T>(PANICKED)))
}

/// Decodes the bytes of a value. A codec that panics returns an error.
pub(crate) fn decode<C: Codec<T>, T>(bytes: Option<&[u8]>) -> Result<T, CodecError> {
    catch_panic("codec", || C::decode(bytes)).unwrap_or_else(|| Err(CodecError::decode::<T>(PANICKED)))
}

const PANICKED: &str = "the codec panicked";

/// The default codec: JSON by serde.
///
/// JSON does not preserve every value. `Some(())`, `Some(None)` and `Some(f64::NAN)` decode as `None`; an integer in an
/// untagged enum can decode as a floating-point number. A debug build decodes each value again and does not keep a
/// value that has changed. The run still counts as done, and its duplicates get no result. Release builds skip this
/// check, so run the tests of your handlers in debug builds. If no value was kept, only zero-sized types decode; an
/// `Option` fails instead of becoming `None`.
///
/// A format that is not self-describing keeps such values, for instance `postcard`:
///
/// ```
/// use idempotent_core::{Codec, CodecError};
/// use serde::{Serialize, de::DeserializeOwned};
///
/// struct Postcard;
/// impl<T: Serialize + DeserializeOwned> Codec<T> for Postcard {
///     fn encode(value: &T) -> Result<Option<Vec<u8>>, CodecError> {
///         postcard::to_allocvec(value).map(Some).map_err(CodecError::encode::<T>)
///     }
///     fn decode(bytes: Option<&[u8]>) -> Result<T, CodecError> {
///         postcard::from_bytes(bytes.unwrap_or_default()).map_err(CodecError::decode::<T>)
///     }
/// }
/// let kept = Postcard::encode(&Some(()))?;
/// let back: Option<()> = Postcard::decode(kept.as_deref())?;
/// assert_eq!(back, Some(()));
/// # Ok::<(), CodecError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Json;

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Codec<T> for Json {
    fn encode(value: &T) -> Result<Option<Vec<u8>>, CodecError> {
        // A value that decodes from nothing need not be kept.
        let mut text = [0; 4];
        if size_of::<T>() == 0 && serde_json::to_writer(&mut text[..], value).is_ok() && text == *b"null" {
            return Ok(None);
        }
        let kept = serde_json::to_vec(value).map_err(CodecError::encode::<T>)?;
        if cfg!(debug_assertions) && decodes_differently(value, &kept) {
            return Err(CodecError::encode::<T>(
                "JSON decodes it to another value; set a codec that preserves it: `codec = …` (see `idempotent::Json`)",
            ));
        }
        Ok(Some(kept))
    }

    fn decode(bytes: Option<&[u8]>) -> Result<T, CodecError> {
        let bytes = match bytes {
            Some(bytes) => bytes,
            None if size_of::<T>() == 0 => b"null",
            None => return Err(CodecError::decode::<T>("no value was kept")),
        };
        serde_json::from_slice(bytes).map_err(|error| CodecError::decode::<T>(describe_error(&error)))
    }
}

/// Returns whether the JSON decodes to a different value.
///
/// Fingerprints distinguish values with equal JSON and ignore the order of sets and maps. A different order of elements
/// alone is no difference, since a custom serializer may write a set as a list. If the JSON cannot be decoded at all,
/// the first duplicate gets an error in every build, so this function returns false.
fn decodes_differently<T: Serialize + DeserializeOwned>(value: &T, kept: &[u8]) -> bool {
    let Ok(back) = serde_json::from_slice::<T>(kept) else { return false };
    match (Fingerprint::of(value), Fingerprint::of(&back)) {
        (Ok(value), Ok(again)) => value != again && !is_reordered(kept, &back),
        (value, back) => value.is_ok() != back.is_ok(),
    }
}

/// Returns whether the JSON of `back` has the elements of `kept` in a different order.
fn is_reordered<T: Serialize>(kept: &[u8], back: &T) -> bool {
    // Compare by text: numbers of different precision are different `Value`s.
    let read = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
    let back = serde_json::to_vec(back).ok();
    let (Some(mut kept), Some(mut back)) = (read(kept), back.and_then(|back| read(&back))) else { return false };
    if kept == back {
        return false;
    }
    sort(&mut kept);
    sort(&mut back);
    kept == back
}

fn sort(value: &mut Value) {
    match value {
        Value::Array(elements) => {
            elements.iter_mut().for_each(sort);
            elements.sort_by_cached_key(Value::to_string);
        }
        Value::Object(fields) => fields.values_mut().for_each(sort),
        _ => {}
    }
}

/// Describes a JSON error without any part of the result, because serde's messages quote values.
fn describe_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let (line, column) = (error.line(), error.column());
    // Field names belong to the type, not to the result.
    match text.starts_with("missing field") || text.starts_with("recursion limit") {
        true => text,
        false => format!("unexpected JSON at line {line} column {column} ({:?})", error.classify()),
    }
}

/// A codec that keeps nothing. A duplicate gets the default value.
#[derive(Clone, Copy, Debug)]
pub struct Discard;

impl<T: Default> Codec<T> for Discard {
    fn encode(_: &T) -> Result<Option<Vec<u8>>, CodecError> {
        Ok(None)
    }

    fn decode(_: Option<&[u8]>) -> Result<T, CodecError> {
        Ok(T::default())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    enum Only {
        One,
    }

    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    struct Wrapped {
        nothing: (),
    }

    fn round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: T) -> Option<Vec<u8>> {
        let kept = Json::encode(&value).unwrap();
        assert_eq!(<Json as Codec<T>>::decode(kept.as_deref()).unwrap(), value);
        kept
    }

    #[test]
    fn a_value_that_decodes_from_nothing_is_not_kept() {
        assert_eq!(round_trip(()), None);
        assert_eq!(round_trip(std::marker::PhantomData::<u8>), None);
    }

    #[test]
    fn a_zero_sized_value_whose_json_is_not_null_is_kept() {
        assert_eq!(round_trip(Only::One), Some(b"\"One\"".to_vec()));
        assert_eq!(round_trip(Wrapped { nothing: () }), Some(b"{\"nothing\":null}".to_vec()));
        assert_eq!(round_trip([(); 0]), Some(b"[]".to_vec()));
    }

    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    #[serde(untagged)]
    enum Amount {
        Euros(f64),
        Cents(u64),
    }

    #[test]
    fn a_value_that_decodes_to_a_different_one_is_not_kept_in_debug_builds() {
        fn is_refused<T: Serialize + DeserializeOwned>(value: T) -> bool {
            let kept = Json::encode(&value);
            kept.is_err_and(|error| format!("{error:?}").contains("another value"))
        }
        let debug = cfg!(debug_assertions);
        assert_eq!(is_refused(Some(())), debug);
        assert_eq!(is_refused(Some(None::<u8>)), debug);
        assert_eq!(is_refused([Some(f64::NAN)]), debug);
        assert_eq!(is_refused(Amount::Cents((1 << 53) + 1)), debug);
        round_trip(Amount::Euros(1.5));
        round_trip(Some(Some(1)));
    }

    #[test]
    fn sets_and_maps_are_kept_despite_their_order() {
        use std::collections::{HashMap, HashSet};
        round_trip((0..100).collect::<HashSet<u32>>());
        round_trip((0..100).map(|n| (n, Some(n))).collect::<HashMap<u32, Option<u32>>>());
        round_trip(vec![f64::MAX, 1e-300, 0.1 + 0.2, 448.857_142_857_142_83]);
    }

    /// A set that serializes as a list, in any order.
    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    struct Tags(#[serde(serialize_with = "as_list")] std::collections::HashSet<u32>);

    fn as_list<S: serde::Serializer>(set: &std::collections::HashSet<u32>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(set.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_list_that_decodes_in_another_order_is_kept() {
        round_trip(Tags((0..100).collect()));
        round_trip([Some(Tags((0..100).collect()))]);
        round_trip(std::collections::BTreeMap::from([(1, Tags((0..100).collect()))]));
        round_trip((Tags((0..100).collect()), 0.1_f32));
    }

    #[test]
    fn a_discarded_value_decodes_as_the_default() {
        assert_eq!(<Discard as Codec<u8>>::encode(&7).unwrap(), None);
        assert_eq!(<Discard as Codec<Defaulted>>::decode(None).unwrap(), Defaulted(7));
    }

    #[derive(Debug, PartialEq)]
    struct Defaulted(u8);

    impl Default for Defaulted {
        fn default() -> Self {
            Self(7)
        }
    }

    #[test]
    fn an_option_is_kept_and_does_not_decode_from_nothing() {
        assert_eq!(round_trip(None::<u8>), Some(b"null".to_vec()));
        assert!(<Json as Codec<Option<u8>>>::decode(None).is_err());
    }
}
