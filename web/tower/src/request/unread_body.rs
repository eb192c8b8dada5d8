//! Discards the unread body of a rejected request after the response.
//!
//! A server that closes a connection with unread bytes in flight resets it. A client that is still sending then loses
//! the response (RFC 9112, section 9.6).
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, HeaderValue};
use http::request::Parts;
use http::{Response, Version};
use http_body::Body;
use idempotent_core::{Clock, Timer};

/// The longest time to discard a body after the response. A client that reads while it sends has read the response by
/// then.
const MAX_TIME: Duration = Duration::from_secs(2);

/// The number of bytes to discard at least, even if the layer accepts only smaller bodies.
const MIN_BYTES: u64 = 64 << 10;

/// The unread rest of a body.
pub(crate) struct UnreadBody<B> {
    body: Pin<Box<B>>,
    begun: bool,
}

impl<B: Body<Data = Bytes>> UnreadBody<B> {
    /// Wraps a body that has not been polled.
    pub(crate) fn unread(body: B) -> Self {
        Self { body: Box::pin(body), begun: false }
    }

    /// Wraps a body that has been polled.
    pub(crate) fn begun(body: Pin<Box<B>>) -> Self {
        Self { body, begun: true }
    }

    /// Prepares to read and discard up to `most` bytes of the body while the server sends `answer`, and discards what has
    /// arrived. Returns the rest of this work, if any. Adds `Connection: close` if the body will not be read to its
    /// end.
    pub(crate) fn discard_after<A>(
        self,
        answer: &mut Response<A>,
        parts: &Parts,
        most: u64,
        clock: &dyn Clock,
    ) -> Option<BodyDiscard<B>> {
        let Self { mut body, begun } = self;
        let most = most.max(MIN_BYTES);
        // Reading would send `100 Continue` and request a body that the client need not send (RFC 9110, section
        // 10.1.1).
        let unasked = !begun && !body.is_end_stream() && waits_to_be_asked(parts);
        // HTTP/2 forbids this header (RFC 9113, section 8.2.2) and resets only the stream.
        if (unasked || body.size_hint().lower() > most) && parts.version <= Version::HTTP_11 {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let mut left = most;
        if unasked || poll_discard(body.as_mut(), &mut left, &mut Context::from_waker(Waker::noop())).is_ready() {
            return None;
        }
        Some(BodyDiscard { body, left, over: clock.sleep_until(clock.now() + MAX_TIME) })
    }
}

/// A future that discards the rest of a body. It completes at the end of the body, at the limit of its size, or after
/// two seconds.
pub(crate) struct BodyDiscard<B> {
    body: Pin<Box<B>>,
    left: u64,
    over: Timer,
}

impl<B: Body<Data = Bytes>> Future for BodyDiscard<B> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { body, left, over } = self.get_mut();
        match poll_discard(body.as_mut(), left, cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => over.as_mut().poll(cx),
        }
    }
}

/// Polls the body until it ends or fails, or until no bytes are `left` to read.
fn poll_discard<B: Body<Data = Bytes>>(mut body: Pin<&mut B>, left: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
    if body.is_end_stream() {
        return Poll::Ready(());
    }
    while let Poll::Ready(frame) = body.as_mut().poll_frame(cx) {
        let Some(Ok(frame)) = frame else { return Poll::Ready(()) };
        // Empty frames count as one byte, because a body may consist only of empty frames.
        let size = frame.data_ref().map_or(1, |data| data.len().max(1) as u64);
        match left.checked_sub(size) {
            Some(rest) => *left = rest,
            None => return Poll::Ready(()),
        }
    }
    Poll::Pending
}

/// Returns whether the client sends the body only after `100 Continue`.
fn waits_to_be_asked(parts: &Parts) -> bool {
    let expects = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    parts.version <= Version::HTTP_11 && parts.headers.get_all(EXPECT).iter().any(expects)
}
