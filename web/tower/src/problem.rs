//! Problem responses by RFC 9457: `application/problem+json`.
mod kind;
mod rejection;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_LANGUAGE, CONTENT_TYPE, HeaderValue, LINK, LOCATION, RETRY_AFTER};
use idempotent_core::LocalizedText;
use serde::Serialize;

pub use self::kind::ProblemKind;
use crate::{Idempotent, InvalidKey};

/// A response that reports an error and its remedy. Never contains a key, a token or a body.
///
/// `Problem` is an error, so your error type can take it by `#[from]`. With the feature `axum` it is also a response.
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
pub struct Problem(Box<ProblemDetails>);

#[derive(Clone, Debug)]
struct ProblemDetails {
    kind: ProblemKind,
    detail: Cow<'static, str>,
    retry_after: Option<Duration>,
    base: Cow<'static, str>,
    docs: Option<HeaderValue>,
    location: Option<HeaderValue>,
    language: Option<HeaderValue>,
}

/// The JSON members of RFC 9457, section 3, and two extensions.
#[derive(Serialize)]
struct ProblemBody<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    retryable: bool,
}

impl Problem {
    /// The default prefix of `type`.
    pub const BASE: &'static str = "https://docs.rs/idempotent-rs/latest/idempotent/docs/http/index.html#";

    /// Creates a problem of this kind.
    pub fn new(kind: ProblemKind) -> Self {
        Self(Box::new(ProblemDetails {
            kind,
            detail: Cow::Borrowed(kind.detail()),
            retry_after: None,
            base: Cow::Borrowed(Self::BASE),
            docs: None,
            location: None,
            language: None,
        }))
    }

    /// Sets the `detail` text. It goes to the client: do not include keys or secrets.
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.0.detail = detail.into();
        self
    }

    /// Sets `Retry-After`. The header contains whole seconds, rounded up, and at least one.
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Sets the prefix of `type`; the code follows it.
    ///
    /// # Default
    /// [`BASE`](Self::BASE)
    pub fn base(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.0.base = uri.into();
        self
    }

    /// Sets the URI of the documentation for clients. A problem about the key contains the URI as a `Link` header with
    /// `rel="describedby"`; other problems have no such header.
    ///
    /// # Default
    /// The page of [`BASE`](Self::BASE), which also replaces an invalid URI
    pub fn docs_link(self, uri: &str) -> Self {
        self.docs(docs_header(uri))
    }

    /// Sets the `Link` header of problems about the key.
    pub(crate) fn docs(mut self, link: Option<HeaderValue>) -> Self {
        self.0.docs = link;
        self
    }

    /// Sets the `Location` header.
    pub(crate) fn location(mut self, location: Option<HeaderValue>) -> Self {
        self.0.location = location;
        self
    }

    /// Sets the `detail` text, and `Content-Language` if the language is known.
    pub(crate) fn localized(mut self, text: &LocalizedText) -> Self {
        // A tag that no header can contain is not sent.
        self.0.language = text.language().and_then(|tag| HeaderValue::from_str(tag).ok());
        self.detail(text.text().to_owned())
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        self.0.kind
    }

    /// Returns the time after which the client should retry, if it is known.
    #[must_use]
    pub fn comes_back_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns the `detail` text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.detail
    }

    /// Creates the response.
    #[must_use]
    pub fn to_response(&self) -> Response<Bytes> {
        let ProblemDetails { kind, detail, retry_after, base, docs, location, language } = &*self.0;
        let (status, code, title, retryable) = kind.row();
        let body =
            ProblemBody { r#type: format!("{base}{code}"), title, status: status.as_u16(), detail, code, retryable };
        // The serialization cannot fail: the body consists of strings and numbers.
        let mut response = Response::new(Bytes::from(serde_json::to_vec(&body).unwrap_or_default()));
        *response.status_mut() = status;
        // The problem describes the current moment, so an outer layer must not store it.
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
        if let Some(language) = language {
            headers.insert(CONTENT_LANGUAGE, language.clone());
        }
        if let Some(location) = location {
            headers.insert(LOCATION, location.clone());
        }
        response
    }
}

/// Shows code and detail, for logs.
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

/// Returns the `Link` header for a URI, or `None` if the URI is invalid.
pub(crate) fn docs_header(uri: &str) -> Option<HeaderValue> {
    let is_uri = uri.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"".contains(&byte));
    is_uri.then(|| HeaderValue::try_from(format!("<{uri}>; rel=\"describedby\"")).ok()).flatten()
}

/// The default target of the `Link` header: the page of [`Problem::BASE`].
const DOCS: HeaderValue = HeaderValue::from_static(
    "<https://docs.rs/idempotent-rs/latest/idempotent/docs/http/index.html>; rel=\"describedby\"",
);

/// Returns the value of `Retry-After`, in whole seconds. Zero would cause an immediate retry.
fn whole_seconds(after: Duration) -> u64 {
    after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_header_contains_uris_only() {
        let header = docs_header("https://shop.example/docs");
        assert_eq!(header, Some(HeaderValue::from_static("<https://shop.example/docs>; rel=\"describedby\"")));
        for refused in ["https://shop.example/a b", "https://shop.example/<a>", "https://shop.example/\"", "é"] {
            assert_eq!(docs_header(refused), None, "{refused}");
        }
    }

    #[test]
    fn a_problem_has_the_time_of_its_retry() {
        let after = Duration::from_millis(1_500);
        let problem = Problem::new(ProblemKind::InFlight).retry_after(after);
        assert_eq!((problem.comes_back_after(), whole_seconds(after)), (Some(after), 2));
        assert_eq!(Problem::new(ProblemKind::MissingKey).comes_back_after(), None);
    }
}
