//! The exit codes of the command line.
use std::error::Error;
use std::io;
use std::process::ExitCode;

use idempotent::mq::{SourceError, SourceErrorKind};
use idempotent::{ConnectError, StoreError, StoreErrorKind};
use idempotent_operate::{DeliveryLimitError, OperateError, escaped};

use crate::failure::{Failure, Signal};
use crate::output;

/// Defines the exit codes with the meanings that `--help` prints.
macro_rules! exits {
    ($($name:ident = $code:literal, $meaning:literal;)*) => {
        /// The exit code of a command.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[repr(u8)]
        pub(crate) enum Exit {
            $(#[doc = $meaning] $name = $code,)*
        }

        /// The exit codes with their meanings.
        const MEANINGS: &[(Exit, &str)] = &[$((Exit::$name, $meaning)),*];
    };
}

exits! {
    Done = 0, "done";
    Other = 1, "other failure";
    Usage = 2, "wrong arguments, or an invalid URL";
    Findings = 3, "a check failed, or migrations are missing";
    Absent = 4, "the key, the letter or the message is absent";
    Unfit = 5, "a record is unreadable, a letter cannot be changed, or the schema does not fit";
    Refused = 6, "refused, and nothing was changed";
    Unreachable = 7, "the store or the queue cannot be reached, or the time of `--timeout` is over";
    Denied = 8, "the store or the queue denies the access";
    Interrupted = 130, "interrupted by Ctrl-C";
    Terminated = 143, "interrupted by SIGTERM";
}

/// Returns the list of exit codes for `--help`.
pub(crate) fn list() -> String {
    let line = |(exit, meaning): &(Exit, &str)| format!("\n  {:<5}{meaning}", *exit as u8);
    format!("Exit codes:{}", MEANINGS.iter().map(line).collect::<String>())
}

/// Prints an error to stderr and returns its exit code. A reader that closed stdout has seen enough, which is no error.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if error.downcast_ref::<io::Error>().is_some_and(is_closed) {
        return ExitCode::SUCCESS;
    }
    let is_limited = error.downcast_ref::<SourceError>().is_some_and(is_delivery_limit);
    let remedy = if is_limited { ", and pass it by `--assume-delivery-limit`" } else { "" };
    output::note(format_args!("error: {}{remedy}", escaped(&format!("{error:#}"))));
    ExitCode::from(code(error) as u8)
}

fn is_delivery_limit(error: &SourceError) -> bool {
    error.source().is_some_and(<dyn Error>::is::<DeliveryLimitError>)
}

/// Returns the exit code of a broker's error. The brokers' own codes are in the text.
fn of_broker(error: &SourceError, text: &str) -> Exit {
    let has = |codes: &[&str]| codes.iter().any(|code| text.contains(code));
    match error.kind() {
        _ if is_delivery_limit(error) => Exit::Refused,
        _ if has(&["ACCESS_REFUSED", "ACCESS-REFUSED", "NOAUTH", "WRONGPASS", "NOPERM"]) => Exit::Denied,
        _ if has(&["NOT_FOUND", "NOT-FOUND"]) => Exit::Absent,
        SourceErrorKind::Refused | SourceErrorKind::Fatal => Exit::Unfit,
        _ => Exit::Unreachable,
    }
}

/// Returns the exit code of an error of a database's driver.
#[cfg(feature = "database")]
fn of_database(error: &idempotent::sqlx::Error) -> Exit {
    use idempotent::sqlx::Error;

    match error.as_database_error().map(|error| error.code().unwrap_or_default()) {
        // Wrong passwords and missing rights of PostgreSQL and of MariaDB.
        Some(code) if ["28000", "28P01", "42501", "42000"].contains(&&*code) => Exit::Denied,
        // An unknown database, and a file that is no database.
        Some(code) if ["3D000", "26"].contains(&&*code) => Exit::Unfit,
        None if matches!(error, Error::Io(_) | Error::Tls(_) | Error::PoolTimedOut | Error::Protocol(_)) => {
            Exit::Unreachable
        }
        _ => Exit::Other,
    }
}

fn code(error: &anyhow::Error) -> Exit {
    let of_store = |error: &StoreError| match error.kind() {
        StoreErrorKind::NotApplied | StoreErrorKind::Busy | StoreErrorKind::Ambiguous => Exit::Unreachable,
        StoreErrorKind::Denied => Exit::Denied,
        StoreErrorKind::Schema | StoreErrorKind::Corrupt | StoreErrorKind::UnknownVersion | StoreErrorKind::Foreign => {
            Exit::Unfit
        }
        _ => Exit::Other,
    };
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return match failure {
            Failure::Usage(_) => Exit::Usage,
            Failure::Findings(_) => Exit::Findings,
            Failure::NotFound(_) => Exit::Absent,
            Failure::Unfit(_) => Exit::Unfit,
            Failure::Refused(_) => Exit::Refused,
            Failure::TimedOut => Exit::Unreachable,
            #[cfg(feature = "console")]
            Failure::CannotListen(_) => Exit::Unreachable,
            Failure::Interrupted(Signal::Interrupt) => Exit::Interrupted,
            Failure::Interrupted(Signal::Terminate) => Exit::Terminated,
        };
    }
    if let Some(broker) = error.downcast_ref::<SourceError>() {
        return of_broker(broker, &format!("{error:#}"));
    }
    #[cfg(feature = "database")]
    if let Some(error) = error.downcast_ref::<idempotent::sqlx::Error>() {
        return of_database(error);
    }
    #[cfg(feature = "database")]
    if let Some(error) = error.downcast_ref::<idempotent::outbox::OutboxError>() {
        let cause = error.source().and_then(<dyn Error>::downcast_ref::<idempotent::sqlx::Error>);
        return crate::commands::outbox::code(error.kind()).or(cause.map(of_database)).unwrap_or(Exit::Other);
    }
    match error.downcast_ref::<OperateError>() {
        Some(OperateError::Store(error)) => return of_store(error),
        Some(OperateError::Unsupported { .. }) => return Exit::Unfit,
        Some(OperateError::Audit(_)) => return Exit::Refused,
        Some(_) => return Exit::Usage,
        None => {}
    }
    match error.downcast_ref::<ConnectError>() {
        Some(ConnectError::Store(error)) => of_store(error),
        Some(_) => Exit::Usage,
        None => error.downcast_ref::<StoreError>().map_or(Exit::Other, of_store),
    }
}
