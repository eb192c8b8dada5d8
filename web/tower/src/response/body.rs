//! The response body that the layer returns.
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::buffered_body::BufferedBody;

pin_project! {
    /// The body of a response: the body of the inner service, or one in memory. Replays, buffered responses and
    /// problems have their body in memory.
    pub struct ResponseBody<B: Body> {
        #[pin]
        inner: ResponseBodyKind<B>,
    }
}

pin_project! {
    #[project = ProjectedResponseBody]
    enum ResponseBodyKind<B: Body> {
        Whole { whole: BufferedBody },
        Passing { #[pin] body: B },
        Resumed { read: PartialBody<B> },
    }
}

/// The frames that were read of a body before it ended, exceeded the limit or failed.
#[doc(hidden)]
pub struct PartialBody<B: Body> {
    pub frames: VecDeque<Frame<Bytes>>,
    pub broke: Option<B::Error>,
    /// The unread rest. `None` if the body has ended.
    pub rest: Option<Pin<Box<B>>>,
}

impl<B: Body> fmt::Debug for PartialBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartialBody({} frames)", self.frames.len())
    }
}

impl<B: Body> ResponseBody<B> {
    /// Creates a body from one in memory.
    pub(crate) fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { inner: ResponseBodyKind::Whole { whole: BufferedBody::new(bytes, trailers) } }
    }

    /// Creates a body that passes `body` through unchanged.
    #[doc(hidden)]
    pub fn passing(body: B) -> Self {
        Self { inner: ResponseBodyKind::Passing { body } }
    }

    /// Creates a body that yields the frames already read, followed by the error or by the rest.
    #[doc(hidden)]
    pub fn resumed(read: PartialBody<B>) -> Self {
        Self { inner: ResponseBodyKind::Resumed { read } }
    }
}

/// The default is an empty body. Outer layers use it for their own responses.
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
            ProjectedResponseBody::Whole { whole } => Poll::Ready(whole.next().map(Ok)),
            ProjectedResponseBody::Passing { body } => body.poll_frame(cx),
            ProjectedResponseBody::Resumed { read } => match (read.frames.pop_front(), read.broke.take()) {
                (Some(frame), broke) => {
                    read.broke = broke;
                    Poll::Ready(Some(Ok(frame)))
                }
                (None, Some(error)) => Poll::Ready(Some(Err(error))),
                (None, None) => read.rest.as_mut().map_or(Poll::Ready(None), |rest| rest.as_mut().poll_frame(cx)),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            ResponseBodyKind::Whole { whole } => whole.is_over(),
            ResponseBodyKind::Passing { body } => body.is_end_stream(),
            ResponseBodyKind::Resumed { read } => {
                read.frames.is_empty()
                    && read.broke.is_none()
                    && read.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            ResponseBodyKind::Whole { whole } => whole.size_hint(),
            ResponseBodyKind::Passing { body } => body.size_hint(),
            // The body may have exceeded its own size hint, so its rest has an unknown size.
            ResponseBodyKind::Resumed { .. } => SizeHint::new(),
        }
    }
}

impl<B: Body> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.inner {
            ResponseBodyKind::Whole { .. } => "ResponseBody(whole)",
            ResponseBodyKind::Passing { .. } => "ResponseBody(passing)",
            ResponseBodyKind::Resumed { .. } => "ResponseBody(resumed)",
        })
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Empty, Full};

    use super::*;

    #[test]
    fn a_resumed_body_ends_after_its_frames_and_its_rest() {
        let ends = |frames: usize, rest: &'static str| {
            let frames = (0..frames).map(|_| Frame::data(Bytes::from_static(b"x"))).collect();
            let rest = Box::pin(Full::new(Bytes::from_static(rest.as_bytes())));
            ResponseBody::resumed(PartialBody { frames, broke: None, rest: Some(rest) }).is_end_stream()
        };
        assert!(ends(0, ""));
        assert!(!ends(1, "") && !ends(0, "rest") && !ends(1, "rest"));
    }

    #[test]
    fn a_body_with_an_error_has_not_ended() {
        let rest = Box::pin(Empty::new().map_err(|never| -> &'static str { match never {} }));
        let body = PartialBody { frames: VecDeque::new(), broke: Some("broken"), rest: Some(rest) };
        assert!(!ResponseBody::resumed(body).is_end_stream());
    }
}
