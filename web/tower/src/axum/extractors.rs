//! Extractors for the idempotency key and the current attempt, and [`Idempotent`] as a response part.
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponseParts, ResponseParts};
use http::request::Parts;

use crate::{IdempotencyKey, Idempotent, KeyRules, Problem, ProblemKind, RequestAttempt};

impl IntoResponseParts for Idempotent {
    type Error = std::convert::Infallible;

    fn into_response_parts(self, mut response: ResponseParts) -> Result<ResponseParts, Self::Error> {
        response.extensions_mut().insert(self);
        Ok(response)
    }
}

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        read(parts)?.ok_or_else(|| Problem::new(ProblemKind::MissingKey))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Problem> {
        read(parts)
    }
}

/// Returns the key of a request, or `None` without the header.
fn read(parts: &Parts) -> Result<Option<IdempotencyKey>, Problem> {
    // A layer has already read the key by its own rules.
    if let Some(key) = parts.extensions.get::<IdempotencyKey>() {
        return Ok(Some(key.clone()));
    }
    Ok(KeyRules::default().read(&parts.headers)?)
}

/// Extracts the current attempt inside the layer or an annotated handler.
impl<S: Sync> OptionalFromRequestParts<S> for RequestAttempt {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().copied().or_else(Self::current))
    }
}
