//! Handlers whose keys the consumer claims.
use std::future::{Future, ready};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use idempotent_core::{
    Call, Fingerprint, Handler, HandlerOutcome, Identity, Json, KeyError, OnInFlight, Outcome, Policy, RejectStrategy,
    Rejection, ReplyStrategy, ResponseShape,
};

use super::annotated::alone;
use super::{
    ConsumerContext, DeliveryHandler, HandlerEnd, MessageDecoder, PreparedRun, RunProgress, UnusableDelivery, admitted,
    guarded,
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
    fn prepare(&self, context: &ConsumerContext, delivery: Arc<Delivery>) -> Result<PreparedRun, UnusableDelivery> {
        let (message, lane) = self.reading.read(context, delivery)?;
        let call = guarded(|| {
            let (identity, call) = self.naming.call(context, &message);
            Ok((!self.naming.key.or_unprotected || !is_missing(&identity, context)).then_some(call))
        })?;
        let (handler, executor, admission) =
            (self.handler.clone(), context.executor.clone(), context.admission.clone());
        let run = move |begun: RunProgress| {
            let handled = async move { handler(message).await.into_handler_result() };
            match call {
                Some(call) => admitted(admission, claimed(executor, call, begun, handled)).boxed(),
                None => async move {
                    begun.set();
                    HandlerEnd { captured: None, verdict: alone(handled).await, rejection: None }
                }
                .boxed(),
            }
        };
        Ok(PreparedRun { lane, run: Box::new(run) })
    }

    fn policy(&self) -> Option<Policy> {
        Some(self.naming.policy)
    }

    fn for_one_consumer(self: Arc<Self>) -> Arc<dyn DeliveryHandler> {
        self
    }
}

impl<T> KeySettings<T> {
    pub(super) fn call(&self, context: &ConsumerContext, message: &Message<T>) -> (Identity, Call) {
        let identity = context.identity(&self.key, message);
        let policy = match self.policy.acks_in_flight() {
            // The consumer acknowledges these duplicates if its message log permits it.
            true => self.policy.on_in_flight(OnInFlight::Retry),
            false => self.policy,
        };
        let call = Call::new(identity.clone()).policy(policy);
        let call = match self.fingerprint {
            true => call.fingerprint(Ok(Fingerprint::of_bytes(&message.delivery.body))),
            false => call,
        };
        (identity, call)
    }
}

fn is_missing(identity: &Identity, context: &ConsumerContext) -> bool {
    matches!(identity.key(context.executor.namespace()), Err(KeyError::Empty { .. }))
}

async fn claimed(
    executor: idempotent_core::Executor,
    call: Call,
    begun: RunProgress,
    handled: impl Future<Output = HandlerResult> + Send,
) -> HandlerEnd {
    // Stored outside of the run, so that the result is known however the run ends.
    let said = Arc::new(Mutex::new(None));
    let says = said.clone();
    let handler = Handler::<ResultStrategy, Json, _, _>::new(move || async move {
        begun.set_claimed();
        let verdict = handled.await;
        *says.lock().unwrap_or_else(PoisonError::into_inner) = Some(verdict.clone());
        RunReply::Said(verdict)
    });
    // The executor frees the key of a handler that panics, and then resumes the panic.
    let mut rejection = None;
    let run = async {
        let reply = std::panic::AssertUnwindSafe(executor.run(call, handler)).catch_unwind().await;
        if let Ok(RunReply::Rejected(text)) = &reply {
            rejection = Some(text.clone());
        }
        reply.is_err()
    };
    let (panicked, captured) = Outcome::capture_run(run).await;
    let said = said.lock().unwrap_or_else(PoisonError::into_inner).take();
    let again = |error: &'static str| HandlerResult::Again { after: None, error: error.into() };
    let verdict = match said {
        Some(verdict) => verdict,
        None if panicked => again("the handler panicked"),
        // A duplicate of a consumed message, or a rejection: the outcome decides.
        None => HandlerResult::Done,
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
