//! What a handler's return value asks for.
use std::borrow::Cow;
use std::time::Duration;

use idempotent_core::Disposition;

/// A return value of a handler, as a verdict on its message.
///
/// `()` says that the message is done; a [`Disposition`] or a [`HandlerResult`] says it in full. `Ok` of such a value says what the
/// value says, and `Err` that the message is worth another attempt, so a handler can use `?` and still return a verdict:
///
/// ```
/// # use idempotent_mq::{IntoHandlerResult, HandlerResult};
/// fn settle(unknown_account: bool) -> Result<HandlerResult, std::num::ParseIntError> {
///     let _amount: u32 = "17".parse()?;
///     Ok(if unknown_account { HandlerResult::Never { reason: "no such account".into() } } else { HandlerResult::Done })
/// }
/// assert_eq!(settle(true).into_handler_result(), HandlerResult::Never { reason: "no such account".into() });
/// ```
///
/// Other values are no answer, since nothing reads what a message handler returns: drop them with `.map(drop)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how to settle the message",
    label = "a message handler cannot return this value, on its own or within `Ok`",
    note = "return `Result<(), E>`, a `Disposition`, a `HandlerResult`, or a `Result` of one of these",
    note = "a value that nothing reads can be dropped: `result.map(drop)`"
)]
pub trait IntoHandlerResult {
    /// What it asks for.
    fn into_handler_result(self) -> HandlerResult;
}

/// What a handler's return value asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum HandlerResult {
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

impl IntoHandlerResult for () {
    fn into_handler_result(self) -> HandlerResult {
        HandlerResult::Done
    }
}

impl IntoHandlerResult for HandlerResult {
    fn into_handler_result(self) -> HandlerResult {
        self
    }
}

/// An error's text may carry a payload, so it is not kept; its type is.
impl<T: IntoHandlerResult, E> IntoHandlerResult for Result<T, E> {
    fn into_handler_result(self) -> HandlerResult {
        match self {
            Ok(answer) => answer.into_handler_result(),
            Err(_) => {
                let error = format!("an error of type `{}`, its text is not kept", std::any::type_name::<E>());
                HandlerResult::Again { after: None, error: error.into() }
            }
        }
    }
}

impl IntoHandlerResult for Disposition {
    fn into_handler_result(self) -> HandlerResult {
        match self {
            Self::Ack => HandlerResult::Done,
            Self::Retry { after } => {
                HandlerResult::Again { after: Some(after), error: Cow::Borrowed("the handler asked for a retry") }
            }
            Self::DeadLetter { reason } => HandlerResult::Never { reason },
            // One that a later version adds is not known to be done.
            _ => HandlerResult::Again { after: None, error: Cow::Borrowed("the handler asked for something unknown") },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ok_says_what_its_value_says() {
        let again = || HandlerResult::Again { after: Some(Duration::from_secs(7)), error: "later".into() };
        let never = || HandlerResult::Never { reason: "no such account".into() };
        for verdict in [HandlerResult::Done, again(), never()] {
            assert_eq!(Ok::<_, ()>(verdict.clone()).into_handler_result(), verdict);
            assert_eq!(Ok::<_, ()>(Ok::<_, ()>(verdict.clone())).into_handler_result(), verdict);
        }
        assert_eq!(Ok::<_, ()>(()).into_handler_result(), HandlerResult::Done);
        let dead_letter = Disposition::DeadLetter { reason: "no such account".into() };
        assert_eq!(Ok::<_, ()>(dead_letter).into_handler_result(), never());
        assert_eq!(Disposition::Ack.into_handler_result(), HandlerResult::Done);
        assert!(matches!(Ok::<_, ()>(Err::<(), _>(5)).into_handler_result(), HandlerResult::Again { .. }));
        assert!(matches!(Err::<HandlerResult, _>(5).into_handler_result(), HandlerResult::Again { .. }));
    }
}
