//! What was not read of a request that is refused: it is read away behind the answer, and thrown away.
//!
//! A server that hangs up while bytes it has not read are on their way resets the connection, and a client that was
//! still writing loses the answer with it (RFC 9112, section 9.6).
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONNECTION, EXPECT, HeaderValue};
use http::request::Parts;
use http::{Response, Version};
use http_body::Body;
use idempotent_core::{Clock, Executor};

/// For this long at most, behind the answer. Who reads while it writes has read the answer by then.
const LONGEST: Duration = Duration::from_secs(2);

/// So many bytes in any case, however little the layer takes of a request that it handles.
const LEAST: u64 = 64 << 10;

/// The rest of a body.
pub(crate) struct Leftover<B> {
    body: Pin<Box<B>>,
    begun: bool,
}

impl<B: Body<Data = Bytes>> Leftover<B> {
    /// Nobody has asked for any of it.
    pub(crate) fn unread(body: B) -> Self {
        Self { body: Box::pin(body), begun: false }
    }

    pub(crate) fn begun(body: Pin<Box<B>>) -> Self {
        Self { body, begun: true }
    }

    /// Reads it away, up to `most` bytes, while the server gives this answer. Where it will not get to its end, the answer
    /// says that the connection is over.
    pub(crate) fn behind<A>(self, answer: &mut Response<A>, parts: &Parts, most: u64, clock: Arc<dyn Clock>)
    where
        B: Send + 'static,
    {
        let Self { mut body, begun } = self;
        let most = most.max(LEAST);
        // Reading would ask for a body that need not be sent any more (RFC 9110, section 10.1.1).
        let unasked = !begun && !body.is_end_stream() && waits_to_be_asked(parts);
        // HTTP/2 forbids the header (RFC 9113, section 8.2.2), and resets the stream alone.
        if (unasked || body.size_hint().lower() > most) && parts.version <= Version::HTTP_11 {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let mut left = most;
        if unasked || poll_away(body.as_mut(), &mut left, &mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        let reading = async move {
            let mut over = clock.sleep_until(clock.now() + LONGEST);
            poll_fn(|cx| match poll_away(body.as_mut(), &mut left, cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => over.as_mut().poll(cx),
            })
            .await;
        };
        // It has a task of its own once it is asked for.
        let _ = Executor::detach(reading).now_or_never();
    }
}

/// Ready at its end, where it breaks, or where nothing is `left` of what may be read.
fn poll_away<B: Body<Data = Bytes>>(mut body: Pin<&mut B>, left: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
    if body.is_end_stream() {
        return Poll::Ready(());
    }
    while let Poll::Ready(frame) = body.as_mut().poll_frame(cx) {
        let Some(Ok(frame)) = frame else { return Poll::Ready(()) };
        // An empty frame counts, too: a body may consist of them.
        let size = frame.data_ref().map_or(1, |data| data.len().max(1) as u64);
        match left.checked_sub(size) {
            Some(rest) => *left = rest,
            None => return Poll::Ready(()),
        }
    }
    Poll::Pending
}

fn waits_to_be_asked(parts: &Parts) -> bool {
    let expects = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    parts.version <= Version::HTTP_11 && parts.headers.get_all(EXPECT).iter().any(expects)
}
