//! What became of a call that got no answer, and what a server's error means.
use std::sync::Arc;

use idempotent_core::{StoreError, StoreErrorKind};
use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};

use crate::access::Address;
use crate::rights::{self, EXTRA};
use crate::script::Dialect;

/// Why a call has no answer. Cheap to clone: all calls of one trip share it.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    text: Arc<str>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum FailureKind {
    /// As the store's caller sees it.
    Store(StoreErrorKind),
    /// Cluster: the slot lives at this address now.
    Moved(Arc<str>),
    /// Cluster: this key, this once.
    Ask(Arc<str>),
    /// Not applied, and likely to pass in a moment.
    Soon,
    /// Not applied: this server does not take writes, another one may.
    NotPrimary,
    /// Not applied: the script has to be sent in full.
    NoScript,
    /// Not applied: there is no connection.
    Unreachable,
}

impl Failure {
    pub(crate) fn new(kind: StoreErrorKind, text: impl Into<Arc<str>>) -> Self {
        Self { kind: FailureKind::Store(kind), text: text.into() }
    }

    pub(crate) fn ambiguous(text: impl Into<Arc<str>>) -> Self {
        Self::new(StoreErrorKind::Ambiguous, text)
    }

    pub(crate) fn not_applied(text: impl Into<Arc<str>>) -> Self {
        Self::new(StoreErrorKind::NotApplied, text)
    }

    pub(crate) fn unreachable(text: impl Into<Arc<str>>) -> Self {
        Self { kind: FailureKind::Unreachable, text: text.into() }
    }

    /// Not applied, and worth another try in a moment.
    pub(crate) fn soon(text: impl Into<Arc<str>>) -> Self {
        Self { kind: FailureKind::Soon, text: text.into() }
    }

    /// The client library takes no server like this.
    pub(crate) fn setting(error: &RedisError) -> Self {
        Self::new(StoreErrorKind::Schema, error.to_string())
    }

    /// What a server said instead of an answer. `sent` text never holds keys or values: servers quote neither.
    pub(crate) fn of_server(error: &ServerError) -> Self {
        Self::of_code(error.code(), error.details().unwrap_or_default())
    }

    /// What a command inside a script was told: "CODE text".
    pub(crate) fn of_script(said: &str) -> Self {
        let (code, text) = said.split_once(' ').unwrap_or((said, ""));
        Self::of_code(code, text)
    }

    fn of_code(code: &str, text: &str) -> Self {
        let kind = match code {
            "MOVED" => FailureKind::Moved(address(text)),
            "ASK" => FailureKind::Ask(address(text)),
            "NOSCRIPT" => FailureKind::NoScript,
            "READONLY" | "MASTERDOWN" => FailureKind::NotPrimary,
            "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "BUSY" => FailureKind::Soon,
            "OOM" | "NOREPLICAS" | "MISCONF" | "EXECABORT" | "UNKILLABLE" => store(StoreErrorKind::NotApplied),
            "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => store(StoreErrorKind::Denied),
            "WRONGTYPE" => store(StoreErrorKind::Foreign),
            "CROSSSLOT" => store(StoreErrorKind::Schema),
            _ if denies(text) => store(StoreErrorKind::Denied),
            // Flagged scripts are refused before anything of them runs.
            _ if text.contains("OOM") || text.contains("maxmemory") => store(StoreErrorKind::NotApplied),
            _ => store(StoreErrorKind::Schema),
        };
        Self { kind, text: explained(code, text).into() }
    }

    /// What the client library said: the connection, or a server.
    pub(crate) fn of_client(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::ResponseError) | ErrorKind::Extension | ErrorKind::Server(_) => {
                Self::of_code(error.code().unwrap_or("ERR"), error.detail().unwrap_or_default())
            }
            ErrorKind::RESP3NotSupported => {
                Self::new(StoreErrorKind::Schema, "the server is too old: at least Redis 6.2, or Valkey, is needed")
            }
            ErrorKind::InvalidClientConfig => Self::setting(error),
            ErrorKind::AuthenticationFailed => Self::new(StoreErrorKind::Denied, explained("WRONGPASS", "")),
            _ => Self::ambiguous(error.to_string()),
        }
    }

    /// What the client library said while it connected: nothing else was sent.
    pub(crate) fn of_connecting(error: &RedisError) -> Self {
        match Self::of_client(error) {
            Self { kind: FailureKind::Store(StoreErrorKind::Ambiguous), text } => Self::unreachable(text),
            failure => failure,
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// A node that redirects without a host means its own.
    pub(crate) fn beside(mut self, node: &Address) -> Self {
        let (FailureKind::Moved(to) | FailureKind::Ask(to)) = &mut self.kind else { return self };
        if let Some(address) = Address::parse(to) {
            *to = address.beside(node).to_string().into();
        }
        self
    }

    /// Says more about the same.
    pub(crate) fn because(self, why: &str) -> Self {
        Self { text: format!("{why}: {}", self.text).into(), ..self }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        let kind = match failure.kind {
            FailureKind::Store(kind) => kind,
            FailureKind::Moved(_)
            | FailureKind::Ask(_)
            | FailureKind::Soon
            | FailureKind::NotPrimary
            | FailureKind::NoScript
            | FailureKind::Unreachable => StoreErrorKind::NotApplied,
        };
        Self::new(kind).because(&*failure.text)
    }
}

fn store(kind: StoreErrorKind) -> FailureKind {
    FailureKind::Store(kind)
}

/// "SLOT HOST:PORT".
fn address(text: &str) -> Arc<str> {
    text.split(' ').nth(1).unwrap_or_default().into()
}

/// Inside a script a command that is not allowed reads differently from version to version.
fn denies(text: &str) -> bool {
    text.contains("can't run this command") || text.contains("no permissions") || text.contains("NOPERM")
}

/// The server's own words, and what to do where they do not say it.
fn explained(code: &str, text: &str) -> String {
    let remedy = match code {
        "READONLY" => "; this server is a replica: name the primary, or use redis+sentinel://",
        "OOM" => "; the server's memory is full: claims are refused, runs that have begun can be completed",
        "NOREPLICAS" => "; the server wants more replicas than it has (min-replicas-to-write)",
        "MISCONF" => "; the server cannot write its snapshot: see its log",
        "NOAUTH" => "; put user and password into the url, redis://user:password@host",
        "WRONGPASS" => "; check user and password in the url; characters such as @ and % are to be percent-encoded",
        "WRONGTYPE" => "; somebody else's key lies there",
        "CROSSSLOT" => "; this is a bug of idempotent-redis: keys of one script must lie in one slot",
        _ if code == "NOPERM" || denies(text) => {
            let rule = rights::rule("NAMESPACE", Dialect::Flags, &[]);
            return format!("{code} {text}; the user needs the rule `{rule}` (NAMESPACE: the executor's){EXTRA}");
        }
        _ => "",
    };
    format!("{code} {text}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_without_a_host_is_to_the_host_that_sent_it() {
        let node = Address::new("10.0.0.1", 6379);
        for (text, to) in
            [("7 :6380", "10.0.0.1:6380"), ("7 10.0.0.2:6380", "10.0.0.2:6380"), ("7 ::1:6380", "[::1]:6380")]
        {
            assert_eq!(Failure::of_code("MOVED", text).beside(&node).kind, FailureKind::Moved(to.into()), "{text}");
            assert_eq!(Failure::of_code("ASK", text).beside(&node).kind, FailureKind::Ask(to.into()), "{text}");
        }
    }
}
