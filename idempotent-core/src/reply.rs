//! What a handler's answer means, and how a duplicate is told in the same type.
use std::borrow::Cow;
use std::future::{Future, ready};

use crate::{Disposition, Outcome, Policy, Rejection};

/// What the wrapped handler returns where the handler returns `R`.
pub trait Reshapes {
    /// `R` itself for most strategies; a response type for a web framework's.
    type Output<R>;

    /// The handler as the attribute hands it on. A strategy with an associated function of this name, which goes before
    /// this one, may give all answers one type first: rustc cannot see that a future is `Send` where it names a type
    /// that meets a bound for `'static` only, as `&'static str` meets axum's.
    #[doc(hidden)]
    fn unified<R, F, Fut>(run: F) -> F
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = R>,
    {
        run
    }
}

/// A strategy that takes an `R` apart and puts the caller's answer together.
#[diagnostic::on_unimplemented(
    message = "an idempotent handler cannot return `{R}`",
    label = "no reply strategy covers this",
    note = "return `Result<T, E>` where `E: From<idempotent::Rejection>`, or `Disposition`, or name a strategy that \
            knows the type: `reply = idempotent::Http` (feature `axum`) for what axum answers with, or one of your own"
)]
pub trait Replies<R>: Reshapes {
    /// Kept for replay.
    type Value;
    /// Never kept.
    type Failure;

    /// Takes the answer apart; waits where it is a stream.
    ///
    /// # Cancellation
    /// Dropped with the run.
    fn split(reply: R) -> impl Future<Output = Split<Self::Value, Self::Failure>>;

    /// The caller's answer to a run that went well.
    fn value(value: Self::Value) -> Self::Output<R>;

    /// A duplicate's answer.
    fn replayed(value: Self::Value) -> Self::Output<R>;

    /// The caller's answer to a run that failed.
    fn failure(failure: Self::Failure) -> Self::Output<R>;

    /// The caller's answer to a run that went well and could not be recorded: its lease was lost, or the store took no
    /// note of it. A message must be told so, since it is to come again; whoever waits for an answer may be better off
    /// with the one there is.
    ///
    /// # Errors
    /// Gives the rejection back, to be told in its place.
    ///
    /// # Default
    /// The rejection
    fn unrecorded(value: Self::Value, rejection: Rejection) -> Result<Self::Output<R>, Rejection> {
        let _ = value;
        Err(rejection)
    }

    /// Where neither the call nor the executor says something: what this strategy needs. One whose values have a limit of
    /// their own needs room for them, for example.
    ///
    /// # Default
    /// Nothing
    #[must_use]
    fn policy() -> Option<Policy> {
        None
    }

    /// What is recorded of a failure and told to duplicates of a failed or dead key.
    ///
    /// # Default
    /// The name of its type: an error's text may carry a payload.
    #[must_use]
    fn describe(failure: &Self::Failure) -> Cow<'static, str> {
        let _ = failure;
        format!("an error of type `{}`, its text is not kept", std::any::type_name::<Self::Failure>()).into()
    }
}

/// A strategy that can also say no; `reject = fn` stands in where it cannot.
#[diagnostic::on_unimplemented(
    message = "an idempotent handler cannot return `{R}`: a rejection cannot be told as one",
    label = "duplicates and refusals need an answer of this type",
    note = "return `Result<T, E>` where `E: From<idempotent::Rejection>` (anyhow::Error is one), or `Disposition`, or \
            say `reject = |rejection| …`, or name a strategy that knows the type: `reply = Http` for what axum \
            answers with, or one of your own"
)]
pub trait Rejects<R>: Replies<R> {
    /// The answer to a caller whose handler did not run, or whose run does not count.
    fn rejected(rejection: Rejection) -> Self::Output<R>;
}

/// An answer taken apart.
#[derive(Clone, Debug)]
pub enum Split<V, F> {
    /// Done, with this.
    Value(V),
    /// Worth another run.
    Transient(F),
    /// Not worth one.
    Permanent(F),
}

/// `Result<T, E>` and [`Disposition`] as they are; the default.
#[derive(Clone, Copy, Debug)]
pub struct Auto;

impl Reshapes for Auto {
    type Output<R> = R;
}

impl<T, E> Replies<Result<T, E>> for Auto {
    type Value = T;
    type Failure = E;

    fn split(reply: Result<T, E>) -> impl Future<Output = Split<T, E>> {
        ready(reply.map_or_else(Split::Transient, Split::Value))
    }

    fn value(value: T) -> Result<T, E> {
        Ok(value)
    }

    fn replayed(value: T) -> Result<T, E> {
        Ok(value)
    }

    fn failure(failure: E) -> Result<T, E> {
        Err(failure)
    }
}

#[diagnostic::do_not_recommend] // say what the trait says, not `E: From` alone
impl<T, E: From<Rejection>> Rejects<Result<T, E>> for Auto {
    fn rejected(rejection: Rejection) -> Result<T, E> {
        Err(rejection.into())
    }
}

impl Replies<Disposition> for Auto {
    type Value = ();
    type Failure = Disposition;

    fn split(reply: Disposition) -> impl Future<Output = Split<(), Disposition>> {
        ready(match reply {
            Disposition::Ack => Split::Value(()),
            Disposition::DeadLetter { .. } => Split::Permanent(reply),
            Disposition::Retry { .. } => Split::Transient(reply),
        })
    }

    fn value((): ()) -> Disposition {
        Disposition::Ack
    }

    fn replayed((): ()) -> Disposition {
        Disposition::Ack
    }

    fn failure(failure: Disposition) -> Disposition {
        failure
    }

    /// The reason of a dead letter is the handler's own words.
    fn describe(failure: &Disposition) -> Cow<'static, str> {
        match failure {
            Disposition::DeadLetter { reason } => reason.clone(),
            _ => "the handler asked for a retry".into(),
        }
    }
}

impl Rejects<Disposition> for Auto {
    fn rejected(rejection: Rejection) -> Disposition {
        match Outcome::of(&rejection).disposition() {
            Disposition::DeadLetter { .. } => Disposition::DeadLetter { reason: rejection.to_string().into() },
            other => other,
        }
    }
}
