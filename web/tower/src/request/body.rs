//! The request body that the inner service receives.
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::buffered_body::BufferedBody;

pin_project! {
    /// The body of a request inside an [`IdempotencyLayer`](crate::IdempotencyLayer). If the layer handles the request,
    /// the body is in memory, with its trailers. Otherwise it is the original body.
    ///
    /// Services that accept any body accept this one, such as axum's routers, tonic's servers and most layers of
    /// tower-http. For a service that requires a specific type, map it: `request.map(axum::body::Body::new)`.
    pub struct RequestBody<B> {
        #[pin]
        inner: RequestBodyKind<B>,
    }
}

pin_project! {
    #[project = ProjectedRequestBody]
    enum RequestBodyKind<B> {
        Whole { whole: BufferedBody },
        Passing { #[pin] body: B },
    }
}

impl<B> RequestBody<B> {
    /// Creates a body that passes `body` through unchanged. The layer creates its own bodies; this constructor is for
    /// tests of an inner service.
    pub fn new(body: B) -> Self {
        Self { inner: RequestBodyKind::Passing { body } }
    }

    /// Creates a body from one in memory.
    pub(crate) fn whole(whole: BufferedBody) -> Self {
        Self { inner: RequestBodyKind::Whole { whole } }
    }
}

impl<B: Body<Data = Bytes>> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().inner.project() {
            ProjectedRequestBody::Whole { whole } => Poll::Ready(whole.next().map(Ok)),
            ProjectedRequestBody::Passing { body } => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            RequestBodyKind::Whole { whole } => whole.is_over(),
            RequestBodyKind::Passing { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            RequestBodyKind::Whole { whole } => whole.size_hint(),
            RequestBodyKind::Passing { body } => body.size_hint(),
        }
    }
}

impl<B> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.inner {
            RequestBodyKind::Whole { .. } => "RequestBody(whole)",
            RequestBodyKind::Passing { .. } => "RequestBody(passing)",
        })
    }
}
