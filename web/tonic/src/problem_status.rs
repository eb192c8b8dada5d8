//! The gRPC statuses of problems.
use std::collections::HashMap;

use bytes::Bytes;
use http::header::ALLOW;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use idempotent_tower::{Denied, Problem, ProblemKind};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The domain of the `google.rpc.ErrorInfo` in each status of the layer.
pub const DOMAIN: &str = "idempotent-rs";

/// The metadata entry with the delay before a retry, in milliseconds (gRFC A6). Clients with a retry policy obey it.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Returns the code of a problem.
///
/// | problems | code |
/// |---|---|
/// | `missing-key`, `invalid-key`, `missing-token`, `invalid-body` | INVALID_ARGUMENT |
/// | `no-principal` | UNAUTHENTICATED |
/// | `in-flight`, `not-due` | ABORTED |
/// | `duplicate-request`, `response-not-retained` | ALREADY_EXISTS |
/// | `key-reused`, `unknown-token`, `failed-before` | FAILED_PRECONDITION |
/// | `body-too-large` | RESOURCE_EXHAUSTED |
/// | `handler-panicked`, `misconfigured` | INTERNAL |
/// | `store-unavailable`, `draining`, `interrupted` | UNAVAILABLE |
///
/// A kind that a later version adds has UNKNOWN until this table contains it.
#[must_use]
pub fn problem_code(kind: ProblemKind) -> Code {
    use ProblemKind as Kind;
    match kind {
        Kind::MissingKey | Kind::InvalidKey | Kind::MissingToken | Kind::InvalidBody => Code::InvalidArgument,
        Kind::NoPrincipal => Code::Unauthenticated,
        Kind::InFlight | Kind::NotDue => Code::Aborted,
        Kind::DuplicateRequest | Kind::ResponseNotRetained => Code::AlreadyExists,
        Kind::KeyReused | Kind::UnknownToken | Kind::FailedBefore => Code::FailedPrecondition,
        Kind::BodyTooLarge => Code::ResourceExhausted,
        Kind::HandlerPanicked | Kind::Misconfigured => Code::Internal,
        Kind::StoreUnavailable | Kind::Draining | Kind::Interrupted => Code::Unavailable,
        _ => Code::Unknown,
    }
}

/// The text of a key that was used with another message.
const KEY_REUSED: &str = "this key was used for a call with another message; to repeat that call, send the bytes that were \
                          sent first; another encoding or compression makes another message unless the service compares \
                          fields (`GrpcLayer::compare`); only a new operation needs a new key";

/// Converts a problem into a status. `key` is the metadata entry of the key.
pub(crate) fn problem_status(problem: &Problem, key: &HeaderName) -> Status {
    let kind = problem.kind();
    let text = match kind {
        ProblemKind::MissingKey => {
            format!("this call needs the metadata entry `{key}`; send a new key for each new operation")
        }
        ProblemKind::KeyReused => KEY_REUSED.to_owned(),
        _ => problem.text().to_owned(),
    };
    let mut details = error_info(kind.code(), kind.is_retryable());
    if matches!(kind, ProblemKind::MissingKey | ProblemKind::InvalidKey) {
        details.add_bad_request_violation(key.as_str(), text.clone());
    }
    let mut metadata = MetadataMap::new();
    if let Some(after) = problem.comes_back_after() {
        details.set_retry_info(Some(after));
        // A delay beyond 2^64 ms has no meaning for a client.
        metadata.insert(PUSHBACK, MetadataValue::from(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)));
    }
    Status::with_error_details_and_metadata(problem_code(kind), text, details, metadata)
}

/// Returns the refusal of a stream.
pub(crate) fn stream_refused() -> Status {
    const TEXT: &str = "a call with an idempotency key has one request message and one response message, each followed by \
                        the end; send streaming calls without a key";
    Status::with_error_details(Code::Unimplemented, TEXT, error_info("streaming-call", false))
}

