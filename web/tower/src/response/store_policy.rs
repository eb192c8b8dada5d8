//! Rules that decide which responses complete a request.
use http::header::{self, HeaderMap};
use http::{Response, StatusCode};

use crate::panic_guard::catch_panic;

/// The responses that complete a request and are stored. Any other response frees the key, and a retry runs the handler
/// again.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum StorePolicy {
    /// 2xx and 3xx. This is the default.
    #[default]
    Success,
    /// 2xx and 3xx, and also 402, 404, 409, 410 and 422: responses that a retry would not change.
    Final,
    /// All, including 500. A transient failure is then replayed until its retention ends.
    All,
    /// 2xx and 3xx. Of gRPC responses, only the ones whose `grpc-status` is 0, in trailers or headers, because a failed
    /// call has status 200 as well.
    ///
    /// gRPC bodies of unknown length are read as with
    /// [`ResponseRules::buffer_unknown`](crate::ResponseRules::buffer_unknown), because the trailers follow them. If
    /// such a body exceeds the limit, only the headers count.
    Grpc,
    /// The responses for which this function of status and headers returns true. If it panics, the request counts as
    /// complete and its response is not stored.
    By(fn(StatusCode, &HeaderMap) -> bool),
}

impl StorePolicy {
    /// Returns whether the response completes its request, or `None` if the user's function panics.
    pub(crate) fn stores(self, status: StatusCode, headers: &HeaderMap) -> Option<bool> {
        let success = status.is_success() || status.is_redirection();
        match self {
            Self::Success => Some(success),
            Self::Final => Some(success || matches!(status.as_u16(), 402 | 404 | 409 | 410 | 422)),
            Self::All => Some(true),
            Self::Grpc => Some(success && grpc_status(headers).is_none_or(|code| code == "0")),
            Self::By(stores) => catch_panic("StorePolicy::By", || stores(status, headers)),
        }
    }
}

/// Returns the gRPC status of a response.
pub(crate) fn grpc_status(headers: &HeaderMap) -> Option<&header::HeaderValue> {
    headers.get("grpc-status")
}

/// Returns whether a message is gRPC. gRPC-Web is excluded, because its status is part of the body.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    has_media_type(headers, |rest| matches!(rest.trim_ascii_start().first(), None | Some(b'+' | b';')))
}

/// Returns whether a message is gRPC-Web.
pub fn is_grpc_web(headers: &HeaderMap) -> bool {
    has_media_type(headers, |rest| has_prefix(rest, b"-web"))
}

/// Returns whether a content type begins with `application/grpc`, in any case, and continues as `accepts` requires. Any line
/// of several counts, because a receiver may read any of them.
fn has_media_type(headers: &HeaderMap, accepts: impl Fn(&[u8]) -> bool) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter().map(|kind| kind.as_bytes().trim_ascii());
    kinds.any(|kind| has_prefix(kind, GRPC) && accepts(&kind[GRPC.len()..]))
}

fn has_prefix(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// The decision of a handler about its response, which overrides the [`StorePolicy`]. Insert it into the extensions of
/// the response. With the feature `axum` it can be part of the return value: `(StatusCode::PAYMENT_REQUIRED,
/// Idempotent::store(), "declined")`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Idempotent {
    store: bool,
}

impl Idempotent {
    /// Stores this response, whatever its status. Use it if the effect has happened.
    #[must_use]
    pub fn store() -> Self {
        Self { store: true }
    }

    /// Frees the key, whatever the status. Use it if nothing has happened.
    #[must_use]
    pub fn release() -> Self {
        Self { store: false }
    }

    /// Returns the decision of the handler, if it made one.
    pub(crate) fn stores<B>(response: &Response<B>) -> Option<bool> {
        response.extensions().get::<Self>().map(|decided| decided.store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        [(header::HeaderName::from_static(name), header::HeaderValue::from_static(value))].into_iter().collect()
    }

    #[test]
    fn a_grpc_response_completes_if_both_of_its_statuses_are_successful() {
        let stores = |status, headers: &HeaderMap| StorePolicy::Grpc.stores(status, headers);
        assert_eq!(stores(StatusCode::OK, &HeaderMap::new()), Some(true));
        assert_eq!(stores(StatusCode::OK, &headers("grpc-status", "0")), Some(true));
        assert_eq!(stores(StatusCode::OK, &headers("grpc-status", "14")), Some(false));
        assert_eq!(stores(StatusCode::BAD_GATEWAY, &headers("grpc-status", "0")), Some(false));
        assert_eq!(stores(StatusCode::BAD_GATEWAY, &HeaderMap::new()), Some(false));
    }

    #[test]
    fn grpc_is_recognised_by_its_content_type_in_any_case() {
        for (kind, grpc, web) in [
            ("application/grpc", true, false),
            ("Application/GRPC+proto", true, false),
            ("application/grpc;x=1", true, false),
            (" application/grpc ; x=1", true, false),
            ("application/grpc-web", false, true),
            ("APPLICATION/GRPC-WEB-TEXT", false, true),
            ("application/grpc-we", false, false),
            ("application/grpcx", false, false),
            ("application/grp", false, false),
            ("application/json", false, false),
        ] {
            let headers = headers("content-type", kind);
            assert_eq!((is_grpc(&headers), is_grpc_web(&headers)), (grpc, web), "{kind}");
        }
        assert!(!is_grpc(&HeaderMap::new()) && !is_grpc_web(&HeaderMap::new()));
    }
}
