//! The conversion of rejections into problems.
use std::time::Duration;

use idempotent_core::{DuplicateMessages, KeyError, PreferredLanguages, Rejection};

use crate::{Problem, ProblemKind};

/// The delay before a retry where nothing better is known.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

impl From<Rejection> for Problem {
    /// Converts a rejection. An error of the service itself is logged, and its details are not sent to the client.
    ///
    /// The text for a duplicate has the language that the current task [prefers](PreferredLanguages::current).
    fn from(rejection: Rejection) -> Self {
        Self::of_rejection(rejection, PreferredLanguages::current)
    }
}

impl Problem {
    /// Converts a rejection, and selects the text for a duplicate by the preferred languages.
    pub(crate) fn of_rejection(rejection: Rejection, preferred: impl FnOnce() -> PreferredLanguages) -> Self {
        use ProblemKind as Kind;
        let with_message = |problem: Self, messages: Option<DuplicateMessages>| match messages {
            Some(messages) => problem.localized(messages.select(&preferred())),
            None => problem,
        };
        match rejection {
            Rejection::InFlight { retry_after, message } => {
                with_message(Self::new(Kind::InFlight).retry_after(retry_after), message)
            }
            Rejection::Delayed { retry_after } => Self::new(Kind::NotDue).retry_after(retry_after),
            // The request is valid, but another one has to complete first.
            Rejection::Waiting { retry_after } | Rejection::Held { retry_after, .. } => Self::new(Kind::NotDue)
                .detail("Another request has to be done before this one. Try again later with the same key.")
                .retry_after(retry_after),
            Rejection::Draining { retry_after } => Self::new(Kind::Draining).retry_after(retry_after),
            Rejection::ConsumedWithoutResult { .. } => Self::new(Kind::ResponseNotRetained),
            Rejection::Duplicate { retry_after, message } => {
                let problem = with_message(Self::new(Kind::DuplicateRequest), message);
                match retry_after {
                    Some(after) => problem.retry_after(after),
                    None => problem,
                }
            }
            Rejection::UnknownToken => Self::new(Kind::UnknownToken),
            Rejection::Failed { .. } | Rejection::Dead { .. } => Self::new(Kind::FailedBefore),
            Rejection::Mismatch => Self::new(Kind::KeyReused),
            Rejection::Key(KeyError::Fingerprint { .. }) => Self::new(Kind::InvalidBody),
            Rejection::Key(KeyError::Empty { what, .. }) if what.starts_with("tenant") => Self::new(Kind::NoPrincipal),
            Rejection::Key(KeyError::Empty { missing: true, .. }) => Self::new(Kind::MissingKey),
            Rejection::Key(error @ (KeyError::Empty { .. } | KeyError::TooLong { .. })) => {
                let detail = match error {
                    KeyError::TooLong { bytes, limit, .. } => format!("The key has {bytes} bytes, {limit} are taken."),
                    _ => "The key is empty: each new request needs one of its own.".to_owned(),
                };
                Self::new(Kind::InvalidKey).detail(detail)
            }
            Rejection::LeaseLost | Rejection::Unrecorded { .. } => {
                Self::new(Kind::Interrupted).retry_after(DEFAULT_RETRY_AFTER)
            }
            Rejection::Store(error) if error.is_worth_a_retry() => {
                Self::new(Kind::StoreUnavailable).retry_after(DEFAULT_RETRY_AFTER)
            }
            other => {
                tracing::error!(target: "idempotent", error = %other, "a request cannot be handled");
                Self::new(Kind::Misconfigured)
            }
        }
    }
}
