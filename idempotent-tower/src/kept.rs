//! An answer in the form it is kept in.
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use http::response::Parts;
use http::{Response, StatusCode};
use http_body::Body;
use idempotent_core::{Codec, CodecError, Json};

use crate::ResponseRules;
use crate::body::ResponseBody;
use crate::response::MAX_HEADERS;
use crate::spill::Spilled;

/// An answer that counts: the handler's, with a body in memory or one that passes through, or one from the record.
///
/// Its stored form is this version's number, a byte of flags, the status, the headers, the trailers if there are any, and
/// the body or what stands for it, all lengths ahead of what they measure; header names and values are bytes, and so is the body.
#[derive(Debug)]
pub struct Kept<B: Body> {
    /// With the extensions, which only the first caller gets.
    pub(crate) parts: Parts,
    pub(crate) body: KeptBody<B>,
    /// The name its body has elsewhere.
    pub(crate) spilled: Option<Box<str>>,
    /// Those it was judged by; none once it comes from a record.
    pub(crate) rules: Option<Arc<ResponseRules>>,
}

#[derive(Debug)]
pub(crate) enum KeptBody<B: Body> {
    Whole(Bytes, Option<HeaderMap>),
    /// The handler's own, unread.
    Passing(ResponseBody<B>),
    /// Is elsewhere, under this name.
    Spilled(Box<str>, Option<HeaderMap>),
    /// Was not kept.
    Gone,
}

impl<B: Body> Kept<B> {
    /// Its status: for a `failed_if` of your own, say.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.parts.status
    }

    /// Its headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// Its body, where that is in memory.
    #[must_use]
    pub fn body(&self) -> Option<&Bytes> {
        match &self.body {
            KeptBody::Whole(bytes, _) => Some(bytes),
            KeptBody::Passing(_) | KeptBody::Spilled(..) | KeptBody::Gone => None,
        }
    }

    /// What came behind its body.
    #[must_use]
    pub fn trailers(&self) -> Option<&HeaderMap> {
        match &self.body {
            KeptBody::Whole(_, trailers) => trailers.as_ref(),
            KeptBody::Passing(_) | KeptBody::Spilled(..) | KeptBody::Gone => None,
        }
    }

    /// Fetches a body that is elsewhere; without one it is gone.
    pub(crate) async fn fetched(mut self, spill: Option<&Spilled>) -> Self {
        if let KeptBody::Spilled(name, trailers) = &mut self.body {
            let (name, trailers) = (std::mem::take(name), trailers.take());
            let found = if let Some(spill) = spill { spill.get(&name).await } else { None };
            self.body = found.map_or(KeptBody::Gone, |bytes| KeptBody::Whole(bytes, trailers));
        }
        self
    }

    /// The answer; `Err` with its `Location` if its body was not kept.
    pub(crate) fn into_response(self) -> Result<Response<ResponseBody<B>>, Option<HeaderValue>> {
        let body = match self.body {
            KeptBody::Whole(bytes, trailers) => ResponseBody::whole(bytes, trailers),
            KeptBody::Passing(body) => body,
            KeptBody::Spilled(..) | KeptBody::Gone => return Err(self.parts.headers.get(LOCATION).cloned()),
        };
        Ok(Response::from_parts(self.parts, body))
    }
}

const VERSION: u8 = 1;
const GONE: u8 = 1;
const TRAILERS: u8 = 2;
/// In place of the body stands the name it has elsewhere.
const SPILLED: u8 = 4;

/// A longer one is not told to duplicates.
const MAX_LOCATION: usize = 8 << 10;

/// Not JSON all through: a body is bytes. [`Kept`] is not `Serialize`, so this does not meet the codec's own form.
#[diagnostic::do_not_recommend]
impl<B: Body> Codec<Kept<B>> for Json {
    fn encode(kept: &Kept<B>) -> Result<Option<Vec<u8>>, CodecError> {
        let Some(rules) = &kept.rules else { return Err(CodecError::encode::<Kept<B>>("it comes from a record")) };
        let (whole, trailers) = match &kept.body {
            KeptBody::Whole(bytes, trailers) => (Some(bytes), trailers.as_ref()),
            KeptBody::Passing(_) | KeptBody::Spilled(..) | KeptBody::Gone => (None, None),
        };
        let stored = rules.kept(&kept.parts, whole.cloned().unwrap_or_default(), trailers.is_some());
        let fits = size(stored.headers()) <= MAX_HEADERS && trailers.is_none_or(|these| size(these) <= MAX_HEADERS);
        let body = match (&kept.spilled, whole) {
            _ if !fits => None,
            (Some(name), _) => Some((SPILLED, name.as_bytes())),
            (None, Some(bytes)) if bytes.len() as u64 <= rules.max_response => Some((0, &**stored.body())),
            (None, _) => None,
        };
        let mut out = vec![VERSION];
        out.reserve(16 + size(stored.headers()) + body.map_or(0, |(_, bytes)| bytes.len()));
        match body {
            Some((flags, bytes)) => {
                out.push(if trailers.is_some() { flags | TRAILERS } else { flags });
                out.extend(stored.status().as_u16().to_be_bytes());
                put(&mut out, stored.headers())?;
                if let Some(trailers) = trailers {
                    put(&mut out, trailers)?;
                }
                out.extend(bytes);
            }
            // Where it went is all that a duplicate can still be told.
            None => {
                out.push(GONE);
                out.extend(stored.status().as_u16().to_be_bytes());
                let mut location = HeaderMap::new();
                let told = stored.headers().get(LOCATION).filter(|value| value.len() <= MAX_LOCATION);
                location.extend(told.map(|value| (LOCATION, value.clone())));
                put(&mut out, &location)?;
            }
        }
        Ok(Some(out))
    }

    fn decode(bytes: Option<&[u8]>) -> Result<Kept<B>, CodecError> {
        let bytes = bytes.ok_or_else(|| CodecError::decode::<Kept<B>>("no answer was kept"))?;
        read(bytes).map_err(CodecError::decode::<Kept<B>>)
    }
}

/// What [`put`] makes of them.
fn size(headers: &HeaderMap) -> usize {
    2 + headers.iter().map(|(name, value)| 6 + name.as_str().len() + value.len()).sum::<usize>()
}

fn put(out: &mut Vec<u8>, headers: &HeaderMap) -> Result<(), CodecError> {
    let too_many = |_| CodecError::encode::<HeaderMap>("its headers are too many or too long");
    out.extend(u16::try_from(headers.len()).map_err(too_many)?.to_be_bytes());
    for (name, value) in headers {
        out.extend(u16::try_from(name.as_str().len()).map_err(too_many)?.to_be_bytes());
        out.extend(name.as_str().as_bytes());
        out.extend(u32::try_from(value.len()).map_err(too_many)?.to_be_bytes());
        out.extend(value.as_bytes());
    }
    Ok(())
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
            let name = std::str::from_utf8(bytes.0).map_err(|_| "its body's name is none")?;
            KeptBody::Spilled(name.into(), trailers)
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
            let length = usize::try_from(u32::from_be_bytes(self.array()?)).map_err(|_| SHORT)?;
            let value = HeaderValue::from_bytes(self.take(length)?).map_err(|_| "a header's value is none")?;
            headers.try_append(name, value).map_err(|_| "it has too many headers")?;
        }
        Ok(headers)
    }
}
