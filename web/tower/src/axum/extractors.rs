//! Extractors for the idempotency key, the caller and the current attempt, and [`Idempotent`] as a response part.
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use http::request::Parts;

use crate::request::principal::{ANONYMOUS_CREDENTIALS, UnidentifiedCaller};
use crate::{Caller, IdempotencyKey, Idempotent, KeyRules, Principal, Problem, ProblemKind, RequestAttempt};

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

/// Extracts the caller as the [`Principal`] in the request's extensions determines it. Add the principal with
/// `.layer(Extension(principal))`, inside of authentication.
///
/// The same principal also serves [`IdempotencyLayer`](crate::IdempotencyLayer). An annotated handler takes the caller with
/// `tenant = caller`.
///
/// # Errors
/// The response of [`Denied`](crate::Denied), or 500 without a principal or with an anonymous caller that has credentials. The
/// log names the cause.
impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let Some(principal) = parts.extensions.get::<Principal>() else {
            return Err(misconfigured(
                "`Caller` needs a `Principal`; add `.layer(Extension(principal))` to the router",
            ));
        };
        principal.identify(parts).map_err(|why| match why {
            UnidentifiedCaller::Denied(denied) => denied.into_response().map(axum::body::Body::from),
            UnidentifiedCaller::AnonymousCredentials => misconfigured(ANONYMOUS_CREDENTIALS),
        })
    }
}

fn misconfigured(why: &str) -> Response {
    tracing::error!(target: "idempotent", error = why, "a request cannot be handled");
    Problem::new(ProblemKind::Misconfigured).into_response()
}

/// Extracts the current attempt inside the layer or an annotated handler.
impl<S: Sync> OptionalFromRequestParts<S> for RequestAttempt {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().copied().or_else(Self::current))
    }
}
