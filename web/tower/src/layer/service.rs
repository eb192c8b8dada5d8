//! The layer's tower service, which handles a request or passes it through.
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::layer::config::LayerConfig;
use crate::{RequestBody, ResponseBody};

/// A service inside an [`IdempotencyLayer`](crate::IdempotencyLayer). It accepts requests whose body yields [`Bytes`],
/// including the `Incoming` body of hyper. The inner service receives a [`RequestBody`].
#[derive(Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    config: Arc<LayerConfig>,
}

impl<S> IdempotencyService<S> {
    pub(crate) fn new(inner: S, config: Arc<LayerConfig>) -> Self {
        Self { inner, config }
    }
}

impl<S: fmt::Debug> fmt::Debug for IdempotencyService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

pub(crate) type ServiceResult<R, E> = Result<Response<ResponseBody<R>>, E>;

pin_project! {
    /// The future of a response.
    ///
    /// # Cancellation
    /// Dropping the future before the request body has arrived has no effect on the store, nor does dropping it while
    /// it waits for a run in flight. After that the request continues in its own task, unless
    /// [`cancel_on_disconnect`](crate::IdempotencyLayer::cancel_on_disconnect) is set.
    pub struct ResponseFuture<F, R: Body, E> {
        #[pin]
        state: ResponseState<F, R, E>,
    }
}

pin_project! {
    #[project = ProjectedState]
    enum ResponseState<F, R: Body, E> {
        Passing { #[pin] inner: F },
        Handled { handled: Pin<Box<dyn Future<Output = ServiceResult<R, E>> + Send>> },
    }
}

impl<F, R, E> Future for ResponseFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = ServiceResult<R, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            ProjectedState::Passing { inner } => {
                inner.poll(cx).map(|answered| answered.map(|response| response.map(ResponseBody::passing)))
            }
            ProjectedState::Handled { handled } => handled.as_mut().poll(cx),
        }
    }
}

impl<F, R: Body, E> fmt::Debug for ResponseFuture<F, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture")
    }
}

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>, Future: Send, Error: Send + 'static>
        + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    R: Body<Data = Bytes, Error: Send> + Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        if self.config.bypasses(&parts) {
            let inner = self.inner.call(Request::from_parts(parts, RequestBody::new(body)));
            return ResponseFuture { state: ResponseState::Passing { inner } };
        }
        idempotent_core::__private::warn_without_subscriber();
        // `poll_ready` applies to this service and not to its clone, so the clone stays for the next request.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let handled = Box::pin(self.config.clone().handle(Box::new((inner, parts)), body));
        ResponseFuture { state: ResponseState::Handled { handled } }
    }
}
