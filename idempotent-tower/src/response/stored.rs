//! A response as the record keeps it.
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue, LOCATION};
use http::response::Parts;
use http::{Response, StatusCode};
use http_body::Body;

use crate::ResponseRules;
use crate::response::body::ResponseBody;
use crate::response::body_store::{Elsewhere, Spilled};

/// An answer that counts: the handler's, with a body in memory or one that passes through, or one from the record.
///
/// Its stored form is this version's number, a byte of flags, the status, the headers, the trailers if there are any, and
/// the body, all lengths ahead of what they measure. Header names and values are bytes, and so is the body; the highest
/// bit of a value's length says that the value is not to be shown. In place of a body that is elsewhere stand its length,
/// its digest and the name it has there.
#[derive(Debug)]
pub struct Kept<B: Body> {
    /// With the extensions, which only the first caller gets.
    pub(crate) parts: Parts,
    pub(crate) body: KeptBody<B>,
    /// Where its body is as well.
    pub(crate) spilled: Option<Box<Elsewhere>>,
    /// Those it was judged by; none once it comes from a record, or if they panicked.
    pub(crate) rules: Option<Arc<ResponseRules>>,
}

#[derive(Debug)]
pub(crate) enum KeptBody<B: Body> {
    Whole(Bytes, Option<HeaderMap>),
    /// The handler's own, unread.
    Passing(ResponseBody<B>),
    Spilled(Box<Elsewhere>, Option<HeaderMap>),
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

    /// An answer that is done, and whose body goes to its caller alone.
    pub(crate) fn passing(response: Response<B>, rules: Option<Arc<ResponseRules>>) -> Self {
        let (parts, body) = response.into_parts();
        Self { parts, body: KeptBody::Passing(ResponseBody::passing(body)), spilled: None, rules }
    }

    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self.body, KeptBody::Spilled(..))
    }

    /// Fetches a body that is elsewhere; without one it is gone.
    pub(crate) async fn fetched(mut self, spill: Option<&Spilled>) -> Self {
        if let KeptBody::Spilled(elsewhere, trailers) = &mut self.body {
            let trailers = trailers.take();
            let found = if let Some(spill) = spill { spill.get(elsewhere).await } else { None };
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
