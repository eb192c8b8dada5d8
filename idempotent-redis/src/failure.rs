//! Failures of calls, and the meaning of server errors.
use std::sync::Arc;

use idempotent_core::{StoreError, StoreErrorKind, StoreNode};
use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};

use crate::connection::address::ServerAddress;
use crate::scripts::Dialect;
use crate::startup::permissions::{self, EXTRA};

/// The reason why a call has no reply. A clone is cheap: all calls of a batch share one failure.
#[derive(Clone, Debug)]
pub(crate) struct CallFailure {
    pub(crate) kind: FailureKind,
    text: Arc<str>,
    /// The node of a cluster that failed.
    node: Option<StoreNode>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum FailureKind {
    /// An error kind of the store.
    Store(StoreErrorKind),
    /// Redirection in a cluster: this address owns the slot now.
    Moved(Arc<str>),
    /// Redirection in a cluster for this key and this attempt only.
    Ask(Arc<str>),
    /// The call was not applied, and a retry is likely to succeed soon.
    Transient,
    /// The call was not applied, because this server does not accept writes.
    NotPrimary,
    /// The call was not applied, because the script must be sent in full.
    NoScript,
    /// The call was not applied, because there is no connection.
    Unreachable,
}

impl CallFailure {
    pub(crate) fn new(kind: StoreErrorKind, text: impl Into<Arc<str>>) -> Self {
        Self::of_kind(FailureKind::Store(kind), text)
    }

    fn of_kind(kind: FailureKind, text: impl Into<Arc<str>>) -> Self {
        Self { kind, text: text.into(), node: None }
    }

    pub(crate) fn ambiguous(text: impl Into<Arc<str>>) -> Self {
        Self::new(StoreErrorKind::Ambiguous, text)
    }

    pub(crate) fn not_applied(text: impl Into<Arc<str>>) -> Self {
        Self::new(StoreErrorKind::NotApplied, text)
    }

    pub(crate) fn unreachable(text: impl Into<Arc<str>>) -> Self {
        Self::of_kind(FailureKind::Unreachable, text)
    }

    /// Creates a failure that was not applied and is worth a retry soon.
    pub(crate) fn transient(text: impl Into<Arc<str>>) -> Self {
        Self::of_kind(FailureKind::Transient, text)
    }

    /// Creates a failure for settings that the client library rejects.
    pub(crate) fn from_settings(error: &RedisError) -> Self {
        Self::new(StoreErrorKind::Schema, error.to_string())
    }

    /// Converts a server error. Servers quote neither keys nor values, so the text contains none.
    pub(crate) fn from_server(error: &ServerError) -> Self {
        Self::from_code(error.code(), error.details().unwrap_or_default())
    }

    /// Converts the error of a command inside a script, "CODE text". Redis 6.2 puts the position first, "@user_script:
    /// 67: -".
    pub(crate) fn from_script(reply: &str) -> Self {
        let reply =
            if reply.starts_with('@') { reply.split_once(": -").map_or(reply, |(_, reply)| reply) } else { reply };
        let (code, text) = reply.split_once(' ').unwrap_or((reply, ""));
        Self::from_code(code, text)
    }

    fn from_code(code: &str, text: &str) -> Self {
        let kind = match code {
            "MOVED" => FailureKind::Moved(address(text)),
            "ASK" => FailureKind::Ask(address(text)),
            "NOSCRIPT" => FailureKind::NoScript,
            "READONLY" | "MASTERDOWN" => FailureKind::NotPrimary,
            "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "BUSY" => FailureKind::Transient,
            "OOM" | "NOREPLICAS" | "MISCONF" | "EXECABORT" | "UNKILLABLE" => store(StoreErrorKind::NotApplied),
            "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => store(StoreErrorKind::Denied),
            "WRONGTYPE" => store(StoreErrorKind::Foreign),
            "CROSSSLOT" => store(StoreErrorKind::Schema),
            _ if denies(text) => store(StoreErrorKind::Denied),
            // Scripts with flags are rejected before they run, others at their first write.
            _ if is_full(text) => store(StoreErrorKind::NotApplied),
            _ => store(StoreErrorKind::Schema),
        };
        Self::of_kind(kind, explain(code, text))
    }

