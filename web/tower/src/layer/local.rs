//! The layer for servers whose requests stay on one thread.
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::layer::config::LayerConfig;
use crate::layer::handle::{RefusedRequest, buffered_response};
use crate::request::unread_body::BodyDiscard;
use crate::{IdempotencyLayer, RequestBody, ResponseBody};

/// The route template of a request, in its extensions, such as `/orders/{id}`.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct RouteTemplate(pub String);

/// The decisions of an [`IdempotencyLayer`] for services that are not `Send`. A handler continues without its client in a
/// task of the current thread.
#[doc(hidden)]
#[derive(Clone)]
pub struct LocalLayer(Arc<LayerConfig>);

impl LocalLayer {
    #[must_use]
    pub fn new(layer: &IdempotencyLayer) -> Self {
        Self(Arc::new(layer.config.prepared()))
    }

    /// Returns whether all requests with this method pass through untouched. Other requests may pass through as well.
    #[must_use]
    pub fn bypasses_method(&self, method: &Method) -> bool {
        !self.0.methods.is_empty() && !self.0.methods.contains(method)
    }

    /// Returns whether the request passes through untouched.
    #[must_use]
    pub fn bypasses(&self, parts: &Parts) -> bool {
        self.0.bypasses(parts)
    }

    /// Handles a request that does not pass through untouched. The server closes a connection whose request was not read.
    ///
    /// # Errors
    /// The error of the service.
    ///
    /// # Panics
    /// Outside of a `LocalSet`, if the run does not complete at once.
    ///
    /// # Cancellation
    /// Dropping the returned future has the effects that [`ResponseFuture`](crate::ResponseFuture) documents.
    pub async fn handle<S, B, R>(self, inner: S, request: Request<B>) -> Result<Response<ResponseBody<R>>, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>, Error: 'static> + 'static,
        B: Body<Data = Bytes> + 'static,
        R: Body<Data = Bytes> + 'static,
    {
        let Self(config) = self;
        idempotent_core::__private::warn_without_subscriber();
        let (parts, body) = request.into_parts();
        let taken = Box::new((inner, parts));
        let (call, body) = match config.prepare_call(&taken.1, body).await {
            Ok(prepared) => prepared,
            Err(RefusedRequest { response, unread }) => {
                if let Some(unread) = unread {
                    discard_arrived(unread).await;
                }
                return Ok(response.map(buffered_response));
            }
        };
        let Some(call) = call else { return config.pass(taken, body).await };
        let (begun, languages, run) = config.begin(taken, call, body);
        let result = if config.detached { begun.detached_locally(run).await } else { run.await };
        config.finish(result, &languages).await
    }
}

/// Discards the part of a body that has arrived. A server may hand it over only after the first poll.
async fn discard_arrived<B: Body<Data = Bytes>>(mut unread: BodyDiscard<B>) {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if Pin::new(&mut unread).poll(cx).is_ready() || std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl std::fmt::Debug for LocalLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LocalLayer")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::convert::Infallible;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use http_body::Frame;
    use idempotent_core::SystemClock;

    use super::*;
    use crate::request::unread_body::UnreadBody;

    /// A body of which nothing arrives.
    struct PendingBody;

    impl Body for PendingBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn a_body_that_does_not_arrive_is_not_awaited() {
        let (parts, ()) = Request::new(()).into_parts();
        let unread = UnreadBody::unread(PendingBody);
        let unread = unread.discard_after(&mut Response::new(()), &parts, 0, &SystemClock::new()).unwrap();
        let (mut discard, mut context) = (pin!(discard_arrived(unread)), Context::from_waker(Waker::noop()));
        assert!(discard.as_mut().poll(&mut context).is_pending());
        assert!(discard.as_mut().poll(&mut context).is_ready());
    }
}
