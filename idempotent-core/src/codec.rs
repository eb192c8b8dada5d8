//! How a result is kept for replay.
use serde::{Serialize, de::DeserializeOwned};

use crate::CodecError;

/// Keeps and restores a `T`. The type parameter sits on the trait, so that a codec of yours can serve a type
/// that is not: seal, compress, or use another format.
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
    message = "codec `{Self}` cannot keep a `{T}` for replay",
    label = "this codec has no form for a `{T}`",
    note = "derive serde's Serialize and Deserialize for `{T}`, name a codec of yours: `codec = …`, or say \
            `codec = idempotent::Discard` to replay the default value",
    note = "an `axum::Json` is kept by `codec = idempotent::AxumJson`, a whole answer by `reply = idempotent::Http` (feature `axum`)"
)]
pub trait Codec<T> {
    /// The bytes to keep; `None` to keep nothing.
    ///
    /// # Errors
    /// [`CodecError`] if the value has no such form. The run counts as done all the same.
    fn encode(value: &T) -> Result<Option<Vec<u8>>, CodecError>;

    /// The value of bytes kept; `None` where the run succeeded but nothing was kept.
    ///
    /// # Errors
    /// [`CodecError`] if they are not a `T`: duplicates are then told that it is done, never run again.
    fn decode(bytes: Option<&[u8]>) -> Result<T, CodecError>;
}

/// JSON by serde; the default.
///
/// Where nothing was kept only a value without content comes back: an `Option` does not turn into `None`. What JSON
/// itself cannot tell apart, such as `Some(())` and `None`, this cannot either.
#[derive(Clone, Copy, Debug)]
pub struct Json;

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> Codec<T> for Json {
    fn encode(value: &T) -> Result<Option<Vec<u8>>, CodecError> {
        // What comes back from nothing kept need not be kept.
        let mut text = [0; 4];
        if size_of::<T>() == 0 && serde_json::to_writer(&mut text[..], value).is_ok() && text == *b"null" {
            return Ok(None);
        }
        serde_json::to_vec(value).map(Some).map_err(CodecError::encode::<T>)
    }

    fn decode(bytes: Option<&[u8]>) -> Result<T, CodecError> {
        let bytes = match bytes {
            Some(bytes) => bytes,
            None if size_of::<T>() == 0 => b"null",
            None => return Err(CodecError::decode::<T>("no value was kept")),
        };
        serde_json::from_slice(bytes).map_err(|error| CodecError::decode::<T>(shape(&error)))
    }
}

/// What is wrong, without a word of the result itself: serde quotes values.
fn shape(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let (line, column) = (error.line(), error.column());
    // Names of fields are the type's, not the result's.
    match text.starts_with("missing field") || text.starts_with("recursion limit") {
        true => text,
        false => format!("not of this shape at line {line} column {column} ({:?})", error.classify()),
    }
}

/// Keeps nothing; a duplicate gets the default value.
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

    fn comes_back<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: T) -> Option<Vec<u8>> {
        let kept = Json::encode(&value).unwrap();
        assert_eq!(<Json as Codec<T>>::decode(kept.as_deref()).unwrap(), value);
        kept
    }

    #[test]
    fn of_a_value_that_comes_back_from_nothing_nothing_is_kept() {
        assert_eq!(comes_back(()), None);
        assert_eq!(comes_back(std::marker::PhantomData::<u8>), None);
    }

    #[test]
    fn what_takes_no_room_and_is_not_null_is_kept() {
        assert_eq!(comes_back(Only::One), Some(b"\"One\"".to_vec()));
        assert_eq!(comes_back(Wrapped { nothing: () }), Some(b"{\"nothing\":null}".to_vec()));
        assert_eq!(comes_back([(); 0]), Some(b"[]".to_vec()));
    }

    #[test]
    fn nothing_is_kept_of_no_other_type() {
        assert_eq!(comes_back(None::<u8>), Some(b"null".to_vec()));
        assert!(<Json as Codec<Option<u8>>>::decode(None).is_err());
    }
}
