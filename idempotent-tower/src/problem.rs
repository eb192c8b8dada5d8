//! What goes wrong, as RFC 9457 tells it: `application/problem+json`.
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LINK, LOCATION, RETRY_AFTER};
use http::{Response, StatusCode};
use idempotent_core::{KeyError, Rejection};
use serde::Serialize;

use crate::{Idempotent, InvalidKey};

/// What went wrong, for programs: the `code` of the answer, and the end of its `type`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// 400: the route asks for a key, and there is none.
    MissingKey,
    /// 400: there is a key that cannot be used.
    InvalidKey,
    /// 400: the body could not be read, or has no fingerprint.
    InvalidBody,
    /// 400: the route asks for a token, and there is none.
    MissingToken,
    /// 401: the principal's name is empty.
    NoPrincipal,
    /// 409: the same request is running; come back later.
    InFlight,
    /// 409: the key failed a moment ago and is not due yet.
    NotDue,
    /// 409: a request that says the same was done a moment ago, or the token was used.
    DuplicateRequest,
    /// 409: the token was not issued to this caller, or its time is over.
    UnknownToken,
    /// 409: done before, and its answer was not kept.
    ResponseNotRetained,
    /// 409: it failed for good before.
    FailedBefore,
    /// 413: the body is larger than is taken.
    BodyTooLarge,
    /// 422: the key was used for another request.
    KeyReused,
    /// 500: the handler panicked.
    HandlerPanicked,
    /// 500: the service is set up wrong; its log says how.
    Misconfigured,
    /// 503: the record store cannot be reached; nothing was done.
    StoreUnavailable,
    /// 503: the service is shutting down. What had not begun was not done; a run that was cut off has an unknown effect.
    Draining,
    /// 503: the run was interrupted, and its effect is unknown.
    Interrupted,
}

impl ProblemKind {
    /// All of them, for the description of an API.
    pub const ALL: [Self; 18] = [
        Self::MissingKey,
        Self::InvalidKey,
        Self::InvalidBody,
        Self::MissingToken,
        Self::NoPrincipal,
        Self::InFlight,
        Self::NotDue,
        Self::DuplicateRequest,
        Self::UnknownToken,
        Self::ResponseNotRetained,
        Self::FailedBefore,
        Self::BodyTooLarge,
        Self::KeyReused,
        Self::HandlerPanicked,
        Self::Misconfigured,
        Self::StoreUnavailable,
        Self::Draining,
        Self::Interrupted,
    ];

    /// `in-flight`, for example.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.row().1
    }

    /// The status it is answered with.
    #[must_use]
    pub fn status(self) -> StatusCode {
        self.row().0
    }

    /// Whether the same request with the same key may succeed later.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        self.row().3
    }

    fn row(self) -> (StatusCode, &'static str, &'static str, bool) {
        use StatusCode as S;
        match self {
            Self::MissingKey => (S::BAD_REQUEST, "missing-key", "Idempotency key missing", false),
            Self::InvalidKey => (S::BAD_REQUEST, "invalid-key", "Idempotency key invalid", false),
            Self::InvalidBody => (S::BAD_REQUEST, "invalid-body", "Body not readable", false),
            Self::MissingToken => (S::BAD_REQUEST, "missing-token", "Token missing", false),
            Self::NoPrincipal => (S::UNAUTHORIZED, "no-principal", "Caller unknown", false),
            Self::InFlight => (S::CONFLICT, "in-flight", "Request in progress", true),
            Self::NotDue => (S::CONFLICT, "not-due", "Retry not due yet", true),
            Self::DuplicateRequest => (S::CONFLICT, "duplicate-request", "Duplicate request", false),
            Self::UnknownToken => (S::CONFLICT, "unknown-token", "Token not valid", false),
            Self::ResponseNotRetained => (S::CONFLICT, "response-not-retained", "Done, answer not kept", false),
            Self::FailedBefore => (S::CONFLICT, "failed-before", "Failed for good before", false),
            Self::BodyTooLarge => (S::PAYLOAD_TOO_LARGE, "body-too-large", "Body too large", false),
            Self::KeyReused => (S::UNPROCESSABLE_ENTITY, "key-reused", "Idempotency key used before", false),
            Self::HandlerPanicked => (S::INTERNAL_SERVER_ERROR, "handler-panicked", "Internal error", true),
            Self::Misconfigured => (S::INTERNAL_SERVER_ERROR, "misconfigured", "Internal error", false),
            Self::StoreUnavailable => (S::SERVICE_UNAVAILABLE, "store-unavailable", "Temporarily unavailable", true),
            Self::Draining => (S::SERVICE_UNAVAILABLE, "draining", "Shutting down", true),
            Self::Interrupted => (S::SERVICE_UNAVAILABLE, "interrupted", "Interrupted", true),
        }
    }

    fn detail(self) -> &'static str {
        match self {
            Self::MissingKey => "This request needs an Idempotency-Key header: a new value for each new request.",
            Self::InvalidKey => "The key cannot be used.",
            Self::InvalidBody => "The body could not be read to its end.",
            Self::MissingToken => "This request needs a token that was issued before.",
            Self::NoPrincipal => "The caller has no name.",
            Self::InFlight => "The same request is being handled. Try again later with the same key.",
            Self::NotDue => "The same request failed a moment ago. Try again later with the same key.",
            Self::DuplicateRequest => "This request was done before.",
            Self::UnknownToken => "The token was not issued to this caller, or its time is over. Ask for a new one.",
            Self::ResponseNotRetained => "This request was done before; its answer was not kept.",
            Self::FailedBefore => {
                "This request failed before in a way that no retry mends. A new attempt needs a new key."
            }
            Self::BodyTooLarge => "The body is larger than this route takes. Nothing was done.",
            Self::KeyReused => "This key was used for another request. A new request needs a new key.",
            Self::HandlerPanicked => "The request failed. It may be tried again with the same key.",
            Self::Misconfigured => "The service is not set up for this request; its log says why.",
            Self::StoreUnavailable => "The request was not handled. Try again later with the same key.",
            Self::Draining => "This instance is shutting down. Try again with the same key.",
            Self::Interrupted => "The request was interrupted. Try again later with the same key.",
        }
    }
}

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