/// Returns the refusal of a request that is no gRPC call. The HTTP status is for clients that do not read gRPC statuses.
pub(crate) fn form_refused<B: Default>(status: StatusCode) -> Response<B> {
    const TEXT: &str = "a call of this method needs an idempotency key, the HTTP method POST and the content type \
                        `application/grpc`";
    let refused = Status::with_error_details(Code::InvalidArgument, TEXT, error_info("no-grpc-call", false));
    let mut response = refused.into_http();
    *response.status_mut() = status;
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    response
}

/// Returns the details of all statuses. The reason is the code of the problem in the form of `google.rpc.ErrorInfo`.
fn error_info(code: &str, retryable: bool) -> ErrorDetails {
    let reason = code.replace('-', "_").to_ascii_uppercase();
    let metadata = HashMap::from([("retryable".to_owned(), retryable.to_string())]);
    ErrorDetails::with_error_info(reason, DOMAIN, metadata)
}

/// Creates the answer to a call without an acceptable caller, for [`Principal::from_fn`](idempotent_tower::Principal::from_fn).
/// The status OK is replaced by PERMISSION_DENIED, because the client would take it for a success.
///
/// ```
/// use idempotent_tonic::denied;
/// use idempotent_tower::{Caller, Principal};
/// use tonic::Status;
///
/// let principal = Principal::from_fn(|head| match head.extensions.get::<String>() {
///     Some(user) => Ok(Caller::named(user)),
///     None => Err(denied(Status::unauthenticated("no user"))),
/// });
/// # drop(principal);
/// ```
#[must_use]
pub fn denied(status: Status) -> Denied {
    let status = match status.code() {
        Code::Ok => Status::permission_denied(status.message()),
        _ => status,
    };
    Denied::response(status.into_http())
}

/// Converts the answer to a denied call, if it has no gRPC status, by the mapping of the gRPC specification for HTTP
/// statuses.
pub(crate) fn denied_response(response: Response<Bytes>) -> Response<Bytes> {
    if response.headers().contains_key(Status::GRPC_STATUS) {
        return response;
    }
    let code = match response.status() {
        StatusCode::BAD_REQUEST => Code::Internal,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::Unimplemented,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
        _ => Code::Unknown,
    };
    Status::new(code, "the caller is not accepted").into_http()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_problem_has_its_details() {
        let key = HeaderName::from_static("idempotency-key");
        for kind in ProblemKind::ALL {
            let problem = Problem::new(kind).retry_after(std::time::Duration::from_millis(1500));
            let status = problem_status(&problem, &key);
            let details = status.get_error_details();
            let info = details.error_info().unwrap().clone();
            let reason = kind.code().replace('-', "_").to_ascii_uppercase();
            assert_eq!((info.reason, &*info.domain), (reason, DOMAIN));
            assert_eq!(info.metadata["retryable"], kind.is_retryable().to_string());
            let delay = details.retry_info().and_then(|info| info.retry_delay);
            assert_eq!(delay, Some(std::time::Duration::from_millis(1500)));
            assert_eq!(status.metadata().get(PUSHBACK).and_then(|value| value.to_str().ok()), Some("1500"));
            let is_about_key = matches!(kind, ProblemKind::MissingKey | ProblemKind::InvalidKey);
            let violations = details.bad_request().map_or(0, |bad| bad.field_violations.len());
            assert_eq!(violations, usize::from(is_about_key), "{kind:?}");
        }
    }

    #[test]
    fn a_denied_call_has_a_grpc_status() {
        let status_of = |response: &Response<Bytes>| response.headers()[Status::GRPC_STATUS].clone();
        for (status, code) in [(401, "16"), (403, "7"), (404, "12"), (400, "13"), (503, "14"), (429, "14"), (418, "2")]
        {
            let response = Response::builder().status(status).body(Bytes::new()).unwrap();
            assert_eq!(status_of(&denied_response(response)), code, "{status}");
        }
        let own = denied_response(Status::not_found("no such shop").into_http());
        assert_eq!(status_of(&own), "5");
    }
}
