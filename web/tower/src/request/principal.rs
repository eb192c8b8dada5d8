//! The caller of a request. Equal keys of two callers are two keys.
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use idempotent_core::__private::CallerName;
use idempotent_core::{KeyPart, Parts as KeyParts};

type CallerFn = dyn Fn(&Parts) -> Result<Caller, Denied> + Send + Sync;

/// Determines the caller of a request. There is no default: with one principal for all callers, a caller who guesses or
/// reuses a key receives the response of another.
///
/// Name the *subject*, not the credential. If a token is refreshed between two attempts, the retry must still belong to
/// the same caller.
///
/// ```
/// use http::StatusCode;
/// use idempotent_tower::{Caller, Denied, Principal};
///
/// // Inserted by the authentication layer outside this one.
/// #[derive(Clone)]
/// struct UserId(u64);
///
/// let principal = Principal::from_fn(|parts| match parts.extensions.get::<UserId>() {
///     Some(user) => Ok(Caller::named(user.0.to_string())),
///     None => Err(Denied::status(StatusCode::UNAUTHORIZED)),
/// });
/// ```
#[derive(Clone)]
#[must_use]
pub struct Principal {
    named: Option<Arc<CallerFn>>,
    anonymous_credentials: bool,
}

impl Principal {
    /// Determines the caller with a function of the request's head.
    ///
    /// The layer responds with 500 if a request has an `Authorization` header and the function returns
    /// [anonymous](Caller::anonymous). Such a request usually means that authentication runs inside the layer. All
    /// callers would then share one identity and read each other's responses. The log names this cause. Put
    /// authentication outside the layer. For optional authentication, see
    /// [`allow_anonymous_credentials`](Self::allow_anonymous_credentials). For a service that ignores the header, use
    /// [`none`](Self::none).
    pub fn from_fn(named: impl Fn(&Parts) -> Result<Caller, Denied> + Send + Sync + 'static) -> Self {
        Self { named: Some(Arc::new(named)), anonymous_credentials: false }
    }

    /// Treats all callers as one principal. Use this only if the service has a single client, if keys are unguessable
    /// secrets, or if every caller may read the responses of all others.
    pub fn none() -> Self {
        Self { named: None, anonymous_credentials: true }
    }

    /// Accepts requests of anonymous callers with an `Authorization` header. Set this only if authentication outside
    /// the layer examines each header and lets requests with an expired or unknown credential pass as anonymous.
    ///
    /// # Default
    /// Rejected with 500
    pub fn allow_anonymous_credentials(mut self) -> Self {
        self.anonymous_credentials = true;
        self
    }

    /// Converts the response to a denied request.
    #[doc(hidden)]
    pub fn map_denied(self, response: impl Fn(Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static) -> Self {
        let Some(named) = self.named else { return self };
        let named =
            move |parts: &Parts| named(parts).map_err(|denied| Denied::response(response(*denied.into_response())));
        Self { named: Some(Arc::new(named)), ..self }
    }

    /// Returns the caller of a request.
    ///
    /// # Errors
    /// The function denies the request, or the request has credentials but an anonymous caller.
    pub(crate) fn identify(&self, parts: &Parts) -> Result<Caller, UnidentifiedCaller> {
        let caller = match &self.named {
            Some(named) => named(parts).map_err(UnidentifiedCaller::Denied)?,
            None => Caller::anonymous(),
        };
        let has_credentials = || parts.headers.contains_key(http::header::AUTHORIZATION);
        if !self.anonymous_credentials && caller.0.is_none() && has_credentials() {
            return Err(UnidentifiedCaller::AnonymousCredentials);
        }
        Ok(caller)
    }
}

/// The reason why a request has no caller.
#[derive(Debug)]
pub(crate) enum UnidentifiedCaller {
    Denied(Denied),
    AnonymousCredentials,
}

/// The log text for [`UnidentifiedCaller::AnonymousCredentials`].
pub(crate) const ANONYMOUS_CREDENTIALS: &str = "a request with an `Authorization` header has an anonymous principal; put the authentication outside the layer, or use \
     `Principal::none()` if all callers may read each other's responses";

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.named.is_some() { "Principal::from_fn(…)" } else { "Principal::none()" })
    }
}

/// The caller of a request.
#[derive(Clone, Eq, PartialEq)]
pub struct Caller(Option<Box<str>>);

impl Caller {
    /// Creates a caller with a name. The layer rejects requests of a caller with an empty name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self(Some(name.into().into_boxed_str()))
    }

    /// Returns the anonymous caller. All anonymous callers are one principal, distinct from each named one.
    #[must_use]
    pub fn anonymous() -> Self {
        Self(None)
    }
}

/// Named and anonymous callers have distinct encodings, whatever the name.
impl KeyPart for Caller {
    fn write_to(&self, parts: &mut KeyParts) {
        CallerName(self.0.as_deref()).write_to(parts);
    }
}

/// Omits the name, which may be personal data.
impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Caller(named)" } else { "Caller(anonymous)" })
    }
}

/// The response to a request without an acceptable principal.
#[derive(Debug)]
pub struct Denied(Box<Response<Bytes>>);

impl Denied {
    /// Creates a response that consists of a status, such as 401 or 403. A status that is not an error is replaced by
    /// 403, because the client would take it for a success.
    #[must_use]
    pub fn status(status: StatusCode) -> Self {
        let is_error = status.is_client_error() || status.is_server_error();
        let status = if is_error { status } else { StatusCode::FORBIDDEN };
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = status;
        Self(response.into())
    }

    /// Uses a custom response.
    #[must_use]
    pub fn response(response: Response<Bytes>) -> Self {
        Self(response.into())
    }

    pub(crate) fn into_response(self) -> Box<Response<Bytes>> {
        self.0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_core::{Identity, Scene};

    use super::*;

    #[test]
    fn only_a_name_over_the_limit_is_hashed() {
        let key = |part: &dyn Fn(&mut KeyParts)| {
            let mut parts = KeyParts::default();
            part(&mut parts);
            Identity::new(Scene::Rest, "orders", &parts).key("shop").unwrap()
        };
        for (length, is_plain) in [(512, true), (513, false)] {
            let name = "n".repeat(length);
            let caller = Caller::named(name.as_str());
            let plain = key(&|parts| ("named", &name).write_to(parts));
            assert_eq!(key(&|parts| caller.write_to(parts)) == plain, is_plain, "{length}");
        }
    }
}
