//! What a handler's return value asks for.
use std::borrow::Cow;
use std::time::Duration;

use idempotent_core::Disposition;

/// A return value of a handler, as a verdict on its message.
///
/// `()` says that the message is done; a [`Disposition`] or a [`Verdict`] says it in full. `Ok` of such a value says what the
/// value says, and `Err` that the message is worth another attempt, so a handler can use `?` and still return a verdict:
///
/// ```
/// # use idempotent_mq::{Answer, Verdict};
/// fn settle(unknown_account: bool) -> Result<Verdict, std::num::ParseIntError> {
///     let _amount: u32 = "17".parse()?;
///     Ok(if unknown_account { Verdict::Never { reason: "no such account".into() } } else { Verdict::Done })
/// }
/// assert_eq!(settle(true).verdict(), Verdict::Never { reason: "no such account".into() });
/// ```
///
/// Other values are no answer, since nothing reads what a message handler returns: drop them with `.map(drop)`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how to settle the message",
    label = "a message handler cannot return this value, on its own or within `Ok`",
    note = "return `Result<(), E>`, a `Disposition`, a `Verdict`, or a `Result` of one of these",
    note = "a value that nothing reads can be dropped: `result.map(drop)`"
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

impl Answer for () {
    fn verdict(self) -> Verdict {
        Verdict::Done
    }
}

impl Answer for Verdict {
    fn verdict(self) -> Verdict {
        self
    }
}

/// An error's text may carry a payload, so it is not kept; its type is.
impl<T: Answer, E> Answer for Result<T, E> {
    fn verdict(self) -> Verdict {
        match self {
            Ok(answer) => answer.verdict(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ok_says_what_its_value_says() {
        let again = || Verdict::Again { after: Some(Duration::from_secs(7)), error: "later".into() };
        let never = || Verdict::Never { reason: "no such account".into() };
        for verdict in [Verdict::Done, again(), never()] {
            assert_eq!(Ok::<_, ()>(verdict.clone()).verdict(), verdict);
            assert_eq!(Ok::<_, ()>(Ok::<_, ()>(verdict.clone())).verdict(), verdict);
        }
        assert_eq!(Ok::<_, ()>(()).verdict(), Verdict::Done);
        let dead_letter = Disposition::DeadLetter { reason: "no such account".into() };
        assert_eq!(Ok::<_, ()>(dead_letter).verdict(), never());
        assert_eq!(Disposition::Ack.verdict(), Verdict::Done);
        assert!(matches!(Ok::<_, ()>(Err::<(), _>(5)).verdict(), Verdict::Again { .. }));
        assert!(matches!(Err::<Verdict, _>(5).verdict(), Verdict::Again { .. }));
    }
}
