//! The binary encoding of a stored response.
use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use http::{Response, StatusCode};
use http_body::Body;
use idempotent_core::{Codec, CodecError, Fingerprint, Json};

use crate::response::body_store::{self, ExternalBody};
use crate::response::rules::{MAX_HEADERS, SanitizerPanicked};
use crate::response::stored::{StoredBody, StoredResponse};

const VERSION: u8 = 1;
const GONE: u8 = 1;
const TRAILERS: u8 = 2;
/// Flag: the location of an external body replaces the body.
const SPILLED: u8 = 4;
/// Flag in the length of a header value: the value is sensitive. A real length never reaches this bit.
const SENSITIVE: u32 = 1 << 31;

/// The initial capacity for headers, in bytes.
const HEADER_CAPACITY: usize = 256;

/// The longest `Location` that is stored without its response, in bytes.
const MAX_LOCATION: usize = 8 << 10;

/// A binary encoding, because a body is bytes. [`StoredResponse`] is not `Serialize`, so this implementation does not overlap
/// with the one for JSON values.
#[diagnostic::do_not_recommend]
impl<B: Body> Codec<StoredResponse<B>> for Json {
    fn encode(kept: &StoredResponse<B>) -> Result<Option<Vec<u8>>, CodecError> {
        let Some(rules) = &kept.rules else {
            return Err(CodecError::encode::<StoredResponse<B>>("the response has no rules"));
        };
        let (whole, trailers) = match &kept.body {
            StoredBody::Whole(bytes, trailers) => (Some(bytes), trailers.as_ref()),
            StoredBody::Passing(_) | StoredBody::Spilled(..) | StoredBody::Gone => (None, None),
        };
        let sanitized = rules.sanitized(&kept.parts, whole.cloned().unwrap_or_default(), trailers.is_some());
        // Headers that are never stored are not stored as trailers either.
        let stored_trailers = trailers.map(|trailers| rules.headers(trailers, false));
        let body = |bytes| match (&kept.spilled, whole) {
            (Some(elsewhere), _) => Some(BodyField::External(elsewhere)),
            (None, Some(whole)) if whole.len() as u64 <= rules.max_response => Some(BodyField::Whole(bytes)),
            (None, _) => None,
        };
        Ok(Some(match &sanitized {
            Some(Ok(left)) => {
                let headers = || rules.headers(left.headers(), trailers.is_some());
                form(left.status(), headers, stored_trailers, body(left.body()))
            }
            Some(Err(SanitizerPanicked)) => gone(kept.parts.status, None),
            None => {
                let headers = &kept.parts.headers;
                let bytes = whole.map_or(&[][..], |whole| whole);
                form(kept.parts.status, || rules.headers(headers, trailers.is_some()), stored_trailers, body(bytes))
            }
        }))
    }

    fn decode(bytes: Option<&[u8]>) -> Result<StoredResponse<B>, CodecError> {
        let bytes = bytes.ok_or_else(|| CodecError::decode::<StoredResponse<B>>("the record contains no response"))?;
        read(bytes).map_err(CodecError::decode::<StoredResponse<B>>)
    }
}

enum BodyField<'a> {
    Whole(&'a [u8]),
    External(&'a ExternalBody),
}

/// Encodes a response. If the body is missing or the headers exceed the limit, encodes only status and `Location`.
fn form<'a, 't, I: Iterator<Item = (&'a HeaderName, &'a HeaderValue)>>(
    status: StatusCode,
    kept: impl Fn() -> I,
    trailers: Option<impl Iterator<Item = (&'t HeaderName, &'t HeaderValue)>>,
    body: Option<BodyField<'_>>,
) -> Vec<u8> {
    let Some(body) = body else { return gone(status, location(kept())) };
    let (flags, length) = match &body {
        BodyField::Whole(bytes) => (0, bytes.len()),
        BodyField::External(elsewhere) => (SPILLED, elsewhere.name.len()),
    };
    let mut out = begun(if trailers.is_some() { flags | TRAILERS } else { flags }, status, HEADER_CAPACITY + length);
    if !put(&mut out, kept()) || trailers.is_some_and(|trailers| !put(&mut out, trailers)) {
        return gone(status, location(kept()));
    }
    match body {
        BodyField::Whole(bytes) => out.extend_from_slice(bytes),
        BodyField::External(ExternalBody { name, length, digest }) => {
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&digest.to_bytes());
            out.extend_from_slice(name.as_bytes());
        }
    }
    out
}

fn location<'a>(mut kept: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>) -> Option<&'a HeaderValue> {
    kept.find(|(name, _)| **name == LOCATION).map(|(_, value)| value).filter(|value| value.len() <= MAX_LOCATION)
}

