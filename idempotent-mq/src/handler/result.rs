//! Results of message handlers.
use std::borrow::Cow;
use std::time::Duration;

use idempotent_core::Disposition;

/// A conversion from a return value of a handler to a [`HandlerResult`].
///
/// `()` means that the message is done. A [`Disposition`] and a [`HandlerResult`] have their own meaning, also within `Ok`. `Err`
/// means that the message is retried. A handler can therefore use `?` and still return a `HandlerResult`:
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
/// Other types are compile errors, because no code reads the value that a message handler returns. Drop such a value with
/// `.map(drop)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how to settle the message",
    label = "a message handler cannot return this value, on its own or within `Ok`",
    note = "return `Result<(), E>`, a `Disposition`, a `HandlerResult`, or a `Result` of one of these",
    note = "a value that nothing reads can be dropped: `result.map(drop)`"
)]
pub trait IntoHandlerResult {
    /// Converts the value.
    fn into_handler_result(self) -> HandlerResult;
}

/// The result of a message handler.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum HandlerResult {
    /// The message is done.
    Done,
    /// The message failed, and is retried.
    Again {
        /// The minimum delay. A longer delay of the schedule takes precedence.
        after: Option<Duration>,
        /// The text that is stored as the last error and shown to operators. Must not contain secrets.
        error: Cow<'static, str>,
    },
    /// The message failed permanently, and is dead-lettered.
    Never {
        /// The reason.
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

/// Stores the type of an error instead of its text, because the text may contain a payload.
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
            // A variant of a later version is not known to mean success.
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
