//! Conversion of database errors into errors of a source or a publisher.
use idempotent_core::__private::url::unreached;
use idempotent_mq::{PublishError, PublishErrorKind, SourceError, SourceErrorKind};
use sqlx::error::DatabaseError;

/// An error of a statement.
#[derive(Debug)]
pub(crate) enum QueryError {
    /// The statement was not sent to this server.
    Unconnected(Box<str>, sqlx::Error),
    /// The statement was sent, and failed.
    Failed(sqlx::Error),
    /// The server did not answer in time.
    Silent,
    /// A pooler loses prepared statements.
    Pooled,
}

/// The consequence of an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Consequence {
    /// The statement had no effect, and a retry may succeed.
    Temporary,
    /// The statement may have taken effect, and a retry may succeed.
    Unknown,
    /// A retry fails in the same way.
    Permanent,
    /// A retry fails in the same way for this message, and not for others.
    TooLarge,
}

/// The meaning of an error: its consequence, and a text with the remedy.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    consequence: Consequence,
    text: String,
}

/// Creates an error for a setting or a state that a retry does not change.
pub(crate) fn fatal(doing: &str, remedy: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Fatal, format!("{doing}: {remedy}"))
}

/// Creates the error for a message that another consumer holds or has settled.
pub(crate) fn gone(doing: &str) -> SourceError {
    let text =
        format!("{doing}: the message is settled, or its visibility timeout is over and another consumer has read it");
    SourceError::new(SourceErrorKind::Gone, text)
}

/// Creates an error that a retry may solve.
pub(crate) fn transient(doing: &str, text: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Transient, format!("{doing}: {text}"))
}

impl Failure {
    pub(crate) fn of(doing: &str, error: &QueryError) -> Self {
        let (consequence, text) = match error {
            QueryError::Silent => (Consequence::Unknown, "the server does not answer".to_owned()),
            QueryError::Pooled => (Consequence::Permanent, POOLER.to_owned()),
            QueryError::Unconnected(server, error) => {
                let (consequence, text) = unconnected(error);
                (consequence, format!("{server}: {text}"))
            }
            QueryError::Failed(error) => interpret(error),
        };
        Self { consequence, text: format!("{doing}: {text}") }
    }

    pub(crate) fn source(&self) -> SourceError {
        let kind = match self.consequence {
            Consequence::Permanent => SourceErrorKind::Fatal,
            Consequence::TooLarge => SourceErrorKind::Refused,
            Consequence::Temporary | Consequence::Unknown => SourceErrorKind::Transient,
        };
        SourceError::new(kind, self.text.as_str())
    }

    pub(crate) fn publish(&self) -> PublishError {
        let kind = match self.consequence {
            Consequence::Permanent | Consequence::TooLarge => PublishErrorKind::Refused,
            Consequence::Temporary => PublishErrorKind::Unsent,
            Consequence::Unknown => PublishErrorKind::Unconfirmed,
        };
        PublishError::new(kind, self.text.as_str())
    }
}

/// Converts an error of a statement.
pub(crate) fn failure(doing: &str, error: &QueryError) -> SourceError {
    Failure::of(doing, error).source()
}

/// Converts an error of a statement in the caller's transaction.
pub(crate) fn in_transaction(doing: &str, error: sqlx::Error) -> Failure {
    Failure::of(doing, &QueryError::Failed(error))
}

/// Converts an error of a value in a row.
pub(crate) fn unreadable(doing: &str, error: &sqlx::Error) -> SourceError {
    fatal(doing, &format!("{error}; is the table of the queue one of PGMQ 1.5 or later?"))
}

/// Interprets an error before a statement was sent.
fn unconnected(error: &sqlx::Error) -> (Consequence, String) {
    match error {
        sqlx::Error::Protocol(text) if text.contains("auth") => {
            (Consequence::Permanent, format!("{text}; let the user log in by a password"))
        }
        // The client takes the end of the connection for a zero.
        sqlx::Error::Protocol(text) if text.contains("SSLRequest: 0x00") => {
            (Consequence::Temporary, unreached("closed").to_owned())
        }
        sqlx::Error::Protocol(text) => {
            (Consequence::Temporary, format!("no answer of PostgreSQL ({text}); check the host and the port"))
        }
        sqlx::Error::Io(io) if io.kind() != std::io::ErrorKind::InvalidData => {
            (Consequence::Temporary, format!("{io}; {}", unreached(&io.to_string())))
        }
        _ => match interpret(error) {
            (Consequence::Unknown, text) => (Consequence::Temporary, text),
            other => other,
        },
    }
}

