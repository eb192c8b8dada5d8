//! Bodies that went through here: a request's on its way in, and an answer's on its way out.
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// A body that is all in memory, with the trailers that came behind it.
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    // On the heap: most bodies have none, and each would carry the room for them.
    pub(crate) trailers: Option<Box<HeaderMap>>,
}

impl Whole {
    pub(crate) fn new(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { bytes, trailers: trailers.map(Box::new) }
    }

    fn next(&mut self) -> Option<Frame<Bytes>> {
        match std::mem::take(&mut self.bytes) {
            bytes if !bytes.is_empty() => Some(Frame::data(bytes)),
            _ => self.trailers.take().map(|trailers| Frame::trailers(*trailers)),
        }
    }

    fn is_over(&self) -> bool {
        self.bytes.is_empty() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.bytes.len() as u64;
        match self.trailers {
            None => SizeHint::with_exact(length),
            // HTTP/1.1 has no place for trailers behind a body of known length.
            Some(_) => {
                let mut hint = SizeHint::new();
                hint.set_lower(length);
                hint
            }
        }
    }
}

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

pin_project! {
    /// The handler's own body, or one that is all in memory: replayed, buffered, or a problem's.
    pub struct ResponseBody<B: Body> {
        #[pin]
        inner: Inner<B>,
    }
}

pin_project! {
    #[project = Projected]
    enum Inner<B: Body> {
        Whole { whole: Whole },
        Passing { #[pin] body: B },
        Resumed { read: Read<B> },
    }
}

/// What was read of a body before it proved too large, or broke.
pub(crate) struct Read<B: Body> {
    pub(crate) frames: VecDeque<Frame<Bytes>>,
    pub(crate) broke: Option<B::Error>,
    pub(crate) rest: Pin<Box<B>>,
}

impl<B: Body> ResponseBody<B> {
    pub(crate) fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { inner: Inner::Whole { whole: Whole::new(bytes, trailers) } }
    }

    pub(crate) fn passing(body: B) -> Self {
        Self { inner: Inner::Passing { body } }
    }

    /// First what was read, then the error it broke with or the rest.
    pub(crate) fn resumed(read: Read<B>) -> Self {
        Self { inner: Inner::Resumed { read } }
    }
}

/// Empty: what layers further out answer with by themselves.
impl<B: Body> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::whole(Bytes::new(), None)
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().inner.project() {
            Projected::Whole { whole } => Poll::Ready(whole.next().map(Ok)),
            Projected::Passing { body } => body.poll_frame(cx),
            Projected::Resumed { read } => match (read.frames.pop_front(), read.broke.take()) {
                (Some(frame), broke) => {
                    read.broke = broke;
                    Poll::Ready(Some(Ok(frame)))
                }
                (None, Some(error)) => Poll::Ready(Some(Err(error))),
                (None, None) => read.rest.as_mut().poll_frame(cx),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Whole { whole } => whole.is_over(),
            Inner::Passing { body } => body.is_end_stream(),
            Inner::Resumed { read } => read.frames.is_empty() && read.broke.is_none() && read.rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Whole { whole } => whole.size_hint(),
            Inner::Passing { body } => body.size_hint(),
            // What is left of one that lied about its length is nobody's guess.
            Inner::Resumed { .. } => SizeHint::new(),
        }
    }
}

impl<B: Body> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.inner {
            Inner::Whole { .. } => "ResponseBody(whole)",
            Inner::Passing { .. } => "ResponseBody(passing)",
            Inner::Resumed { .. } => "ResponseBody(resumed)",
        })
    }
}
