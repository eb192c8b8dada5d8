//! The conversion of bodies between actix-web and the layer.
use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_web::body::{BodySize, MessageBody};
use actix_web::dev::Payload;
use actix_web::error::PayloadError;
use bytes::Bytes;
use futures_util::Stream;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};
use idempotent_tower::ResponseBody;
use pin_project_lite::pin_project;

type BoxError = Box<dyn StdError>;

/// The body of a request, for the layer.
pub(crate) struct PayloadBody {
    payload: Payload,
    /// The length that the client declares, or zero.
    declared: u64,
}

impl PayloadBody {
    pub(crate) fn new(payload: Payload, headers: &HeaderMap) -> Self {
        let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        Self { payload, declared: declared.unwrap_or_default() }
    }
}

impl Body for PayloadBody {
    type Data = Bytes;
    type Error = PayloadError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, PayloadError>>> {
        Pin::new(&mut self.get_mut().payload).poll_next(cx).map_ok(Frame::data)
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        // Only a lower bound: a middleware outside may have replaced the payload, for example by the decompressed one.
        hint.set_lower(self.declared);
        hint
    }
}

pin_project! {
    /// The body of a handler's response, for the layer.
    pub(crate) struct HandlerBody<B> {
        #[pin]
        body: B,
    }
}

impl<B> HandlerBody<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body }
    }
}

impl<B: MessageBody> Body for HandlerBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.project().body.poll_next(cx).map_ok(Frame::data).map_err(Into::into)
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size() {
            BodySize::None => SizeHint::with_exact(0),
            BodySize::Sized(length) => SizeHint::with_exact(length),
            BodySize::Stream => SizeHint::new(),
        }
    }
}

pin_project! {
    /// The body of the layer's response, for actix-web.
    pub(crate) struct LayerBody<B: MessageBody> {
        #[pin]
        body: ResponseBody<HandlerBody<B>>,
    }
}

impl<B: MessageBody> LayerBody<B> {
    pub(crate) fn new(body: ResponseBody<HandlerBody<B>>) -> Self {
        Self { body }
    }
}

impl<B: MessageBody> MessageBody for LayerBody<B> {
    type Error = BoxError;

    fn size(&self) -> BodySize {
        self.body.size_hint().exact().map_or(BodySize::Stream, BodySize::Sized)
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            match ready!(self.as_mut().project().body.poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                // actix-web sends no trailers. An empty chunk would end a chunked body.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Poll::Ready(Some(Ok(data))),
                    Ok(_) | Err(_) => {}
                },
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::future::poll_fn;

    use super::*;

    /// A body of these chunks.
    struct Chunks(VecDeque<&'static str>);

    impl MessageBody for Chunks {
        type Error = Infallible;

        fn size(&self) -> BodySize {
            BodySize::Stream
        }

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|chunk| Ok(Bytes::from(chunk))))
        }
    }

    #[tokio::test]
    async fn an_empty_chunk_does_not_end_a_body() {
        let chunks = HandlerBody::new(Chunks(["a", "", "b"].into()));
        let mut body = Box::pin(LayerBody::new(ResponseBody::passing(chunks)));
        let mut seen = Vec::new();
        while let Some(chunk) = poll_fn(|cx| body.as_mut().poll_next(cx)).await {
            seen.push(chunk.unwrap());
        }
        assert_eq!(seen, ["a", "b"]);
    }
}
