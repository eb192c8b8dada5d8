//! The failures of commands that neither a store nor a broker reports.
use std::error::Error;

/// A failure that neither a store nor a broker has reported.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is incomplete.
    Usage(String),
    /// The key or the letter is absent.
    NotFound(String),
    /// A rule forbids the change. Nothing was changed.
    Refused(String),
    /// A check has failed, or migrations are missing.
    Findings(&'static str),
    /// The tables can neither be used nor migrated.
    Unfit(String),
    /// The address of the console cannot be used.
    #[cfg(feature = "console")]
    CannotListen(String),
    /// The command took longer than `--timeout`.
    TimedOut,
    /// A signal ended the command.
    Interrupted(Signal),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Usage(text) | Self::NotFound(text) | Self::Refused(text) | Self::Unfit(text) => f.write_str(text),
            #[cfg(feature = "console")]
            Self::CannotListen(text) => f.write_str(text),
            Self::Findings(text) => f.write_str(text),
            Self::TimedOut => f.write_str("the command took longer than --timeout"),
            Self::Interrupted(_) => f.write_str("interrupted"),
        }
    }
}

impl Error for Failure {}

/// A signal that ends the command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Signal {
    Interrupt,
    Terminate,
}