/// Returns true if no later statement may use the open connections: the server ended them, or takes no writes, as a demoted primary
/// does. New connections follow the address.
pub(crate) fn ends_connections(error: &sqlx::Error) -> bool {
    let gone = |code: &str| ["08", "57P", READ_ONLY].iter().any(|gone| code.starts_with(gone)) || ENDED.contains(&code);
    error.as_database_error().is_none_or(|refusal| gone(&refusal.code().unwrap_or_default()))
}

/// The session takes no writes.
const READ_ONLY: &str = "25006";
/// `idle_in_transaction_session_timeout` and `transaction_timeout`, which end the session.
const ENDED: [&str; 2] = ["25P03", "25P04"];

fn interpret(error: &sqlx::Error) -> (Consequence, String) {
    use Consequence::{Permanent, Unknown};
    match error {
        sqlx::Error::Database(refusal) => refused(&**refusal),
        sqlx::Error::Tls(_) => (Permanent, format!("{error}; {CERTIFICATE}")),
        // A refused certificate is reported as an error of the connection.
        sqlx::Error::Io(io) if io.kind() == std::io::ErrorKind::InvalidData => {
            (Permanent, format!("{io}; {CERTIFICATE}"))
        }
        sqlx::Error::Configuration(_) => (Permanent, format!("{error}; check the URL")),
        sqlx::Error::PoolTimedOut => (Unknown, format!("no connection within 5 s; {SILENT}")),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => {
            (Permanent, error.to_string())
        }
        // A connection that ends within an answer is also reported as a violation of the protocol.
        other => (Unknown, other.to_string()),
    }
}

const SILENT: &str = "check that the server is not overloaded, that the host and the port are its own, and the network";
const CERTIFICATE: &str = "check `sslmode` and `sslrootcert` in the URL, and the certificate of the server";
const INSTALL: &str =
    "install PGMQ 1.5 or later in this database, by `CREATE EXTENSION pgmq` or by its file `pgmq.sql`";
pub(crate) const UPDATE: &str =
    "PGMQ 1.5 or later is required; run `ALTER EXTENSION pgmq UPDATE`, or the SQL files of the versions";
const GRANT: &str = "grant USAGE on the schema `pgmq`, SELECT, INSERT, UPDATE and DELETE on its tables, and CREATE on the schema to \
                     a role that creates queues";

const POOLER: &str = "a pooler loses prepared statements; set `max_prepared_statements=100` of PgBouncer 1.21 or later, or its \
                      `pool_mode=session`, or name the server in the URL";

/// Interprets an error of the server. The text contains only the message of the server, because the details may show a row.
fn refused(refusal: &dyn DatabaseError) -> (Consequence, String) {
    use Consequence::{Permanent, Temporary, TooLarge, Unknown};
    let code = refusal.code().unwrap_or_default();
    let (consequence, remedy) = match &*code {
        "3F000" => (Permanent, INSTALL),
        "42P01" => (Permanent, "create the queue by `declare` on the builder, or by `SELECT pgmq.create(…)`"),
        "42883" | "42703" => (Permanent, UPDATE),
        "42501" => (Permanent, GRANT),
        "25P01" => (
            Permanent,
            "the connection has no open transaction; begin one, or move COMMIT and ROLLBACK out of the handler",
        ),
        READ_ONLY => (Temporary, "the server is read-only, probably a standby; name the primary in the URL"),
        "28P01" => (Permanent, "check the user and the password in the URL"),
        "28000" => (Permanent, "check the user and `sslmode` in the URL, and pg_hba.conf of the server"),
        "3D000" => (Permanent, "create the database, or name another one in the URL"),
        "26000" | "42P05" => (Permanent, POOLER),
        "22P02" | "22P05" => (Permanent, "jsonb cannot store the text"),
        "54000" => (TooLarge, "the message is too large for PostgreSQL"),
        "53300" => (Temporary, "raise `max_connections` of the server, or lower `connections`"),
        "57P01" | "57P02" | "57P05" => (Unknown, "the server ended the connection"),
        code if ENDED.contains(&code) => {
            (Unknown, "the server ended the connection; raise this timeout, or shorten the transaction")
        }
        // A changed table or function under a prepared statement; the next connection prepares it again.
        "0A000" => (Temporary, "the statement is prepared again"),
        "08P01" if refusal.message().starts_with("unsupported startup parameter") => {
            (Permanent, "remove `options` from the URL; set the value by ALTER ROLE, or name the server in the URL")
        }
        _ if code.starts_with("08") => (Unknown, "the connection failed"),
        _ if ["40", "53", "55", "57", "58", "XX"].iter().any(|class| code.starts_with(class)) => {
            (Temporary, "the server cannot run the statement now")
        }
        _ => (Permanent, "the server refuses the statement"),
    };
    (consequence, format!("{} (SQLSTATE {code}); {remedy}", refusal.message()))
}
