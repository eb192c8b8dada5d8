//! The stored form of a response.
use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use http::{Response, StatusCode};
use http_body::Body;
use idempotent_core::{Codec, CodecError, Fingerprint, Json};

use crate::response::body_store::{self, Elsewhere};
use crate::response::rules::{MAX_HEADERS, Unclean};
use crate::response::stored::{Kept, KeptBody};

const VERSION: u8 = 1;
const GONE: u8 = 1;
const TRAILERS: u8 = 2;
/// In place of the body stands where it is.
const SPILLED: u8 = 4;
/// In the length of a header's value, which is never as long: the value is not to be shown.
const SENSITIVE: u32 = 1 << 31;

/// What headers mostly come to.
const ROOM: usize = 256;

/// A longer one is not told to duplicates.
const MAX_LOCATION: usize = 8 << 10;

/// Not JSON all through: a body is bytes. [`Kept`] is not `Serialize`, so this does not meet the codec's own form.
#[diagnostic::do_not_recommend]
impl<B: Body> Codec<Kept<B>> for Json {
    fn encode(kept: &Kept<B>) -> Result<Option<Vec<u8>>, CodecError> {
        let Some(rules) = &kept.rules else { return Err(CodecError::encode::<Kept<B>>("no rules say what to keep")) };
        let (whole, trailers) = match &kept.body {
            KeptBody::Whole(bytes, trailers) => (Some(bytes), trailers.as_ref()),
            KeptBody::Passing(_) | KeptBody::Spilled(..) | KeptBody::Gone => (None, None),
        };
        let looked_over = rules.sanitized(&kept.parts, whole.cloned().unwrap_or_default(), trailers.is_some());
        // What is never kept of headers is not kept here either.
        let behind = trailers.map(|trailers| rules.headers(trailers, false));
        let body = |bytes| match (&kept.spilled, whole) {
            (Some(elsewhere), _) => Some(Stored::Elsewhere(elsewhere)),
            (None, Some(whole)) if whole.len() as u64 <= rules.max_response => Some(Stored::Whole(bytes)),
            (None, _) => None,
        };
        Ok(Some(match &looked_over {
            Some(Ok(left)) => {
                let headers = || rules.headers(left.headers(), trailers.is_some());
                form(left.status(), headers, behind, body(left.body()))
            }
            Some(Err(Unclean)) => gone(kept.parts.status, None),
            None => {
                let headers = &kept.parts.headers;
                let bytes = whole.map_or(&[][..], |whole| whole);
                form(kept.parts.status, || rules.headers(headers, trailers.is_some()), behind, body(bytes))
            }
        }))
    }

    fn decode(bytes: Option<&[u8]>) -> Result<Kept<B>, CodecError> {
        let bytes = bytes.ok_or_else(|| CodecError::decode::<Kept<B>>("no answer was kept"))?;
        read(bytes).map_err(CodecError::decode::<Kept<B>>)
    }
}

enum Stored<'a> {
    Whole(&'a [u8]),
    Elsewhere(&'a Elsewhere),
}

/// The stored form of an answer of which these headers are kept; without its body where it has none or they are too long.
fn form<'a, 't, I: Iterator<Item = (&'a HeaderName, &'a HeaderValue)>>(
    status: StatusCode,
    kept: impl Fn() -> I,
    trailers: Option<impl Iterator<Item = (&'t HeaderName, &'t HeaderValue)>>,
    body: Option<Stored<'_>>,
) -> Vec<u8> {
    let Some(body) = body else { return gone(status, location(kept())) };
    let (flags, length) = match &body {
        Stored::Whole(bytes) => (0, bytes.len()),
        Stored::Elsewhere(elsewhere) => (SPILLED, elsewhere.name.len()),
    };
    let mut out = begun(if trailers.is_some() { flags | TRAILERS } else { flags }, status, ROOM + length);
    if !put(&mut out, kept()) || trailers.is_some_and(|trailers| !put(&mut out, trailers)) {
        return gone(status, location(kept()));
    }
    match body {
        Stored::Whole(bytes) => out.extend_from_slice(bytes),
        Stored::Elsewhere(Elsewhere { name, length, digest }) => {
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

/// Where it went is all that a duplicate can still be told.
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

/// Writes their number and each of them, unless they are more than is kept.
fn put<'a>(out: &mut Vec<u8>, headers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>) -> bool {
    let start = out.len();
    // None takes less than six bytes, so that there are never as many.
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

fn read<B: Body>(bytes: &[u8]) -> Result<Kept<B>, &'static str> {
    let mut bytes = Reader(bytes);
    let [version, flags] = bytes.array()?;
    if version != VERSION || flags & !(GONE | TRAILERS | SPILLED) != 0 {
        return Err("it was kept by another version");
    }
    let status = StatusCode::from_u16(u16::from_be_bytes(bytes.array()?)).map_err(|_| "its status is none")?;
    let headers = bytes.headers()?;
    let trailers = if flags & TRAILERS == 0 { None } else { Some(bytes.headers()?) };
    let body = match flags & (GONE | SPILLED) {
        0 => KeptBody::Whole(Bytes::copy_from_slice(bytes.0), trailers),
        SPILLED => {
            let (length, digest) = (u64::from_be_bytes(bytes.array()?), Fingerprint::from_bytes(bytes.array()?));
            let name = body_store::name(bytes.0).ok_or("its body's name is none")?.into();
            KeptBody::Spilled(Box::new(Elsewhere { name, length, digest }), trailers)
        }
        GONE if bytes.0.is_empty() => KeptBody::Gone,
        _ => return Err("it goes on behind its end"),
    };
    let mut parts = Response::new(()).into_parts().0;
    (parts.status, parts.headers) = (status, headers);
    Ok(Kept { parts, body, spilled: None, rules: None })
}

struct Reader<'a>(&'a [u8]);

const SHORT: &str = "it ends too soon";

impl<'a> Reader<'a> {
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
        // Grown as it is read: a damaged count must not ask for memory.
        let mut headers = HeaderMap::new();
        for _ in 0..count {
            let length = usize::from(u16::from_be_bytes(self.array()?));
            let name = HeaderName::from_bytes(self.take(length)?).map_err(|_| "a header's name is none")?;
            let length = u32::from_be_bytes(self.array()?);
            let value = self.take(usize::try_from(length & !SENSITIVE).map_err(|_| SHORT)?)?;
            let mut value = HeaderValue::from_bytes(value).map_err(|_| "a header's value is none")?;
            value.set_sensitive(length & SENSITIVE != 0);
            headers.try_append(name, value).map_err(|_| "it has too many headers")?;
        }
        Ok(headers)
    }
}
