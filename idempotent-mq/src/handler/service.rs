//! Tower services as handlers.
use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};

use futures_util::future::BoxFuture;
use tower_service::Service;

use crate::Message;

/// Converts a tower service into a handler for [`KeyedMessages::run`](crate::KeyedMessages::run),
/// [`Messages::annotated`](crate::Messages::annotated) or [`Messages::unprotected`](crate::Messages::unprotected).
///
/// Each message gets a clone of the service, and waits until the clone is ready. A service that sheds load by an error costs
/// the message an attempt. A service that waits occupies one of the consumer's concurrent handlers.
pub fn service<S, T>(
    service: S,
) -> impl Fn(Message<T>) -> BoxFuture<'static, Result<S::Response, S::Error>> + Send + Sync + 'static
where
    S: Service<Message<T>, Future: Send> + Clone + Send + 'static,
    S::Error: Send,
    T: Send + 'static,
{
    // Many services are `Clone + Send`, but not `Sync`.
    let service = Mutex::new(service);
    move |message| {
        let mut own = service.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move {
            poll_fn(|cx| own.poll_ready(cx)).await?;
            let answer = own.call(message);
            drop(own);
            answer.await
        })
    }
}
