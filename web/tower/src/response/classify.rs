//! Decides whether a response completes its request, and buffers the body of one that does.
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::{Body, Frame};
use idempotent_core::HandlerOutcome;

use crate::panic_guard::catch_panic;
use crate::response::body::{PartialBody, ResponseBody};
use crate::response::rules::{ResponseRules, SanitizerPanicked};
use crate::response::store_policy::Idempotent;
use crate::response::stored::{StoredBody, StoredResponse};

/// A mark in the extensions of a response whose body passes through as it arrives, whatever the rules. The record then
/// states only the completion.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct StreamedBody;

/// Classifies a response by its rules. `spills` states whether a body in the [`BodyStore`](crate::BodyStore) can be read again.
///
/// If user code panics, the response counts as complete, because the handler may have had its effect.
pub(crate) async fn classify<B: Body<Data = Bytes>>(
    mut response: Response<B>,
    rules: Option<Arc<ResponseRules>>,
    spills: bool,
) -> HandlerOutcome<StoredResponse<B>, Response<ResponseBody<B>>> {
    let stores = match &rules {
        Some(rules) => {
            rules.replay_header.unmark(response.headers_mut());
            rules.stores(&response)
        }
        None => Idempotent::stores(&response),
    };
    let rules = match (stores, rules) {
        (Some(false), _) => return HandlerOutcome::Transient(response.map(ResponseBody::passing)),
        (Some(true), Some(rules)) => rules,
        (_, rules) => return HandlerOutcome::Value(StoredResponse::passing(response, rules)),
    };
    let Some(hint) = catch_panic("the body of an answer", || response.body().size_hint()) else {
        return HandlerOutcome::Value(StoredResponse::passing(response, Some(rules)));
    };
    let (parts, body) = response.into_parts();
    let spill = rules.spill.as_ref().filter(|_| spills);
    let most = spill.map_or(rules.max_response, |spill| spill.max.max(rules.max_response));
    let buffered = match hint.upper() {
        // The connection switches protocols, so only this client can use the response.
        _ if parts.status.is_informational() => false,
        _ if parts.extensions.get::<StreamedBody>().is_some() => false,
        Some(upper) => upper <= most,
        None => rules.buffers_unknown(&parts) && hint.lower() <= most,
    };
    let body = if buffered { buffer(body, most).await } else { StoredBody::Passing(ResponseBody::passing(body)) };
    let body = match body {
        StoredBody::Whole(bytes, trailers) if !rules.stores_with_trailers(&parts, trailers.as_ref()) => {
            return HandlerOutcome::Transient(Response::from_parts(parts, ResponseBody::whole(bytes, trailers)));
        }
        body => body,
    };
    let large = match (&body, spill) {
        (StoredBody::Whole(bytes, trailers), Some(spill)) if bytes.len() as u64 > rules.max_response => {
            match rules.sanitized(&parts, bytes.clone(), trailers.is_some()) {
                Some(Ok(left)) => Some((spill, left.into_body())),
                Some(Err(SanitizerPanicked)) => None,
                None => Some((spill, bytes.clone())),
            }
        }
        _ => None,
    };
    let spilled = if let Some((spill, body)) = large { spill.put(body).await } else { None };
    HandlerOutcome::Value(StoredResponse { parts, body, spilled, rules: Some(rules) })
}

/// Reads a body of at most `max` bytes. A body that exceeds the limit, fails or panics passes through to the caller,
/// because the handler has completed.
async fn buffer<B: Body<Data = Bytes>>(body: B, max: u64) -> StoredBody<B> {
    let mut rest = Box::pin(body);
    let (mut frames, mut size, mut trailers) = (VecDeque::<Frame<Bytes>>::new(), 0, None::<HeaderMap>);
    loop {
        let polled = poll_fn(|cx| match catch_panic("the body of an answer", || rest.as_mut().poll_frame(cx)) {
            Some(polled) => polled.map(Some),
            None => Poll::Ready(None),
        });
        let broke = match polled.await {
            // The caller receives the frames already read, and then polls the body itself.
            None => {
                return StoredBody::Passing(ResponseBody::resumed(PartialBody {
                    frames,
                    broke: None,
                    rest: Some(rest),
                }));
            }
            Some(None) => break,
            Some(Some(Err(error))) => Some(error),
            Some(Some(Ok(frame))) => {
                size += frame.data_ref().map_or(0, |data| data.len() as u64);
                match frame.into_trailers() {
                    Ok(these) => trailers.get_or_insert_default().extend(these),
                    Err(data) => frames.push_back(data),
                }
                None
            }
        };
        if broke.is_some() || size > max {
            frames.extend(trailers.map(Frame::trailers));
            return StoredBody::Passing(ResponseBody::resumed(PartialBody { frames, broke, rest: Some(rest) }));
        }
    }
    let mut pieces = frames.into_iter().filter_map(|frame| frame.into_data().ok());
    let bytes = match (pieces.next(), pieces.next()) {
        (Some(first), None) => first,
        (first, second) => first.into_iter().chain(second).chain(pieces).flatten().collect(),
    };
    StoredBody::Whole(bytes, trailers)
}
