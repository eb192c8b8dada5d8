//! Rules for the responses that complete a request.
use http::header::{self, HeaderMap};
use http::{Response, StatusCode};

use crate::panic_guard::caught;

/// Which statuses end a request for good. Any other frees the key: a retry runs the handler again.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum StorePolicy {
    /// 2xx and 3xx. The default.
    #[default]
    Success,
    /// Those, and 402, 404, 409, 410 and 422: answers that a retry would not change.
    Final,
    /// All, also 500: a passing failure is then replayed until its retention ends.
    All,
    /// 2xx and 3xx, and of gRPC's answers only those whose `grpc-status` is 0, in trailers or headers: a call that fails is
    /// 200 all the same. Their bodies of unknown length are read as with [`ResponseRules::buffer_unknown`], since trailers
    /// stand behind them; of one that is too large to be read the headers alone count.
    Grpc,
    /// What this function says, by status and headers. Where it panics the request counts as done, and its answer is not
    /// kept.
    By(fn(StatusCode, &HeaderMap) -> bool),
}

impl StorePolicy {
    /// `None` where the user's function panics.
    pub(crate) fn stores(self, status: StatusCode, headers: &HeaderMap) -> Option<bool> {
        let success = status.is_success() || status.is_redirection();
        match self {
            Self::Success => Some(success),
            Self::Final => Some(success || matches!(status.as_u16(), 402 | 404 | 409 | 410 | 422)),
            Self::All => Some(true),
            Self::Grpc => Some(success && grpc_status(headers).is_none_or(|code| code == "0")),
            Self::By(stores) => caught("StorePolicy::By", || stores(status, headers)),
        }
    }
}

pub(crate) fn grpc_status(headers: &HeaderMap) -> Option<&header::HeaderValue> {
    headers.get("grpc-status")
}

/// Not gRPC-Web, whose status is a part of the body.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    kind.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// A handler's own decision, over the [`StorePolicy`]: put it among the extensions of the response. With the feature
/// `axum` it is part of an answer: `(StatusCode::PAYMENT_REQUIRED, Idempotent::store(), "declined")`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Idempotent {
    store: bool,
}

impl Idempotent {
    /// The effect is done: keep this answer, whatever its status.
    #[must_use]
    pub fn store() -> Self {
        Self { store: true }
    }

    /// Nothing is done: free the key, whatever the status.
    #[must_use]
    pub fn release() -> Self {
        Self { store: false }
    }

    /// What the handler of this answer decided, if it did.
    pub(crate) fn stores<B>(response: &Response<B>) -> Option<bool> {
        response.extensions().get::<Self>().map(|decided| decided.store)
    }
}
