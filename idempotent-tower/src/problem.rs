//! Problem responses by RFC 9457: `application/problem+json`.
mod kind;
mod rejection;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LINK, LOCATION, RETRY_AFTER};
use serde::Serialize;

pub use self::kind::ProblemKind;
use crate::{Idempotent, InvalidKey};

/// An answer that says what went wrong and what to do. Never holds a key, a token or a body.
///
/// It is an error, so an error type of yours takes it by `#[from]`; with the feature `axum` it is an answer by itself.
///
/// ```
/// use std::time::Duration;
/// use idempotent_core::Rejection;
/// use idempotent_tower::Problem;
///
/// let rejection = Rejection::InFlight { retry_after: Duration::from_millis(1200), message: None };
/// let response = Problem::from(rejection).to_response();
/// assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (409, &"2".parse().unwrap()));
/// assert_eq!(response.headers()["content-type"], "application/problem+json");
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Problem(Box<Occurrence>);

#[derive(Clone, Debug)]
struct Occurrence {
    kind: ProblemKind,
    detail: Cow<'static, str>,
    retry_after: Option<Duration>,
    base: Cow<'static, str>,
    docs: Option<HeaderValue>,
    location: Option<HeaderValue>,
}

/// RFC 9457, section 3.
#[derive(Serialize)]
struct Body<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    retryable: bool,
}

impl Problem {
    /// What `type` begins with, unless told otherwise.
    pub const BASE: &'static str = "https://docs.rs/idempotent-rs/latest/idempotent/docs/http/index.html#";

    /// A problem of this kind.
    pub fn new(kind: ProblemKind) -> Self {
        Self(Box::new(Occurrence {
            kind,
            detail: Cow::Borrowed(kind.detail()),
            retry_after: None,
            base: Cow::Borrowed(Self::BASE),
            docs: None,
            location: None,
        }))
    }

    /// What is said about this occurrence. It goes to the client: no keys, no secrets.
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.0.detail = detail.into();
        self
    }

    /// When to come back; told in whole seconds, rounded up, at least one.
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// What `type` begins with; the code follows.
    ///
    /// # Default
    /// [`BASE`](Self::BASE)
    pub fn base(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.0.base = uri.into();
        self
    }

    pub(crate) fn docs(mut self, link: Option<HeaderValue>) -> Self {
        self.0.docs = link;
        self
    }

    pub(crate) fn location(mut self, location: Option<HeaderValue>) -> Self {
        self.0.location = location;
        self
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        self.0.kind
    }

    /// When to come back, if that is known.
    #[must_use]
    pub fn comes_back_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// What is said about this occurrence.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.detail
    }

    /// The answer.
    #[must_use]
    pub fn to_response(&self) -> Response<Bytes> {
        let Occurrence { kind, detail, retry_after, base, docs, location } = &*self.0;
        let (status, code, title, retryable) = kind.row();
        let body = Body { r#type: format!("{base}{code}"), title, status: status.as_u16(), detail, code, retryable };
        // Text and numbers only: it cannot fail.
        let mut response = Response::new(Bytes::from(serde_json::to_vec(&body).unwrap_or_default()));
        *response.status_mut() = status;
        // Of this moment: a layer further out must not keep it, whatever it keeps else.
        response.extensions_mut().insert(Idempotent::release());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(*after)));
        }
        if matches!(kind, ProblemKind::MissingKey | ProblemKind::InvalidKey | ProblemKind::KeyReused) {
            headers.insert(LINK, docs.clone().unwrap_or(DOCS));
        }
        if let Some(location) = location {
            headers.insert(LOCATION, location.clone());
        }
        response
    }
}

/// Its code and its detail: for logs.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind().code(), self.text())
    }
}

impl std::error::Error for Problem {}

impl From<InvalidKey> for Problem {
    fn from(invalid: InvalidKey) -> Self {
        Self::new(ProblemKind::InvalidKey).detail(invalid.to_string())
    }
}
/// Where clients read how to send keys, unless told otherwise: the page that [`Problem::BASE`] is on.
const DOCS: HeaderValue = HeaderValue::from_static(
    "<https://docs.rs/idempotent-rs/latest/idempotent/docs/http/index.html>; rel=\"describedby\"",
);

/// `Retry-After` knows no fractions, and zero would bring a client back at once.
fn whole_seconds(after: Duration) -> u64 {
    after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0)).max(1)
}
