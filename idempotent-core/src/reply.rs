//! Reply strategies: the classification of a handler's answer, and the answers to duplicates.
use std::borrow::Cow;
use std::future::{Future, ready};

use crate::{Disposition, Outcome, Policy, Rejection};

/// The return type of the wrapped handler, for a handler that returns `R`.
pub trait ResponseShape {
    /// The return type: `R` itself for most strategies, a response type for those of web frameworks.
    type Output<R>;

    /// Adapts the handler that the attribute passes on.
    ///
    /// A strategy may shadow this function with an associated function of the same name that converts all answers to
    /// one type. rustc cannot see that a future is `Send` if the future names a type that meets a bound for `'static`
    /// only, as `&'static str` does for axum's traits.
    #[doc(hidden)]
    fn unified<R, F, Fut>(run: F) -> F
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = R>,
    {
        run
    }
}

/// A strategy that classifies an `R` and builds the caller's answer.
#[diagnostic::on_unimplemented(
    message = "an idempotent handler cannot return `{R}`",
    label = "no reply strategy supports this type",
    note = "return `Result<T, E>` where `E: From<idempotent::Rejection>`, or `Disposition`, or set a reply strategy \
            for the type: `reply = idempotent::Http` (feature `axum`) for the responses of axum, or one of your own"
)]
pub trait ReplyStrategy<R>: ResponseShape {
    /// The part of an answer that is kept for replay.
    type Value;
    /// The part of an answer that is never kept.
    type Failure;

    /// Classifies the answer. Waits for the end of a streamed answer.
    ///
    /// # Cancellation
    /// The returned future is dropped with the run.
    fn split(reply: R) -> impl Future<Output = HandlerOutcome<Self::Value, Self::Failure>>;

    /// Builds the caller's answer to a run that succeeded.
    fn value(value: Self::Value) -> Self::Output<R>;

    /// Builds the answer to a duplicate.
    fn replayed(value: Self::Value) -> Self::Output<R>;

    /// Builds the caller's answer to a run that failed.
    fn failure(failure: Self::Failure) -> Self::Output<R>;

    /// Builds the caller's answer to a run that succeeded but was not recorded, because its lease was lost or the store
    /// failed.
    ///
    /// A message must be redelivered, so its handler has to return the rejection. A client that waits for a response
    /// may prefer the value.
    ///
    /// # Errors
    /// Returns the rejection to use it as the answer.
    ///
    /// # Default
    /// Returns the rejection.
    fn unrecorded(value: Self::Value, rejection: Rejection) -> Result<Self::Output<R>, Rejection> {
        let _ = value;
        Err(rejection)
    }

    /// Returns settings that this strategy needs, for calls and executors that do not set them. An example is
    /// `max_result` for a strategy with a limit of its own.
    ///
    /// # Default
    /// `None`
    #[must_use]
    fn policy() -> Option<Policy> {
        None
    }

    /// Returns the error text that is recorded for a failure and shown to duplicates of a failed or dead key.
    ///
    /// # Default
    /// The name of the failure's type, because an error's text may contain a payload.
    #[must_use]
    fn describe(failure: &Self::Failure) -> Cow<'static, str> {
        let _ = failure;
        format!("an error of type `{}`, its text is not kept", std::any::type_name::<Self::Failure>()).into()
    }
}

/// A strategy that can also answer with a rejection. `reject = fn` replaces this trait for types that cannot.
#[diagnostic::on_unimplemented(
    message = "an idempotent handler cannot return `{R}`: this type cannot represent a rejection",
    label = "a rejected duplicate needs a value of this type",
    note = "return `Result<T, E>` where `E: From<idempotent::Rejection>` (anyhow::Error is one), or `Disposition`, or \
            set `reject = |rejection| …`, or set a reply strategy for the type: `reply = Http` for the responses \
            of axum, or one of your own"
)]
pub trait RejectStrategy<R>: ReplyStrategy<R> {
    /// Builds the answer to a caller whose handler did not run, or whose run does not count.
    fn rejected(rejection: Rejection) -> Self::Output<R>;
}

/// A classified answer. Complete by definition: a run succeeds, fails for now, or fails permanently.
#[derive(Clone, Debug)]
pub enum HandlerOutcome<V, F> {
    /// The run succeeded with this value.
    Value(V),
    /// The run failed, and a retry may succeed.
    Transient(F),
    /// The run failed, and a retry is useless.
    Permanent(F),
}

/// The default strategy: returns `Result<T, E>` and [`Disposition`] unchanged.
#[derive(Clone, Copy, Debug)]
pub struct DefaultReply;

impl ResponseShape for DefaultReply {
    type Output<R> = R;
}

impl<T, E> ReplyStrategy<Result<T, E>> for DefaultReply {
    type Value = T;
    type Failure = E;

    fn split(reply: Result<T, E>) -> impl Future<Output = HandlerOutcome<T, E>> {
        ready(reply.map_or_else(HandlerOutcome::Transient, HandlerOutcome::Value))
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
impl<T, E: From<Rejection>> RejectStrategy<Result<T, E>> for DefaultReply {
    fn rejected(rejection: Rejection) -> Result<T, E> {
        Err(rejection.into())
    }
}

impl ReplyStrategy<Disposition> for DefaultReply {
    type Value = ();
    type Failure = Disposition;

    fn split(reply: Disposition) -> impl Future<Output = HandlerOutcome<(), Disposition>> {
        ready(match reply {
            Disposition::Ack => HandlerOutcome::Value(()),
            Disposition::DeadLetter { .. } => HandlerOutcome::Permanent(reply),
            Disposition::Retry { .. } => HandlerOutcome::Transient(reply),
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

    /// Returns the reason of a dead letter, which is the handler's own text.
    fn describe(failure: &Disposition) -> Cow<'static, str> {
        match failure {
            Disposition::DeadLetter { reason } => reason.clone(),
            _ => "the handler asked for a retry".into(),
        }
    }
}

impl RejectStrategy<Disposition> for DefaultReply {
    fn rejected(rejection: Rejection) -> Disposition {
        match Outcome::of(&rejection).disposition() {
            Disposition::DeadLetter { .. } => Disposition::DeadLetter { reason: rejection.to_string().into() },
            other => other,
        }
    }
}
