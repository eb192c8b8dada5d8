//! Handlers that look after their keys themselves, or have none.
use std::borrow::Cow;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use idempotent_core::{Outcome, Policy};
use tracing::warn;

use super::{Begun, Desk, Ended, Prepared, Reading, Unfit, Work};
use crate::{Delivery, HandlerResult, IntoHandlerResult, Message};

/// Told once.
const FORGOTTEN: &str = "a handler passed to `annotated` claimed no key, and its message was acknowledged: annotate the called \
                         function with `#[idempotent]`, and call it in the handler itself or through `Executor::detach`, not \
                         `tokio::spawn`. If all messages may run twice, use `unprotected`";

/// A handler of annotated functions, or of none.
pub(crate) struct Calling<T, F> {
    pub(crate) reading: Reading<T>,
    pub(crate) handler: Arc<F>,
    /// Whether somebody was told that it claims no key; nothing where it is said to be unprotected.
    pub(crate) told: Option<Arc<AtomicBool>>,
}

impl<T, F, Fut> Work for Calling<T, F>
where
    T: Send + 'static,
    F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoHandlerResult> + Send + 'static,
{
    fn prepare(&self, desk: &Desk, delivery: Arc<Delivery>) -> Result<Prepared, Unfit> {
        let attempt = delivery.attempt;
        let (message, lane) = self.reading.read(desk, delivery)?;
        let (handler, executor, redelivery) = (self.handler.clone(), desk.executor.clone(), desk.redelivery.clone());
        let (told, group) = (self.told.clone(), desk.group.clone());
        let run = move |begun: Begun| {
            async move {
                // Where in it a key is claimed, and when, is not to be seen from here.
                begun.set();
                let handled = alone(async move { handler(message).await.into_handler_result() });
                let handled = Outcome::capture_run(handled);
                let handled = async {
                    match redelivery {
                        Some(redelivery) => executor.scope_of_delivery(redelivery, handled).await,
                        None => executor.scope(handled).await,
                    }
                };
                let (verdict, captured) = match attempt {
                    Some(attempt) => executor.scope_of_attempt(attempt, handled).await,
                    None => handled.await,
                };
                if captured.is_none()
                    && matches!(verdict, HandlerResult::Done)
                    && told.is_some_and(|told| !told.swap(true, Ordering::Relaxed))
                {
                    warn!(target: "idempotent", group = &*group, "{FORGOTTEN}");
                }
                Ended { captured, verdict, rejection: None }
            }
            .boxed()
        };
        Ok(Prepared { lane, run: Box::new(run) })
    }

    /// The attribute's, which nobody sees before it runs; the executor's is under it.
    fn policy(&self) -> Option<Policy> {
        None
    }

    fn for_one_consumer(self: Arc<Self>) -> Arc<dyn Work> {
        self
    }
}

/// A panic is a failure of this message, not of the consumer.
pub(crate) async fn alone(handled: impl Future<Output = HandlerResult>) -> HandlerResult {
    AssertUnwindSafe(handled)
        .catch_unwind()
        .await
        .unwrap_or(HandlerResult::Again { after: None, error: Cow::Borrowed("the handler panicked") })
}
