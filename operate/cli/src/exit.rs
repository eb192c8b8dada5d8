//! The exit codes of the command line.
use std::error::Error;
use std::io;
use std::process::ExitCode;

use idempotent::mq::{SourceError, SourceErrorKind};
use idempotent::{ConnectError, StoreError, StoreErrorKind};
use idempotent_operate::{DeliveryLimitError, OperateError, escaped};

use crate::failure::{Failure, Signal};
use crate::output;

/// Prints an error to stderr and returns its exit code. A reader that closed stdout has seen enough, which is no error.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if error.downcast_ref::<io::Error>().is_some_and(is_closed) {
        return ExitCode::SUCCESS;
    }
    let is_limited = error.downcast_ref::<SourceError>().is_some_and(is_delivery_limit);
    let remedy = if is_limited { ", and pass it by `--assume-delivery-limit`" } else { "" };
    output::note(format_args!("error: {}{remedy}", escaped(&format!("{error:#}"))));
    ExitCode::from(code(error))
}

fn is_delivery_limit(error: &SourceError) -> bool {
    error.source().is_some_and(<dyn Error>::is::<DeliveryLimitError>)
}

/// Returns the exit code of a broker's error. The brokers' own codes are in the text.
fn of_broker(error: &SourceError, text: &str) -> u8 {
    let has = |codes: &[&str]| codes.iter().any(|code| text.contains(code));
    match error.kind() {
        _ if is_delivery_limit(error) => 6,
        _ if has(&["ACCESS_REFUSED", "ACCESS-REFUSED", "NOAUTH", "WRONGPASS", "NOPERM"]) => 8,
        _ if has(&["NOT_FOUND", "NOT-FOUND"]) => 4,
        SourceErrorKind::Fatal => 5,
        _ => 7,
    }
}

/// Returns the exit code of an error of a database's driver.
#[cfg(feature = "database")]
fn of_database(error: &idempotent::sqlx::Error) -> u8 {
    use idempotent::sqlx::Error;

    match error.as_database_error().map(|error| error.code().unwrap_or_default()) {
        // Wrong passwords and missing rights of PostgreSQL and of MariaDB.
        Some(code) if ["28000", "28P01", "42501", "42000"].contains(&&*code) => 8,
        // An unknown database, and a file that is no database.
        Some(code) if ["3D000", "26"].contains(&&*code) => 5,
        Some(_) => 1,
        None if matches!(error, Error::Io(_) | Error::Tls(_) | Error::PoolTimedOut | Error::Protocol(_)) => 7,
        None => 1,
    }
}

fn code(error: &anyhow::Error) -> u8 {
    let of_store = |error: &StoreError| match error.kind() {
        StoreErrorKind::NotApplied | StoreErrorKind::Ambiguous => 7,
        StoreErrorKind::Denied => 8,
        StoreErrorKind::Schema | StoreErrorKind::Corrupt | StoreErrorKind::UnknownVersion | StoreErrorKind::Foreign => {
            5
        }
        _ => 1,
    };
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return match failure {
            Failure::Usage(_) => 2,
            Failure::Findings => 3,
            Failure::NotFound(_) => 4,
            Failure::Unfit(_) => 5,
            Failure::Refused(_) => 6,
            Failure::TimedOut => 7,
            #[cfg(feature = "console")]
            Failure::CannotListen(_) => 7,
            Failure::Interrupted(Signal::Interrupt) => 130,
            Failure::Interrupted(Signal::Terminate) => 143,
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
        return crate::commands::outbox::code(error.kind()).or(cause.map(of_database)).unwrap_or(1);
    }
    match error.downcast_ref::<OperateError>() {
        Some(OperateError::Store(error)) => return of_store(error),
        Some(OperateError::Unsupported { .. }) => return 5,
        Some(OperateError::Audit(_)) => return 6,
        Some(_) => return 2,
        None => {}
    }
    match error.downcast_ref::<ConnectError>() {
        Some(ConnectError::Store(error)) => of_store(error),
        Some(_) => 2,
        None => error.downcast_ref::<StoreError>().map_or(1, of_store),
    }
}
