//! The classification of a handler's answer: done, not done, or failed.
use std::any::Any;
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::report::Report;
use crate::executor::Handler;
use crate::policy::ResolvedPolicy;
use crate::{Codec, Event, HandlerEnd, HandlerOutcome, ReplyStrategy};

/// An answer, classified by the handler's rules.
pub(crate) enum Classified<V, F> {
    /// A successful result, with its encoded form if it is stored.
    Done(V, Option<Arc<[u8]>>),
    /// A value that means "not done".
    NotDone(V),
    /// An error, with the retry decision and the text to record.
    Failed(F, RetryDecision, Cow<'static, str>),
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum RetryDecision {
    Retry,
    GiveUp,
    /// The effect of another run is unknown, so the key is left to an operator.
    Park,
}

/// Classifies an answer. The rules are user code, so a panic in a rule is returned like a panic of the handler.
pub(crate) fn classify<P, C, R>(
    reply: HandlerOutcome<P::Value, P::Failure>,
    rules: &Handler<P, C, R, ()>,
    policy: &ResolvedPolicy,
    report: &mut Report<'_>,
) -> Result<Classified<P::Value, P::Failure>, Box<dyn Any + Send>>
where
    P: ReplyStrategy<R>,
    C: Codec<P::Value>,
{
    let classified = catch_unwind(AssertUnwindSafe(|| match reply {
        HandlerOutcome::Value(value) if (rules.failed_if)(&value) => Classified::NotDone(value),
        HandlerOutcome::Value(value) => {
            let stored_value = encode_result::<P, C, R>(&value, policy, report);
            Classified::Done(value, stored_value)
        }
        HandlerOutcome::Transient(failure) => {
            let decision = if (rules.permanent)(&failure) { RetryDecision::GiveUp } else { RetryDecision::Retry };
            let error = P::describe(&failure);
            Classified::Failed(failure, decision, error)
        }
        HandlerOutcome::Permanent(failure) => {
            let error = P::describe(&failure);
            Classified::Failed(failure, RetryDecision::GiveUp, error)
        }
    }));
    report.handler_ended(match classified {
        Ok(Classified::Done(..)) => HandlerEnd::Ok,
        Ok(Classified::NotDone(_) | Classified::Failed(..)) => HandlerEnd::Error,
        Err(_) => HandlerEnd::Panic,
    });
    classified
}

/// Encodes the value for storage. The run counts as done even if that fails or the codec panics: another run would
/// repeat an effect that has happened.
fn encode_result<P, C, R>(value: &P::Value, policy: &ResolvedPolicy, report: &Report) -> Option<Arc<[u8]>>
where
    P: ReplyStrategy<R>,
    C: Codec<P::Value>,
{
    let lost = |reason: &str| report.event(&Event::ResultNotKept { reason });
    let Ok(encoded) = catch_unwind(AssertUnwindSafe(|| C::encode(value))) else {
        lost("the codec panicked");
        return None;
    };
    match encoded {
        Ok(Some(bytes)) if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > policy.max_result => {
            lost(&format!("{} bytes, max_result is {}", bytes.len(), policy.max_result));
            None
        }
        Ok(bytes) => bytes.map(Arc::from),
        Err(error) => {
            lost(&error.to_string());
            None
        }
    }
}