    /// Converts an error of the client library: a lost connection, or a server error.
    pub(crate) fn from_client(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::ResponseError) | ErrorKind::Extension | ErrorKind::Server(_) => {
                Self::from_code(error.code().unwrap_or("ERR"), error.detail().unwrap_or_default())
            }
            ErrorKind::RESP3NotSupported => {
                Self::new(StoreErrorKind::Schema, "server version is too old; use Redis 6.2 or later, or Valkey")
            }
            ErrorKind::InvalidClientConfig => Self::from_settings(error),
            ErrorKind::AuthenticationFailed => Self::new(StoreErrorKind::Denied, explain("WRONGPASS", "")),
            _ => Self::ambiguous(error.to_string()),
        }
    }

    /// Converts an error of a connection attempt, during which no call was sent. An unknown refusal, such as too many
    /// clients, is worth a retry.
    pub(crate) fn from_connecting(error: &RedisError) -> Self {
        let Self { kind, text, .. } = Self::from_client(error);
        let refused = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        match kind {
            FailureKind::Store(StoreErrorKind::Ambiguous) => Self::unreachable(text),
            FailureKind::Store(StoreErrorKind::Schema) if refused && !is_final(&text) => Self::unreachable(text),
            kind => Self::of_kind(kind, text),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Adds the node of a cluster that failed, and completes a redirection without a host: the node refers to its own host.
    pub(crate) fn at_node(self, name: &StoreNode, address: &ServerAddress) -> Self {
        Self { node: Some(name.clone()), ..self.with_default_host(address) }
    }

    fn with_default_host(mut self, node: &ServerAddress) -> Self {
        let (FailureKind::Moved(to) | FailureKind::Ask(to)) = &mut self.kind else { return self };
        if let Some(address) = ServerAddress::parse(to) {
            *to = address.with_default_host(node).to_string().into();
        }
        self
    }

    /// Adds a prefix to the text.
    pub(crate) fn because(self, why: &str) -> Self {
        Self { text: format!("{why}: {}", self.text).into(), ..self }
    }
}

impl From<CallFailure> for StoreError {
    fn from(failure: CallFailure) -> Self {
        let kind = match failure.kind {
            FailureKind::Store(kind) => kind,
            FailureKind::Moved(_)
            | FailureKind::Ask(_)
            | FailureKind::Transient
            | FailureKind::NotPrimary
            | FailureKind::NoScript
            | FailureKind::Unreachable => StoreErrorKind::NotApplied,
        };
        let error = Self::new(kind).because(&*failure.text);
        match failure.node {
            Some(node) => error.with_node(node),
            None => error,
        }
    }
}

fn store(kind: StoreErrorKind) -> FailureKind {
    FailureKind::Store(kind)
}

/// Returns the address in "SLOT HOST:PORT".
fn address(text: &str) -> Arc<str> {
    text.split(' ').nth(1).unwrap_or_default().into()
}

/// Returns whether the text denies a command inside a script. The text differs between server versions.
fn denies(text: &str) -> bool {
    text.contains("can't run this command") || text.contains("no permissions") || text.contains("NOPERM")
}

/// Returns whether a refusal is permanent: a database or protocol that the server does not support.
fn is_final(text: &str) -> bool {
    ["DB index", "SELECT is not allowed", "NOPROTO"].iter().any(|words| text.contains(words))
}

/// Returns whether the server refused to store more. Redis 6.2 reports the refusal inside the error of a script.
fn is_full(text: &str) -> bool {
    text.contains("OOM") || text.contains("maxmemory")
}

/// Returns the server's text, with a remedy if the text does not contain one.
fn explain(code: &str, text: &str) -> String {
    let remedy = match code {
        "READONLY" => "; the server is a replica; connect to the primary or use redis+sentinel://",
        _ if code == "OOM" || is_full(text) => {
            "; the server's memory is full; new claims are rejected, runs in progress can complete; raise maxmemory"
        }
        "NOREPLICAS" => "; too few replicas are connected; see min-replicas-to-write",
        "MISCONF" => "; the server cannot write its snapshot; see its log",
        "NOAUTH" => "; add user and password to the URL, redis://user:password@host",
        "WRONGPASS" => "; check user and password in the URL; percent-encode characters such as @ and %",
        "WRONGTYPE" => "; the key holds a value of another type, not written by this library",
        "CROSSSLOT" => "; this is a bug in idempotent-redis: the keys of a script are in different slots",
        _ if code == "NOPERM" || denies(text) => {
            let rule = permissions::rule("NAMESPACE", Dialect::Flags, &[], false);
            return format!("{code} {text}; grant the user `{rule}` (NAMESPACE: the executor's namespace){EXTRA}");
        }
        _ => "",
    };
    format!("{code} {text}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_while_connecting_is_retryable_unless_it_is_permanent() {
        let refused = |text: &str| {
            let error =
                RedisError::from((ErrorKind::Server(ServerErrorKind::ResponseError), "refused", text.to_owned()));
            CallFailure::from_connecting(&error).kind
        };
        assert_eq!(refused("max number of clients reached"), FailureKind::Unreachable);
        assert_eq!(refused("nobody knows this one"), FailureKind::Unreachable);
        assert_eq!(refused("DB index is out of range"), store(StoreErrorKind::Schema));
        assert_eq!(refused("SELECT is not allowed in cluster mode"), store(StoreErrorKind::Schema));
        assert_eq!(refused("this user has no permissions to run the 'select' command"), store(StoreErrorKind::Denied));
    }

    #[test]
    fn an_error_inside_a_script_is_parsed_with_and_without_its_position() {
        for reply in ["READONLY You can't write against a read only replica.", "WRONGTYPE Operation against a key"] {
            let placed = CallFailure::from_script(&format!("@user_script: 67: -{reply}"));
            assert_eq!(
                (&placed.kind, placed.text()),
                (&CallFailure::from_script(reply).kind, CallFailure::from_script(reply).text())
            );
        }
        assert_eq!(CallFailure::from_script("@user_script: 67: -READONLY x").kind, FailureKind::NotPrimary);
    }

    #[test]
    fn a_redirection_without_a_host_refers_to_its_sender() {
        let node = ServerAddress::new("10.0.0.1", 6379);
        for (text, to) in
            [("7 :6380", "10.0.0.1:6380"), ("7 10.0.0.2:6380", "10.0.0.2:6380"), ("7 ::1:6380", "[::1]:6380")]
        {
            assert_eq!(
                CallFailure::from_code("MOVED", text).with_default_host(&node).kind,
                FailureKind::Moved(to.into()),
                "{text}"
            );
            assert_eq!(
                CallFailure::from_code("ASK", text).with_default_host(&node).kind,
                FailureKind::Ask(to.into()),
                "{text}"
            );
        }
    }
}