/// Encodes a response without its body. A duplicate then learns only the status and the `Location`.
fn gone(status: StatusCode, location: Option<&HeaderValue>) -> Vec<u8> {
    let mut out = begun(GONE, status, 32 + location.map_or(0, HeaderValue::len));
    put(&mut out, location.into_iter().map(|location| (&LOCATION, location)));
    out
}

fn begun(flags: u8, status: StatusCode, room: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + room);
    out.extend_from_slice(&[VERSION, flags]);
    out.extend_from_slice(&status.as_u16().to_be_bytes());
    out
}

/// Writes the number of headers, and each header. Returns false if they exceed the limit.
fn put<'a>(out: &mut Vec<u8>, headers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>) -> bool {
    let start = out.len();
    // Each header takes at least six bytes, so the limit in bytes keeps the count within `u16`.
    let mut count = 0_u16;
    out.extend_from_slice(&count.to_be_bytes());
    for (name, value) in headers {
        let (Ok(of_name), Ok(of_value)) = (u16::try_from(name.as_str().len()), u32::try_from(value.len())) else {
            return false;
        };
        if out.len() - start + 6 + name.as_str().len() + value.len() > MAX_HEADERS {
            return false;
        }
        let flag = if value.is_sensitive() { SENSITIVE } else { 0 };
        out.extend_from_slice(&of_name.to_be_bytes());
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(&(of_value | flag).to_be_bytes());
        out.extend_from_slice(value.as_bytes());
        count += 1;
    }
    out[start..start + 2].copy_from_slice(&count.to_be_bytes());
    true
}

fn read<B: Body>(bytes: &[u8]) -> Result<StoredResponse<B>, &'static str> {
    let mut bytes = ByteReader(bytes);
    let [version, flags] = bytes.array()?;
    if version != VERSION || flags & !(GONE | TRAILERS | SPILLED) != 0 {
        return Err("unknown format version");
    }
    let status = StatusCode::from_u16(u16::from_be_bytes(bytes.array()?)).map_err(|_| "invalid status")?;
    let headers = bytes.headers()?;
    let trailers = if flags & TRAILERS == 0 { None } else { Some(bytes.headers()?) };
    let body = match flags & (GONE | SPILLED) {
        0 => StoredBody::Whole(Bytes::copy_from_slice(bytes.0), trailers),
        SPILLED => {
            let (length, digest) = (u64::from_be_bytes(bytes.array()?), Fingerprint::from_bytes(bytes.array()?));
            let name = body_store::name(bytes.0).ok_or("invalid name of an external body")?.into();
            StoredBody::Spilled(Box::new(ExternalBody { name, length, digest }), trailers)
        }
        GONE if bytes.0.is_empty() => StoredBody::Gone,
        _ => return Err("trailing bytes"),
    };
    let mut parts = Response::new(()).into_parts().0;
    (parts.status, parts.headers) = (status, headers);
    Ok(StoredResponse { parts, body, spilled: None, rules: None })
}

struct ByteReader<'a>(&'a [u8]);

const SHORT: &str = "unexpected end of data";

impl<'a> ByteReader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (array, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*array)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn headers(&mut self) -> Result<HeaderMap, &'static str> {
        let count = usize::from(u16::from_be_bytes(self.array()?));
        // The map grows as headers are read, so a damaged count does not allocate memory.
        let mut headers = HeaderMap::new();
        for _ in 0..count {
            let length = usize::from(u16::from_be_bytes(self.array()?));
            let name = HeaderName::from_bytes(self.take(length)?).map_err(|_| "invalid header name")?;
            let length = u32::from_be_bytes(self.array()?);
            let value = self.take(usize::try_from(length & !SENSITIVE).map_err(|_| SHORT)?)?;
            let mut value = HeaderValue::from_bytes(value).map_err(|_| "invalid header value")?;
            value.set_sensitive(length & SENSITIVE != 0);
            headers.try_append(name, value).map_err(|_| "too many headers")?;
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    fn error(bytes: &[u8]) -> Option<&'static str> {
        read::<Full<Bytes>>(bytes).err()
    }

    #[test]
    fn unknown_versions_and_flags_are_refused() {
        let mut bytes = gone(StatusCode::CREATED, None);
        assert_eq!(error(&bytes), None);
        bytes[0] = VERSION + 1;
        assert_eq!(error(&bytes), Some("unknown format version"));
        bytes[..2].copy_from_slice(&[VERSION, GONE | 8]);
        assert_eq!(error(&bytes), Some("unknown format version"));
    }

    #[test]
    fn a_response_without_its_body_has_no_trailing_bytes() {
        let mut bytes = gone(StatusCode::CREATED, Some(&HeaderValue::from_static("/orders/1")));
        bytes.push(0);
        assert_eq!(error(&bytes), Some("trailing bytes"));
    }
}
