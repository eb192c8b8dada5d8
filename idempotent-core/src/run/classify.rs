//! The classification of a handler's answer: done, not done, or failed.
use std::borrow::Cow;
use std::sync::Arc;

use super::report::Report;
use crate::executor::Handler;
use crate::panic_guard::catch_panic;
use crate::policy::ResolvedPolicy;
use crate::{Codec, Event, HandlerEnd, HandlerOutcome, ReplyStrategy, codec};

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

/// The recorded text of an error whose description panicked.
const UNDESCRIBED: Cow<'static, str> = Cow::Borrowed("the description of the error panicked");

/// Classifies an answer. The rules are user code that runs after the effect: a rule that panics counts as not given.
pub(crate) fn classify<P, C, R>(
    reply: HandlerOutcome<P::Value, P::Failure>,
    rules: &Handler<P, C, R, ()>,
    policy: &ResolvedPolicy,
    report: &mut Report<'_>,
) -> Classified<P::Value, P::Failure>
where
    P: ReplyStrategy<R>,
    C: Codec<P::Value>,
{
    let holds = |hook, rule: &dyn Fn() -> bool| catch_panic(hook, rule).unwrap_or_default();
    let describe = |failure: &_| catch_panic("describe", || rules.description(failure)).unwrap_or(UNDESCRIBED);
    let classified = match reply {
        HandlerOutcome::Value(value) if holds("failed_if", &|| (rules.failed_if)(&value)) => Classified::NotDone(value),
        HandlerOutcome::Value(value) => {
            let stored_value = encode_result::<P, C, R>(&value, policy, report);
            Classified::Done(value, stored_value)
        }
        HandlerOutcome::Transient(failure) => {
            let is_permanent = holds("permanent", &|| (rules.permanent)(&failure));
            let decision = if is_permanent { RetryDecision::GiveUp } else { RetryDecision::Retry };
            let error = describe(&failure);
            Classified::Failed(failure, decision, error)
        }
        HandlerOutcome::Permanent(failure) => {
            let error = describe(&failure);
            Classified::Failed(failure, RetryDecision::GiveUp, error)
        }
    };
    report.handler_ended(match classified {
        Classified::Done(..) => HandlerEnd::Ok,
        Classified::NotDone(_) | Classified::Failed(..) => HandlerEnd::Error,
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
    match codec::encode::<C, _>(value) {
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
