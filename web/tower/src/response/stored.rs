//! The response that a record stores.
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue, LOCATION};
use http::response::Parts;
use http::{Response, StatusCode};
use http_body::Body;

use crate::ResponseRules;
use crate::response::body::ResponseBody;
use crate::response::body_store::{BodyStoreConfig, ExternalBody};

/// A response that completes its request: from the handler, or from the record. The body is in memory, external, or
/// passes through to the caller.
///
/// The stored form consists of the format version, a byte of flags, the status, the headers, the trailers if there are
/// any, and the body. Each length precedes the data that it measures. Header names, header values and the body are
/// bytes. The highest bit of a value's length marks a sensitive value. For an external body, its length, digest and
/// name replace the body.
#[derive(Debug)]
pub struct StoredResponse<B: Body> {
    /// Includes the extensions, which only the first caller receives.
    pub(crate) parts: Parts,
    pub(crate) body: StoredBody<B>,
    /// The external copy of the body.
    pub(crate) spilled: Option<Box<ExternalBody>>,
    /// The rules that classified the response. `None` for a response from a record, or if the rules panicked.
    pub(crate) rules: Option<Arc<ResponseRules>>,
}

#[derive(Debug)]
pub(crate) enum StoredBody<B: Body> {
    Whole(Bytes, Option<HeaderMap>),
    /// The body of the handler, unread.
    Passing(ResponseBody<B>),
    Spilled(Box<ExternalBody>, Option<HeaderMap>),
    /// The body was not stored.
    Gone,
}

impl<B: Body> StoredResponse<B> {
    /// Returns the status, for example for a `failed_if` expression.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.parts.status
    }

    /// Returns the headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// Returns the body if it is in memory.
    #[must_use]
    pub fn body(&self) -> Option<&Bytes> {
        match &self.body {
            StoredBody::Whole(bytes, _) => Some(bytes),
            StoredBody::Passing(_) | StoredBody::Spilled(..) | StoredBody::Gone => None,
        }
    }

    /// Returns the trailers if the body is in memory.
    #[must_use]
    pub fn trailers(&self) -> Option<&HeaderMap> {
        match &self.body {
            StoredBody::Whole(_, trailers) => trailers.as_ref(),
            StoredBody::Passing(_) | StoredBody::Spilled(..) | StoredBody::Gone => None,
        }
    }

    /// Creates a completed response whose body passes through to its caller.
    pub(crate) fn passing(response: Response<B>, rules: Option<Arc<ResponseRules>>) -> Self {
        let (parts, body) = response.into_parts();
        Self { parts, body: StoredBody::Passing(ResponseBody::passing(body)), spilled: None, rules }
    }

    /// Returns whether the body is external.
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self.body, StoredBody::Spilled(..))
    }

    /// Loads an external body. If that fails, the body becomes [`StoredBody::Gone`].
    pub(crate) async fn fetched(mut self, spill: Option<&BodyStoreConfig>) -> Self {
        if let StoredBody::Spilled(elsewhere, trailers) = &mut self.body {
            let trailers = trailers.take();
            let found = if let Some(spill) = spill { spill.get(elsewhere).await } else { None };
            self.body = found.map_or(StoredBody::Gone, |bytes| StoredBody::Whole(bytes, trailers));
        }
        self
    }

    /// Returns the response.
    ///
    /// # Errors
    /// The `Location` header, if the body was not stored.
    pub(crate) fn into_response(self) -> Result<Response<ResponseBody<B>>, Option<HeaderValue>> {
        let body = match self.body {
            StoredBody::Whole(bytes, trailers) => ResponseBody::whole(bytes, trailers),
            StoredBody::Passing(body) => body,
            StoredBody::Spilled(..) | StoredBody::Gone => return Err(self.parts.headers.get(LOCATION).cloned()),
        };
        Ok(Response::from_parts(self.parts, body))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[test]
    fn a_response_shows_its_parts() {
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = StatusCode::CREATED;
        let mut stored = StoredResponse::passing(response, None);
        assert_eq!((stored.status(), stored.body(), stored.trailers()), (StatusCode::CREATED, None, None));
        assert!(!stored.is_elsewhere());
        let trailers: HeaderMap = [(LOCATION, HeaderValue::from_static("/1"))].into_iter().collect();
        stored.body = StoredBody::Whole(Bytes::from_static(b"x"), Some(trailers.clone()));
        assert_eq!((stored.body().map(|body| &body[..]), stored.trailers()), (Some(&b"x"[..]), Some(&trailers)));
    }
}
