//! Conversion of client and server errors into errors of a source.
use std::time::Duration;

use idempotent_core::__private::url::unreached;
use idempotent_mq::{SourceError, SourceErrorKind};
use redis::{ConnectionAddr, ErrorKind, RedisError};

/// Creates a source error. `doing` names the operation in the text.
pub(crate) fn failure(doing: &str, error: RedisError) -> SourceError {
    let code = error.code().unwrap_or_default().to_owned();
    let text = error.detail().unwrap_or_default().to_owned();
    let (kind, remedy) = classify(&error, &code, &text);
    let reply = if code.is_empty() { error.to_string() } else { format!("{code} {text}") };
    SourceError::new(kind, format!("{doing}: {reply}{remedy}")).with_cause(error)
}

/// Creates the error of a connection attempt.
pub(crate) fn unconnected(address: &ConnectionAddr, error: RedisError) -> SourceError {
    let doing = connecting_to(address);
    let text = match error.kind() {
        ErrorKind::Io => format!("{doing}: {error}; {}", of_transport(&error.to_string())),
        ErrorKind::Parse => format!("{doing}: no answer of Redis ({error}); check the host and the port, and {BY_TLS}"),
        _ => return failure(&doing, error),
    };
    SourceError::new(SourceErrorKind::Transient, text).with_cause(error)
}

/// Creates the error of a connection attempt without an answer.
pub(crate) fn silent(address: &ConnectionAddr, waited: Duration) -> SourceError {
    // Redis waits for the end of a line.
    let tls = match address {
        ConnectionAddr::TcpTls { .. } => "; if it does not answer by TLS, use `redis://`",
        _ => "",
    };
    let text = format!(
        "{}: no answer within {waited:?}; check that the server is not overloaded, that the host and the port are its own, and the \
         network{tls}",
        connecting_to(address)
    );
    SourceError::new(SourceErrorKind::Transient, text)
}

const BY_TLS: &str = "whether it requires TLS (`rediss://`)";

/// Returns the remedy for a connection that failed or ended.
fn of_transport(cause: &str) -> &'static str {
    if cause.contains("invalid peer certificate") {
        "name the authority of this certificate in a client of your own, by `Server::on_client`"
    } else if cause.contains("corrupt message") {
        "the server does not answer by TLS: use `redis://`, or the port for TLS"
    } else {
        unreached(cause)
    }
}

fn connecting_to(address: &ConnectionAddr) -> String {
    format!("connecting to {address}")
}

/// Returns whether the server refuses this connection, or is another server. A proxy may refuse the command only.
pub(crate) fn refuses_connection(error: &RedisError) -> bool {
    match error.code() {
        None | Some("NOAUTH" | "DENIED") => true,
        Some(_) => error.to_string().contains(CROWDED),
    }
}

/// In the error of a server that has too many connections.
const CROWDED: &str = "max number of clients";

/// Returns whether the connection must be closed: it is broken, or leads to a server that rejects writes.
pub(crate) fn ends_connection(error: &RedisError) -> bool {
    let code = error.code().unwrap_or_default();
    error.is_unrecoverable_error() || error.is_timeout() || matches!(code, "READONLY" | "MASTERDOWN")
}

fn classify(error: &RedisError, code: &str, text: &str) -> (SourceErrorKind, &'static str) {
    use SourceErrorKind::{Fatal, Transient};
    // The error of a script contains the code of the failed command in its text.
    let has_code = |word: &str| code == word || text.contains(word);
    if has_code("NOGROUP") {
        return (
            Fatal,
            "; create the group by `.declare(StartPosition::Beginning)` on the builder of the source, or by `XGROUP CREATE`",
        );
    }
    if ["MOVED", "ASK", "CROSSSLOT", "CLUSTERDOWN"].contains(&code) {
        return (Fatal, "; clusters are not supported; use a single server");
    }
    if has_code("WRONGTYPE") {
        return (Fatal, "; the key holds a value of another type, not a stream");
    }
    if has_code("NOAUTH") || has_code("WRONGPASS") || matches!(error.kind(), ErrorKind::AuthenticationFailed) {
        return (Fatal, "; check user and password in the URL; percent-encode characters such as @ and %");
    }
    if has_code("NOPERM") || text.contains("can't run this command") || text.contains("no permissions") {
        return (Fatal, "; the docs of `idempotent-redis-streams` list the commands that the user must be granted");
    }
    if text.contains("DB index") {
        return (Fatal, "; select another database in the URL, or raise `databases` in redis.conf");
    }
    if text.contains("unknown command") || text.contains("Unknown Redis command") {
        return (Fatal, "; use Redis 6.2 or later, or Valkey");
    }
    if text.contains(CROWDED) {
        return (Transient, "; close idle connections, or raise `maxclients` of the server");
    }
    if code == "DENIED" {
        return (Fatal, "; the server is in protected mode; set its password and its addresses in `bind`");
    }
    if has_code("READONLY") {
        return (Transient, "; the server is a replica; connect to the primary");
    }
    if has_code("OOM") {
        return (Transient, "; the server's memory is full; raise maxmemory");
    }
    match error.kind() {
        ErrorKind::InvalidClientConfig => (Fatal, "; use `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`"),
        ErrorKind::UnexpectedReturnType => (Fatal, ""),
        ErrorKind::Server(_) | ErrorKind::Extension if code == "ERR" || code == "EXECABORT" => (Fatal, ""),
        _ => (Transient, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_a_retry_cannot_fix_are_fatal() {
        use SourceErrorKind::{Fatal, Transient};
        for (code, text, kind) in [
            ("MOVED", "1 10.0.0.1:6379", Fatal),
            ("NOPERM", "this user has no permissions", Fatal),
            ("ERR", "ACL failure in script: User x has no permissions to run the 'xclaim' command", Fatal),
            ("NOAUTH", "Authentication required.", Fatal),
            ("ERR", "unknown command 'XAUTOCLAIM'", Fatal),
            ("ERR", "NOGROUP No such key script: 1f, on @user_script:2.", Fatal),
            ("ERR", "max number of clients reached", Transient),
            ("DENIED", "Redis is running in protected mode", Fatal),
            ("READONLY", "You can't write against a read only replica.", Transient),
            ("LOADING", "Redis is loading the dataset in memory", Transient),
            ("BUSY", "Redis is busy running a script.", Transient),
            ("MASTERDOWN", "Link with MASTER is down", Transient),
            ("NOREPLICAS", "Not enough good replicas to write.", Transient),
            ("OOM", "command not allowed when used memory > 'maxmemory'.", Transient),
        ] {
            let error = redis::make_extension_error(code.to_owned(), Some(text.to_owned()));
            assert_eq!(failure("reading", error).kind(), kind, "{code} {text}");
        }
    }
}
