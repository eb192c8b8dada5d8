//! Whose request it is: equal keys of two callers are two keys.
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use idempotent_core::{KeyPart, Parts as KeyParts, key_hash};

type Named = dyn Fn(&Parts) -> Result<Caller, Denied> + Send + Sync;

/// Says who calls. There is no default: with one principal for all, a caller who guesses or reuses another's key gets the
/// other's answer.
///
/// Name the *subject*, not the credential: a token that was refreshed between two tries would make the retry another
/// caller's.
///
/// ```
/// use http::StatusCode;
/// use idempotent_tower::{Caller, Denied, Principal};
///
/// // Put there by the authentication, which stands further out.
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
    named: Option<Arc<Named>>,
    anonymous_credentials: bool,
}

impl Principal {
    /// Asks a function of the request's head.
    ///
    /// The layer answers 500 if a request has an `Authorization` header and the function returns
    /// [anonymous](Caller::anonymous). Such a request usually means that authentication runs inside the layer. All callers would
    /// then share one identity and read each other's answers. The log names this cause. Put authentication outside the
    /// layer. For optional authentication, see [`allow_anonymous_credentials`](Self::allow_anonymous_credentials). For a service
    /// that ignores the header, use [`none`](Self::none).
    pub fn from_fn(named: impl Fn(&Parts) -> Result<Caller, Denied> + Send + Sync + 'static) -> Self {
        Self { named: Some(Arc::new(named)), anonymous_credentials: false }
    }

    /// All callers are one. For services with one client, and for keys that nobody can guess and that answers nobody
    /// else may see follow from.
    pub fn none() -> Self {
        Self { named: None, anonymous_credentials: true }
    }

    /// Lets anonymous callers send an `Authorization` header. Set this only if authentication outside the layer has examined
    /// each header and lets requests with an expired or unknown credential pass as anonymous.
    ///
    /// # Default
    /// Refused with 500
    pub fn allow_anonymous_credentials(mut self) -> Self {
        self.anonymous_credentials = true;
        self
    }

    pub(crate) fn of(&self, parts: &Parts) -> Result<Caller, Denied> {
        match &self.named {
            Some(named) => named(parts),
            None => Ok(Caller::anonymous()),
        }
    }

    /// Returns true if a request with credentials has no name.
    pub(crate) fn overlooks(&self, caller: &Caller, parts: &Parts) -> bool {
        !self.anonymous_credentials && caller.0.is_none() && parts.headers.contains_key(http::header::AUTHORIZATION)
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.named.is_some() { "Principal::from_fn(…)" } else { "Principal::none()" })
    }
}

/// Who calls.
#[derive(Clone, Eq, PartialEq)]
pub struct Caller(Option<Box<str>>);

impl Caller {
    /// The caller of this name. An empty name is nobody's: the request is refused.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self(Some(name.into().into_boxed_str()))
    }

    /// Everybody without a name: one principal, apart from all that have one.
    #[must_use]
    pub fn anonymous() -> Self {
        Self(None)
    }
}

/// Subjects are as long as whoever issues them likes; the executor takes 1,024 bytes.
const LONG: usize = 512;

/// Named and nameless callers never fall together, whatever the name.
impl KeyPart for Caller {
    fn feed(&self, parts: &mut KeyParts) {
        match &self.0 {
            Some(name) if name.len() > LONG => ("long", key_hash(name.as_bytes())).feed(parts),
            Some(name) => ("named", name).feed(parts),
            None => "anonymous".feed(parts),
        }
    }
}

/// Names may be personal.
impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Caller(named)" } else { "Caller(anonymous)" })
    }
}

/// What a request without a usable principal is answered.
#[derive(Debug)]
pub struct Denied(Box<Response<Bytes>>);

impl Denied {
    /// A status alone: 401 or 403, say. A status that reports no error would tell the client that its request was
    /// carried out, so 403 is answered in its place.
    #[must_use]
    pub fn status(status: StatusCode) -> Self {
        let is_error = status.is_client_error() || status.is_server_error();
        let status = if is_error { status } else { StatusCode::FORBIDDEN };
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = status;
        Self(response.into())
    }

    /// An answer of your own.
    #[must_use]
    pub fn response(response: Response<Bytes>) -> Self {
        Self(response.into())
    }

    pub(crate) fn into_response(self) -> Box<Response<Bytes>> {
        self.0
    }
}
