//! The kinds of problems.
use http::StatusCode;

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
            Self::KeyReused => "This key was used for another request. A new request needs a new key.",
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
