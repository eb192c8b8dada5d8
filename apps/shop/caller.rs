//! The caller of a request. A real service takes it from its authentication; this one trusts a header.
use std::future::ready;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use idempotent::http::{Caller, Denied, Principal};

/// Returns the principal of layers.
pub(crate) fn principal() -> Principal {
    Principal::from_fn(|parts| of(&parts.headers).map_err(Denied::status))
}

/// An extractor of the caller, for handlers.
pub(crate) struct User(pub(crate) Caller);

impl<S: Sync> FromRequestParts<S> for User {
    type Rejection = StatusCode;

    fn from_request_parts(parts: &mut Parts, _: &S) -> impl Future<Output = Result<Self, StatusCode>> {
        ready(of(&parts.headers).map(User))
    }
}

/// Reads the caller from `X-User`, or from the subject of `Authorization: Bearer SUBJECT`. Without either, the caller
/// is anonymous. A malformed header is rejected, because its sender must not become the anonymous caller.
fn of(headers: &HeaderMap) -> Result<Caller, StatusCode> {
    let one = |name| {
        let mut lines = headers.get_all(name).iter();
        match (lines.next(), lines.next()) {
            (None, _) => Ok(None),
            (Some(line), None) => std::str::from_utf8(line.as_bytes()).map(Some).map_err(|_| StatusCode::UNAUTHORIZED),
            (Some(_), Some(_)) => Err(StatusCode::UNAUTHORIZED),
        }
    };
    let named = |name: &str| match name.trim() {
        "" => Err(StatusCode::UNAUTHORIZED),
        name => Ok(Caller::named(name)),
    };
    if let Some(user) = one("x-user")? {
        return named(user);
    }
    match one(AUTHORIZATION.as_str())?.map(|value| value.split_once(' ').unwrap_or((value, ""))) {
        Some((scheme, subject)) if scheme.eq_ignore_ascii_case("bearer") => named(subject),
        Some(_) => Err(StatusCode::UNAUTHORIZED),
        None => Ok(Caller::anonymous()),
    }
}
