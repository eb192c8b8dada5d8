//! Handlers whose keys the consumer claims.
use std::future::{Future, ready};
use std::sync::Arc;
use std::thread;

use futures_util::FutureExt;
use idempotent_core::__private::run_delivery;
use idempotent_core::{
    Call, Fingerprint, Handler, HandlerOutcome, Identity, Json, KeyError, Lease, OnInFlight, Policy, RejectStrategy,
    Rejection, ReplyStrategy, ResponseShape, RunSummary,
};

use super::annotated::alone;
use super::{
    ConsumerContext, DeliveryHandler, HandlerEnd, MessageDecoder, PreparedRun, RunProgress, UnusableDelivery, guarded,
};
use crate::{Delivery, HandlerResult, IntoHandlerResult, KeyFrom, Message};

/// A handler with the key of its messages.
pub(crate) struct KeyedHandler<T, F> {
    pub(crate) reading: MessageDecoder<T>,
    pub(crate) naming: KeySettings<T>,
    pub(crate) handler: Arc<F>,
}

/// The key of messages and the policy of their runs.
pub(crate) struct KeySettings<T> {
    pub(crate) key: KeyFrom<T>,
    pub(crate) policy: Policy,
    pub(crate) fingerprint: bool,
}

impl<T, F, Fut> DeliveryHandler for KeyedHandler<T, F>
where
    T: Send + 'static,
    F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoHandlerResult> + Send + 'static,
{
    fn prepare(
        &self,
        context: &ConsumerContext,
        delivery: Arc<Delivery>,
        progress: Arc<dyn RunProgress>,
    ) -> Result<PreparedRun, UnusableDelivery> {
        let (message, lane) = self.reading.read(context, delivery)?;
        let call = guarded(|| {
            let identity = context.identity(&self.naming.key, &message);
            let runs_unprotected = self.naming.key.or_unprotected && is_missing(&identity, context);
            Ok((!runs_unprotected).then(|| self.naming.call(identity, &message)))
        })?;
        let (handler, executor) = (self.handler.clone(), context.executor.clone());
        let (claims, turns) = (context.claims.clone(), context.turns.clone());
        let run = match call {
            Some(call) => {
                let slot = progress.clone();
                // Closures and `map` in place of `async` blocks, which would store the message and the user's future twice.
                let handler = Handler::<ResultStrategy, Json, _, _>::new(move || {
                    match Lease::current() {
                        Some(_) => progress.begin_claimed(),
                        // The store is down, and the policy lets the handler run without a claim.
                        None => progress.begin(),
                    }
                    handler(message).map(|answer| RunReply::Said(answer.into_handler_result()))
                });
                run_delivery(executor, claims, slot, call, handler)
                    .map(|(reply, captured)| ended(reply, captured))
                    .boxed()
            }
            None => async move {
                let _turn = match turns {
                    Some(turns) => turns.acquire_owned().await.ok(),
                    None => None,
                };
                progress.begin();
                let handled = alone(Box::pin(async move { handler(message).await.into_handler_result() }));
                HandlerEnd { captured: None, verdict: handled.await, rejection: None }
            }
            .boxed(),
        };
        Ok(PreparedRun { lane, run })
    }

    fn policy(&self) -> Option<Policy> {
        Some(self.naming.policy)
    }

    fn claims_ahead(&self) -> bool {
        true
    }

    fn for_one_consumer(self: Arc<Self>) -> Arc<dyn DeliveryHandler> {
        self
    }
}

impl<T> KeySettings<T> {
    pub(super) fn call(&self, identity: Identity, message: &Message<T>) -> Call {
        let policy = match self.policy.acks_in_flight() {
            // The consumer acknowledges these duplicates if its message log permits it.
            true => self.policy.on_in_flight(OnInFlight::Retry),
            false => self.policy,
        };
        let call = Call::new(identity).policy(policy);
        match self.fingerprint {
            true => call.fingerprint(Ok(Fingerprint::of_bytes(&message.delivery.body))),
            false => call,
        }
    }
}

fn is_missing(identity: &Identity, context: &ConsumerContext) -> bool {
    matches!(identity.key(context.executor.namespace()), Err(KeyError::Empty { .. }))
}

/// Returns the end of a run whose key the consumer claimed.
fn ended(reply: thread::Result<RunReply>, captured: Option<RunSummary>) -> HandlerEnd {
    let (verdict, rejection) = match reply {
        Ok(RunReply::Said(verdict)) => (verdict, None),
        // The outcome decides.
        Ok(RunReply::Rejected(text)) => (HandlerResult::Done, Some(text)),
        Err(_) => (HandlerResult::Again { after: None, error: "the handler panicked".into() }, None),
    };
    HandlerEnd { captured, verdict, rejection }
}

/// The output of a run.
pub(super) enum RunReply {
    Said(HandlerResult),
    Rejected(String),
}

/// A reply strategy for handler results. A successful run stores no value.
pub(super) struct ResultStrategy;

impl ResponseShape for ResultStrategy {
    type Output<R> = R;
}

impl ReplyStrategy<RunReply> for ResultStrategy {
    type Value = ();
    type Failure = HandlerResult;

    fn split(reply: RunReply) -> impl Future<Output = HandlerOutcome<(), HandlerResult>> {
        ready(match reply {
            RunReply::Said(HandlerResult::Done) => HandlerOutcome::Value(()),
            RunReply::Said(verdict @ HandlerResult::Never { .. }) => HandlerOutcome::Permanent(verdict),
            RunReply::Said(verdict) => HandlerOutcome::Transient(verdict),
            RunReply::Rejected(text) => {
                HandlerOutcome::Transient(HandlerResult::Again { after: None, error: text.into() })
            }
        })
    }

    fn value((): ()) -> RunReply {
        RunReply::Said(HandlerResult::Done)
    }

    fn replayed((): ()) -> RunReply {
        RunReply::Said(HandlerResult::Done)
    }

    fn failure(failure: HandlerResult) -> RunReply {
        RunReply::Said(failure)
    }

    fn describe(failure: &HandlerResult) -> std::borrow::Cow<'static, str> {
        match failure {
            HandlerResult::Again { error, .. } => error.clone(),
            HandlerResult::Never { reason } => reason.clone(),
            HandlerResult::Done => "done".into(),
        }
    }
}

impl RejectStrategy<RunReply> for ResultStrategy {
    fn rejected(rejection: Rejection) -> RunReply {
        RunReply::Rejected(rejection.to_string())
    }
}
