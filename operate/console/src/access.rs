//! The users of the console and their roles.
mod sessions;
mod throttle;
mod tokens;

use std::fmt;
use std::sync::Arc;

use http::request::Parts;

pub(crate) use self::sessions::Sessions;
pub(crate) use self::throttle::Throttle;
pub use self::tokens::{TokenError, TokenList};

/// The permissions of a user. Each role includes those before it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Role {
    /// Sees keys, dead letters, outboxes, health and the audit log.
    Viewer,
    /// Also forgets settled keys, redrives dead letters and resends messages of an outbox.
    Operator,
    /// Also releases keys from running owners, discards dead letters and voids messages of an outbox.
    Admin,
}

impl Role {
    /// Returns the name in a token file and on the pages: `viewer`, `operator` or `admin`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// A person or program that uses the console.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct User {
    /// The name in the audit log, 1 to 255 bytes without control characters. Otherwise each action of this user is refused.
    pub name: String,
    /// The permissions.
    pub role: Role,
}

impl User {
    /// Creates a user.
    #[must_use]
    pub fn new(name: impl Into<String>, role: Role) -> Self {
        Self { name: name.into(), role }
    }
}

/// A function that returns the user of a request.
type UserOf = dyn Fn(&Parts) -> Option<User> + Send + Sync;

/// The authentication of the console.
#[derive(Clone)]
pub struct Access(pub(crate) AccessKind);

#[derive(Clone)]
pub(crate) enum AccessKind {
    Host(Arc<UserOf>),
    Tokens(Arc<TokenList>),
}

impl Access {
    /// Asks the host application for the user of each request: by its session cookie, or by a header of its own proxy. A
    /// request without a user gets status 401.
    ///
    /// The console requires a form token and a matching `Origin` for each action, so a cookie of the host is enough.
    #[must_use]
    pub fn from_request(user: impl Fn(&Parts) -> Option<User> + Send + Sync + 'static) -> Self {
        Self(AccessKind::Host(Arc::new(user)))
    }

    /// Accepts the tokens of a list: in the login form, which opens a session, or as `Authorization: Bearer`.
    #[must_use]
    pub fn tokens(tokens: TokenList) -> Self {
        Self(AccessKind::Tokens(Arc::new(tokens)))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            AccessKind::Host(_) => "Access::from_request",
            AccessKind::Tokens(_) => "Access::tokens",
        })
    }
}
