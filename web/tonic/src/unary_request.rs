//! The request body of a call.
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use idempotent_core::Clock;
use tokio::sync::oneshot;
use tonic::Status;

use crate::idle_timer::IdleTimer;
use crate::message_frames::{MessageFrames, Progress};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request inside a [`GrpcLayer`](crate::GrpcLayer), before the layer has read it.
pub struct UnaryRequest<B> {
    /// The frames that were read before.
    frames: VecDeque<Frame<Bytes>>,
    /// The rest. `None` after the body was found to be a stream.
    rest: Option<Pin<Box<B>>>,
    check: Option<UnaryCheck<B>>,
}

/// The state of the check that a body consists of one message.
struct UnaryCheck<B> {
    messages: MessageFrames,
    idle: IdleTimer,
    /// The frames that were read, if the policy passes streams through.
    read: Option<VecDeque<Frame<Bytes>>>,
    /// Receives the body if it is a stream.
    stream: Option<oneshot::Sender<StreamedRequest<B>>>,
}

/// The body of a streaming request, with the frames that the check has read.
pub(crate) struct StreamedRequest<B> {
    frames: VecDeque<Frame<Bytes>>,
    rest: Pin<Box<B>>,
}

impl<B> UnaryRequest<B> {
    /// Creates a body that is not checked.
    pub(crate) fn passing(body: B) -> Self {
        Self { frames: VecDeque::new(), rest: Some(Box::pin(body)), check: None }
    }

    /// Creates the body of a stream, from its first frame on.
    pub(crate) fn resumed(stream: StreamedRequest<B>) -> Self {
        Self { frames: stream.frames, rest: Some(stream.rest), check: None }
    }

    /// Creates a body that must consist of one message. A reader of any other body receives an error, and the receiver
    /// the body. With `resumes`, that body includes the frames that were read.
    pub(crate) fn checked(
        body: B,
        clock: Arc<dyn Clock>,
        after: Duration,
        resumes: bool,
    ) -> (Self, oneshot::Receiver<StreamedRequest<B>>) {
        let (stream, received) = oneshot::channel();
        let check = UnaryCheck {
            messages: MessageFrames::default(),
            idle: IdleTimer::new(clock, after),
            read: resumes.then(VecDeque::new),
            stream: Some(stream),
        };
        (Self { frames: VecDeque::new(), rest: Some(Box::pin(body)), check: Some(check) }, received)
    }

    /// Passes the body to the receiver, and returns the error for the reader.
    fn found_stream(&mut self) -> Status {
        if let (Some(rest), Some(check)) = (self.rest.take(), &mut self.check) {
            let frames = check.read.take().unwrap_or_default();
            // Without a receiver, the call has been answered, and the body is discarded.
            let _ = check.stream.take().map(|stream| stream.send(StreamedRequest { frames, rest }));
        }
        Status::unimplemented("the request is a stream")
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for UnaryRequest<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Some(frame) = this.frames.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        let Some(rest) = &mut this.rest else { return Poll::Ready(None) };
        let polled = rest.as_mut().poll_frame(cx).map_err(|error| Status::from_error(error.into()));
        let Some(check) = &mut this.check else { return polled };
        let progress = match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                check.idle.stop();
                if let Some(data) = frame.data_ref() {
                    check.messages.push(data);
                    check.read.iter_mut().for_each(|read| read.push_back(Frame::data(data.clone())));
                }
                check.messages.progress()
            }
            Poll::Ready(Some(Err(_))) => return polled,
            // An empty request is the one of a client stream without messages.
            Poll::Ready(None) => match check.messages.progress() {
                Progress::Partial => return Poll::Ready(Some(Err(Status::internal("the message is incomplete")))),
                Progress::Empty => Progress::Several,
                progress => progress,
            },
            Poll::Pending => match check.idle.poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => Progress::Several,
            },
        };
        match progress {
            Progress::Several => Poll::Ready(Some(Err(this.found_stream()))),
            Progress::Empty | Progress::Partial | Progress::One => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.rest {
            Some(rest) if self.frames.is_empty() => rest.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

impl<B> fmt::Debug for UnaryRequest<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.check.is_some() { "UnaryRequest(checked)" } else { "UnaryRequest(passing)" })
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[test]
    fn a_body_states_its_size_and_its_end_unless_frames_precede_the_rest() {
        let hint = |body: &UnaryRequest<Full<Bytes>>| (body.size_hint().exact(), body.is_end_stream());
        assert_eq!(hint(&UnaryRequest::passing(Full::from("abc"))), (Some(3), false));
        assert_eq!(hint(&UnaryRequest::passing(Full::default())), (Some(0), true));
        let frames = VecDeque::from([Frame::data(Bytes::from_static(b"abc"))]);
        let resumed = UnaryRequest::resumed(StreamedRequest { frames, rest: Box::pin(Full::default()) });
        assert_eq!(hint(&resumed), (None, false));
    }
}