/// When to come back where nothing is known.
const SOON: Duration = Duration::from_secs(1);

impl From<Rejection> for Problem {
    /// What is wrong with the service itself is logged, and not told to its clients.
    fn from(rejection: Rejection) -> Self {
        use ProblemKind as Kind;
        let told = |problem: Self, message: Option<std::sync::Arc<str>>| match message {
            Some(message) => problem.detail(message.as_ref().to_owned()),
            None => problem,
        };
        match rejection {
            Rejection::InFlight { retry_after, message } => {
                told(Self::new(Kind::InFlight).retry_after(retry_after), message)
            }
            Rejection::Delayed { retry_after } => Self::new(Kind::NotDue).retry_after(retry_after),
            // Nothing is wrong with the request: another one has to be done before it.
            Rejection::Waiting { retry_after } | Rejection::Held { retry_after, .. } => Self::new(Kind::NotDue)
                .detail("Another request has to be done before this one. Try again later with the same key.")
                .retry_after(retry_after),
            Rejection::Draining { retry_after } => Self::new(Kind::Draining).retry_after(retry_after),
            Rejection::ConsumedWithoutResult { .. } => Self::new(Kind::ResponseNotRetained),
            Rejection::Duplicate { retry_after, message } => {
                let problem = told(Self::new(Kind::DuplicateRequest), message);
                match retry_after {
                    Some(after) => problem.retry_after(after),
                    None => problem,
                }
            }
            Rejection::UnknownToken => Self::new(Kind::UnknownToken),
            Rejection::Failed { .. } | Rejection::Dead { .. } => Self::new(Kind::FailedBefore),
            Rejection::Mismatch => Self::new(Kind::KeyReused),
            Rejection::Key(KeyError::Fingerprint { .. }) => Self::new(Kind::InvalidBody),
            Rejection::Key(KeyError::Empty { what, .. }) if what.starts_with("tenant") => Self::new(Kind::NoPrincipal),
            Rejection::Key(KeyError::Empty { missing: true, .. }) => Self::new(Kind::MissingKey),
            Rejection::Key(error @ (KeyError::Empty { .. } | KeyError::TooLong { .. })) => {
                let detail = match error {
                    KeyError::TooLong { bytes, limit, .. } => format!("The key has {bytes} bytes, {limit} are taken."),
                    _ => "The key is empty: each new request needs one of its own.".to_owned(),
                };
                Self::new(Kind::InvalidKey).detail(detail)
            }
            Rejection::LeaseLost | Rejection::Unrecorded { .. } => Self::new(Kind::Interrupted).retry_after(SOON),
            Rejection::Store(error) if error.is_worth_a_retry() => Self::new(Kind::StoreUnavailable).retry_after(SOON),
            other => {
                tracing::error!(target: "idempotent", error = %other, "a request cannot be handled");
                Self::new(Kind::Misconfigured)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does not compile where a kind is missing from it.
    fn place(kind: ProblemKind) -> usize {
        use ProblemKind as Kind;
        match kind {
            Kind::MissingKey => 0,
            Kind::InvalidKey => 1,
            Kind::InvalidBody => 2,
            Kind::MissingToken => 3,
            Kind::NoPrincipal => 4,
            Kind::InFlight => 5,
            Kind::NotDue => 6,
            Kind::DuplicateRequest => 7,
            Kind::UnknownToken => 8,
            Kind::ResponseNotRetained => 9,
            Kind::FailedBefore => 10,
            Kind::BodyTooLarge => 11,
            Kind::KeyReused => 12,
            Kind::HandlerPanicked => 13,
            Kind::Misconfigured => 14,
            Kind::StoreUnavailable => 15,
            Kind::Draining => 16,
            Kind::Interrupted => 17,
        }
    }

    #[test]
    fn all_kinds_are_all_there_are() {
        let places: Vec<_> = ProblemKind::ALL.map(place).into();
        assert_eq!(places, (0..=17).collect::<Vec<_>>());
    }
}
