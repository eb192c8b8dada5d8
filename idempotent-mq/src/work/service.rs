//! A tower service as a handler.
use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};

use futures_util::future::BoxFuture;
use tower_service::Service;

use crate::Message;

/// A tower service as a handler: for [`KeyedMessages::run`](crate::KeyedMessages::run),
/// [`Messages::annotated`](crate::Messages::annotated) and [`Messages::unprotected`](crate::Messages::unprotected). Each
/// message gets a clone, and waits until that is ready.
///
/// A service that sheds load by an error costs the message an attempt; one that waits costs it a place among those
/// that run.
pub fn service<S, T>(
    service: S,
) -> impl Fn(Message<T>) -> BoxFuture<'static, Result<S::Response, S::Error>> + Send + Sync + 'static
where
    S: Service<Message<T>, Future: Send> + Clone + Send + 'static,
    S::Error: Send,
    T: Send + 'static,
{
    // Many services may be cloned and sent, and not shared.
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
