//! The layer as a tower service: what passes, and what is handled.
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

use crate::layer::config::Shared;
use crate::{RequestBody, ResponseBody};

/// A service behind an [`IdempotencyLayer`](crate::IdempotencyLayer). It takes requests of any body whose data is
/// [`Bytes`], hyper's `Incoming` too, and gives the inner service a [`RequestBody`].
#[derive(Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> IdempotencyService<S> {
    pub(crate) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

impl<S: fmt::Debug> fmt::Debug for IdempotencyService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

pub(crate) type Answered<R, E> = Result<Response<ResponseBody<R>>, E>;

pin_project! {
    /// The answer to come.
    ///
    /// # Cancellation
    /// Dropped before the request's body is in, or while it waits for a run in flight, nothing has happened. After that
    /// the request goes on in its own task, unless the layer says otherwise.
    pub struct ResponseFuture<F, R: Body, E> {
        #[pin]
        way: Way<F, R, E>,
    }
}

pin_project! {
    #[project = Projected]
    enum Way<F, R: Body, E> {
        Passing { #[pin] inner: F },
        Handled { handled: Pin<Box<dyn Future<Output = Answered<R, E>> + Send>> },
    }
}

impl<F, R, E> Future for ResponseFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body,
{
    type Output = Answered<R, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().way.project() {
            Projected::Passing { inner } => {
                inner.poll(cx).map(|answered| answered.map(|response| response.map(ResponseBody::passing)))
            }
            Projected::Handled { handled } => handled.as_mut().poll(cx),
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
        if self.shared.passes(&parts) {
            let inner = self.inner.call(Request::from_parts(parts, RequestBody::new(body)));
            return ResponseFuture { way: Way::Passing { inner } };
        }
        // The one that was asked whether it is ready goes; its clone waits for the next.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let handled = Box::pin(self.shared.clone().handle(Box::new((inner, parts)), body));
        ResponseFuture { way: Way::Handled { handled } }
    }
}
