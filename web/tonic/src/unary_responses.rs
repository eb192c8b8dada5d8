//! The service between the layer of `idempotent-tower` and the methods, which reads unary responses.
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Body;
use idempotent_core::Clock;
use idempotent_tower::__private::{PartialBody, StreamedBody, catch_panic, is_grpc};
use idempotent_tower::{Idempotent, ResponseBody};
use tonic::{Code, Status};
use tower_service::Service;

use crate::StreamPolicy;
use crate::idle_timer::IdleTimer;
use crate::message_frames::{MessageFrames, Progress};
use crate::problem_status::stream_refused;

/// A mark in the extensions of a request that the layer handles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnaryCall;

/// The settings for responses.
#[derive(Clone, Debug)]
pub(crate) struct UnaryResponseRules {
    pub(crate) streams: StreamPolicy,
    pub(crate) stream_after: Duration,
    pub(crate) stored: Vec<Code>,
    pub(crate) largest: u64,
    pub(crate) clock: Arc<dyn Clock>,
}

/// A service that reads the response of each handled call, applies the [`StreamPolicy`], and marks the responses that
/// are stored by their code.
#[derive(Clone, Debug)]
pub(crate) struct UnaryResponses<S> {
    inner: S,
    rules: Arc<UnaryResponseRules>,
}

impl<S> UnaryResponses<S> {
    pub(crate) fn new(inner: S, rules: Arc<UnaryResponseRules>) -> Self {
        Self { inner, rules }
    }
}

impl<S, B, R> Service<Request<B>> for UnaryResponses<S>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send + 'static>,
    R: Body<Data = Bytes, Error: Send> + Send + 'static,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let handled = request.extensions_mut().remove::<UnaryCall>().map(|UnaryCall| request.uri().path().to_owned());
        let (answered, rules) = (self.inner.call(request), self.rules.clone());
        Box::pin(async move {
            let response = answered.await?;
            match handled {
                Some(path) if is_grpc(response.headers()) => Ok(rules.read(response, &path).await),
                _ => Ok(response.map(ResponseBody::passing)),
            }
        })
    }
}

impl UnaryResponseRules {
    /// Reads a response, or passes it through if it is a stream or too large for a record.
    async fn read<R: Body<Data = Bytes>>(&self, response: Response<R>, path: &str) -> Response<ResponseBody<R>> {
        let (mut parts, body) = response.into_parts();
        let (read, end) = self.read_body(body).await;
        let is_stored = |code: Code| self.stored.contains(&code);
        match (end, self.streams) {
            (BodyEnd::Stream, StreamPolicy::Refuse) => {
                tracing::error!(target: "idempotent", method = path,
                    "a streaming response to a call with a key was refused; name the method in `pass_through`");
                let mut refused = stream_refused().into_http();
                // The method has run, so a retry must not run it again.
                refused.extensions_mut().insert(Idempotent::store());
                return refused;
            }
            (BodyEnd::Stream, StreamPolicy::PassThrough) => drop(parts.extensions.insert(StreamedBody)),
            (BodyEnd::Ended(trailers), _) if parts.extensions.get::<Idempotent>().is_none() => {
                if trailers.or_else(|| code(&parts.headers)).is_some_and(is_stored) {
                    parts.extensions.insert(Idempotent::store());
                }
            }
            (BodyEnd::Ended(_) | BodyEnd::Open, _) => {}
        }
        Response::from_parts(parts, ResponseBody::resumed(read))
    }

    async fn read_body<R: Body<Data = Bytes>>(&self, body: R) -> (PartialBody<R>, BodyEnd) {
        let mut rest = Box::pin(body);
        let (mut frames, mut messages, mut status) = (VecDeque::new(), MessageFrames::default(), None);
        let mut idle = IdleTimer::new(self.clock.clone(), self.stream_after);
        let (broke, end) = loop {
            let polled = poll_fn(|cx| match catch_panic("the body of an answer", || rest.as_mut().poll_frame(cx)) {
                None => Poll::Ready(Polled::Panicked),
                Some(Poll::Ready(frame)) => Poll::Ready(Polled::Frame(frame)),
                Some(Poll::Pending) => idle.poll(cx).map(|()| Polled::Idle),
            });
            let frame = match polled.await {
                Polled::Idle => break (None, BodyEnd::Stream),
                // The layer polls the body again, and decides.
                Polled::Panicked => break (None, BodyEnd::Open),
                Polled::Frame(None) => break (None, BodyEnd::Ended(status)),
                Polled::Frame(Some(Err(error))) => break (Some(error), BodyEnd::Open),
                Polled::Frame(Some(Ok(frame))) => frame,
            };
            idle.stop();
            frame.data_ref().into_iter().for_each(|data| messages.push(data));
            status = frame.trailers_ref().and_then(code).or(status);
            frames.push_back(frame);
            if messages.progress() == Progress::Several {
                break (None, BodyEnd::Stream);
            }
            if messages.size() > self.largest {
                break (None, BodyEnd::Open);
            }
        };
        let rest = if matches!(end, BodyEnd::Ended(_)) { None } else { Some(rest) };
        (PartialBody { frames, broke, rest }, end)
    }
}

/// The reason why the reading of a body has stopped.
enum BodyEnd {
    /// The body has ended, with the status in its trailers.
    Ended(Option<Code>),
    /// The body has a second message, or does not end.
    Stream,
    /// The body is too large, or has failed.
    Open,
}

/// The result of polling a body.
enum Polled<F> {
    Frame(F),
    Idle,
    Panicked,
}

fn code(headers: &HeaderMap) -> Option<Code> {
    headers.get(Status::GRPC_STATUS).map(HeaderValue::as_bytes).map(Code::from_bytes)
}
