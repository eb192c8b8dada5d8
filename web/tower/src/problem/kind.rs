//! The kinds of problems, with their status, code and texts.
use http::StatusCode;

/// The kind of a problem. It determines the status, and its code is part of `type`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// 400: the route requires a key, and the request has none.
    MissingKey,
    /// 400: the key is invalid.
    InvalidKey,
    /// 400: the body could not be read, or has no fingerprint.
    InvalidBody,
    /// 400: the route requires a token, and the request has none.
    MissingToken,
    /// 401: the caller's name is empty.
    NoPrincipal,
    /// 409: the same request is still running; retry later.
    InFlight,
    /// 409: the request failed recently, and its retry is not due yet.
    NotDue,
    /// 409: an equal request completed recently, or the token was used.
    DuplicateRequest,
    /// 409: the token was not issued to this caller, or has expired.
    UnknownToken,
    /// 409: the request has completed, but its response was not stored.
    ResponseNotRetained,
    /// 409: the request has failed permanently.
    FailedBefore,
    /// 413: the body exceeds the limit.
    BodyTooLarge,
    /// 422: the key was used for a different request.
    KeyReused,
    /// 500: the handler panicked.
    HandlerPanicked,
    /// 500: the service is misconfigured; its log names the cause.
    Misconfigured,
    /// 503: the record store is unavailable; nothing was done.
    StoreUnavailable,
    /// 503: the service is shutting down. A run that had not begun was not done; a run that was cut off has an unknown
    /// effect.
    Draining,
    /// 503: the run was interrupted, and its effect is unknown.
    Interrupted,
}

impl ProblemKind {
    /// All kinds, for example for the description of an API.
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

    /// Returns the code, for example `in-flight`.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.row().1
    }

    /// Returns the status of the response.
    #[must_use]
    pub fn status(self) -> StatusCode {
        self.row().0
    }

    /// Returns whether the same request with the same key may succeed later.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        self.row().3
    }

    pub(crate) fn row(self) -> (StatusCode, &'static str, &'static str, bool) {
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

    pub(crate) fn detail(self) -> &'static str {
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
            Self::KeyReused => {
                "This key was used for a request with another body, query or path. To repeat that request, send it as it \
                 was sent first. Another compression makes another body, and so does another order of JSON fields unless \
                 the service compares values (`canonical_json`). Only a new operation needs a new key."
            }
            Self::HandlerPanicked => "The request failed. It may be tried again with the same key.",
            Self::Misconfigured => "The service is not set up for this request; its log says why.",
            Self::StoreUnavailable => "The request was not handled. Try again later with the same key.",
            Self::Draining => "This instance is shutting down. Try again with the same key.",
            Self::Interrupted => "The request was interrupted. Try again later with the same key.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the position of a kind. The match does not compile if a kind is missing.
    fn index(kind: ProblemKind) -> usize {
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
    fn all_lists_every_kind_once() {
        let indices: Vec<_> = ProblemKind::ALL.map(index).into();
        assert_eq!(indices, (0..=17).collect::<Vec<_>>());
    }
}
