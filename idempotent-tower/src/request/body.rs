//! The request body that the inner service receives.
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::buffered_body::Whole;

pin_project! {
    /// The body of a request behind an [`IdempotencyLayer`](crate::IdempotencyLayer): in memory and whole, with its
    /// trailers, where the layer handles the request; the one that came in, untouched, where it passes.
    ///
    /// Services that take any body take this one: axum's routers, tonic's servers, most of tower-http's layers. For one
    /// that takes a single type, map it: `request.map(axum::body::Body::new)`.
    pub struct RequestBody<B> {
        #[pin]
        inner: Coming<B>,
    }
}

pin_project! {
    #[project = ProjectedComing]
    enum Coming<B> {
        Whole { whole: Whole },
        Passing { #[pin] body: B },
    }
}

impl<B> RequestBody<B> {
    /// One that passes. The layer makes its own; tests of the service behind it need this.
    pub fn new(body: B) -> Self {
        Self { inner: Coming::Passing { body } }
    }

    pub(crate) fn whole(whole: Whole) -> Self {
        Self { inner: Coming::Whole { whole } }
    }
}

impl<B: Body<Data = Bytes>> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().inner.project() {
            ProjectedComing::Whole { whole } => Poll::Ready(whole.next().map(Ok)),
            ProjectedComing::Passing { body } => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Coming::Whole { whole } => whole.is_over(),
            Coming::Passing { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Coming::Whole { whole } => whole.size_hint(),
            Coming::Passing { body } => body.size_hint(),
        }
    }
}

impl<B> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.inner {
            Coming::Whole { .. } => "RequestBody(whole)",
            Coming::Passing { .. } => "RequestBody(passing)",
        })
    }
}
