//! What a handler's return value asks for.
use std::borrow::Cow;
use std::time::Duration;

use idempotent_core::Disposition;

/// What a handler returns, as a verdict on its message.
///
/// `Result<T, E>` is done or worth another attempt, whatever `T` and `E`; a [`Disposition`] or a [`Verdict`] says it in
/// full. Values are not kept: nobody reads what a message handler returned to a duplicate.
#[diagnostic::on_unimplemented(
    message = "a message handler cannot return `{Self}`",
    label = "does not say how to settle the message",
    note = "return a `Result`, a `Disposition` or a `Verdict`, or implement `Answer`"
)]
pub trait Answer {
    /// What it asks for.
    fn verdict(self) -> Verdict;
}

/// What a handler's return value asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// The message is done.
    Done,
    /// It is not, and is worth another attempt.
    Again {
        /// Not before; where the schedule's delay is longer, that stands.
        after: Option<Duration>,
        /// What is kept as the last error and may be shown to operators: nothing secret.
        error: Cow<'static, str>,
    },
    /// It is not, and never will be: to the dead letters.
    Never {
        /// Why.
        reason: Cow<'static, str>,
    },
}

impl Answer for Verdict {
    fn verdict(self) -> Verdict {
        self
    }
}

/// An error's text may carry a payload, so it is not kept; its type is.
impl<T, E> Answer for Result<T, E> {
    fn verdict(self) -> Verdict {
        match self {
            Ok(_) => Verdict::Done,
            Err(_) => {
                let error = format!("an error of type `{}`, its text is not kept", std::any::type_name::<E>());
                Verdict::Again { after: None, error: error.into() }
            }
        }
    }
}

impl Answer for Disposition {
    fn verdict(self) -> Verdict {
        match self {
            Self::Ack => Verdict::Done,
            Self::Retry { after } => {
                Verdict::Again { after: Some(after), error: Cow::Borrowed("the handler asked for a retry") }
            }
            Self::DeadLetter { reason } => Verdict::Never { reason },
            // One that a later version adds is not known to be done.
            _ => Verdict::Again { after: None, error: Cow::Borrowed("the handler asked for something unknown") },
        }
    }
}
