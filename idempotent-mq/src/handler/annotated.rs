//! Handlers that claim their own keys, or none.
use std::borrow::Cow;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use idempotent_core::__private::capture_delivery;
use idempotent_core::Policy;
use tracing::warn;

use super::{ConsumerContext, DeliveryHandler, HandlerEnd, MessageDecoder, PreparedRun, RunProgress, UnusableDelivery};
use crate::{Delivery, HandlerResult, IntoHandlerResult, Message};

/// The warning for a handler without a claim. Logged once per handler.
const FORGOTTEN: &str = "a handler passed to `annotated` claimed no key, and its message was acknowledged: annotate the called \
                         function with `#[idempotent]`, and call it in the handler itself or through `Executor::detach`, not \
                         `tokio::spawn`. If all messages may run twice, use `unprotected`";

/// A handler that calls annotated functions, or an unprotected one.
pub(crate) struct AnnotatedHandler<T, F> {
    pub(crate) reading: MessageDecoder<T>,
    pub(crate) handler: Arc<F>,
    /// True once the warning about a missing claim was logged. `None` for an unprotected handler.
    pub(crate) told: Option<Arc<AtomicBool>>,
}

impl<T, F, Fut> DeliveryHandler for AnnotatedHandler<T, F>
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
        let attempt = delivery.attempt;
        let (message, lane) = self.reading.read(context, delivery)?;
        let (handler, executor) = (self.handler.clone(), context.executor.clone());
        let known = match attempt {
            Some(attempt) => context.known.clone().attempt(attempt),
            None => context.known.clone(),
        };
        let (told, group) = (self.told.clone(), context.group.clone());
        let run = async move {
            // The consumer cannot see when the handler claims a key.
            progress.begin();
            // Boxed, so that a delivery that waits for its turn has no room for the handler, and a run has it once.
            let handled = alone(Box::pin(async move { handler(message).await.into_handler_result() }));
            let (verdict, captured) = capture_delivery(executor, known, progress, handled).await;
            if captured.is_none()
                && matches!(verdict, HandlerResult::Done)
                && told.is_some_and(|told| !told.swap(true, Ordering::Relaxed))
            {
                warn!(target: "idempotent", group = &*group, "{FORGOTTEN}");
            }
            HandlerEnd { captured, verdict, rejection: None }
        };
        Ok(PreparedRun { lane, run: run.boxed() })
    }

    /// Returns `None`: the policy of the attribute is unknown until the function runs.
    fn policy(&self) -> Option<Policy> {
        None
    }

    fn for_one_consumer(self: Arc<Self>) -> Arc<dyn DeliveryHandler> {
        self
    }
}

/// Runs the handler. A panic fails this message, but not the consumer.
pub(crate) async fn alone(handled: impl Future<Output = HandlerResult>) -> HandlerResult {
    AssertUnwindSafe(handled)
        .catch_unwind()
        .await
        .unwrap_or(HandlerResult::Again { after: None, error: Cow::Borrowed("the handler panicked") })
}
