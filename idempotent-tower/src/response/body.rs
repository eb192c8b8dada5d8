//! Bodies that went through here: a request's on its way in, and an answer's on its way out.
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::buffered_body::Whole;

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
