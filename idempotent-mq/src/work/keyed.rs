//! Handlers that the consumer makes idempotent.
use std::future::{Future, ready};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use idempotent_core::{
    Call, Fingerprint, Handler, HandlerOutcome, Identity, Json, KeyError, OnInFlight, Outcome, Policy, RejectStrategy,
    Rejection, ReplyStrategy, ResponseShape,
};

use super::annotated::alone;
use super::{Begun, Desk, Ended, Prepared, Reading, Unfit, Work, guarded};
use crate::{Delivery, HandlerResult, IntoHandlerResult, KeyFrom, Message};

/// A handler with the key that its messages are told apart by.
pub(crate) struct Claiming<T, F> {
    pub(crate) reading: Reading<T>,
    pub(crate) naming: Naming<T>,
    pub(crate) handler: Arc<F>,
}

/// What a message is called, and how it is to be treated.
pub(crate) struct Naming<T> {
    pub(crate) key: KeyFrom<T>,
    pub(crate) policy: Policy,
    pub(crate) fingerprint: bool,
}

impl<T, F, Fut> Work for Claiming<T, F>
where
    T: Send + 'static,
    F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoHandlerResult> + Send + 'static,
{
    fn prepare(&self, desk: &Desk, delivery: Arc<Delivery>) -> Result<Prepared, Unfit> {
        let (message, lane) = self.reading.read(desk, delivery)?;
        let call = guarded(|| {
            let (identity, call) = self.naming.call(desk, &message);
            Ok((!self.naming.key.or_unprotected || !is_missing(&identity, desk)).then_some(call))
        })?;
        let (handler, executor) = (self.handler.clone(), desk.executor.clone());
        let run = move |begun: Begun| {
            let handled = async move { handler(message).await.into_handler_result() };
            match call {
                Some(call) => claimed(executor, call, begun, handled).boxed(),
                None => async move {
                    begun.set();
                    Ended { captured: None, verdict: alone(handled).await, rejection: None }
                }
                .boxed(),
            }
        };
        Ok(Prepared { lane, run: Box::new(run) })
    }

    fn policy(&self) -> Option<Policy> {
        Some(self.naming.policy)
    }

    fn for_one_consumer(self: Arc<Self>) -> Arc<dyn Work> {
        self
    }
}

impl<T> Naming<T> {
    pub(super) fn call(&self, desk: &Desk, message: &Message<T>) -> (Identity, Call) {
        let identity = desk.identity(&self.key, message);
        let policy = match self.policy.acks_in_flight() {
            // The consumer does that, where it may.
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

fn is_missing(identity: &Identity, desk: &Desk) -> bool {
    matches!(identity.key(desk.executor.namespace()), Err(KeyError::Empty { .. }))
}

async fn claimed(
    executor: idempotent_core::Executor,
    call: Call,
    begun: Begun,
    handled: impl Future<Output = HandlerResult> + Send,
) -> Ended {
    // Beside the run: whatever becomes of it, what the handler said is known.
    let said = Arc::new(Mutex::new(None));
    let says = said.clone();
    let handler = Handler::<ByVerdict, Json, _, _>::new(move || async move {
        begun.set_claimed();
        let verdict = handled.await;
        *says.lock().unwrap_or_else(PoisonError::into_inner) = Some(verdict.clone());
        Reply::Said(verdict)
    });
    // The executor frees the key of a handler that panics, then lets the panic go on.
    let mut rejection = None;
    let run = async {
        let reply = std::panic::AssertUnwindSafe(executor.run(call, handler)).catch_unwind().await;
        if let Ok(Reply::Rejected(text)) = &reply {
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
        // A duplicate of what is done, or a refusal, whose outcome then stands.
        None => HandlerResult::Done,
    };
    Ended { captured, verdict, rejection }
}

/// What a run answers with.
pub(super) enum Reply {
    Said(HandlerResult),
    Rejected(String),
}

/// Verdicts as answers: nothing is kept of one that is done.
pub(super) struct ByVerdict;

impl ResponseShape for ByVerdict {
    type Output<R> = R;
}

impl ReplyStrategy<Reply> for ByVerdict {
    type Value = ();
    type Failure = HandlerResult;

    fn split(reply: Reply) -> impl Future<Output = HandlerOutcome<(), HandlerResult>> {
        ready(match reply {
            Reply::Said(HandlerResult::Done) => HandlerOutcome::Value(()),
            Reply::Said(verdict @ HandlerResult::Never { .. }) => HandlerOutcome::Permanent(verdict),
            Reply::Said(verdict) => HandlerOutcome::Transient(verdict),
            Reply::Rejected(text) => {
                HandlerOutcome::Transient(HandlerResult::Again { after: None, error: text.into() })
            }
        })
    }

    fn value((): ()) -> Reply {
        Reply::Said(HandlerResult::Done)
    }

    fn replayed((): ()) -> Reply {
        Reply::Said(HandlerResult::Done)
    }

    fn failure(failure: HandlerResult) -> Reply {
        Reply::Said(failure)
    }

    fn describe(failure: &HandlerResult) -> std::borrow::Cow<'static, str> {
        match failure {
            HandlerResult::Again { error, .. } => error.clone(),
            HandlerResult::Never { reason } => reason.clone(),
            HandlerResult::Done => "done".into(),
        }
    }
}

impl RejectStrategy<Reply> for ByVerdict {
    fn rejected(rejection: Rejection) -> Reply {
        Reply::Rejected(rejection.to_string())
    }
}
