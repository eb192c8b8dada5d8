//! What a handler's answer means to the executor, and the caller's answer as the executor gives it.
use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::{Body, Frame};
use idempotent_core::{Rejection, Rejects, Replies, Reshapes, Split};

use crate::ResponseRules;
use crate::body::{Read, ResponseBody};
use crate::kept::{Kept, KeptBody};

/// Judges one answer by the rules that apply to it; `spills` where a spilled body can be fetched again.
pub(crate) async fn judge<B: Body<Data = Bytes>>(
    response: Response<B>,
    rules: Arc<ResponseRules>,
    spills: bool,
) -> Split<Kept<B>, Response<B>> {
    if !rules.stores(&response) {
        return Split::Transient(response);
    }
    let (parts, body) = response.into_parts();
    let hint = body.size_hint();
    let spill = rules.spill.as_ref().filter(|_| spills);
    let most = spill.map_or(rules.max_response, |spill| spill.max.max(rules.max_response));
    let buffered = match hint.upper() {
        // The connection goes on as something else: there is nothing to give to anybody but this client.
        _ if parts.status.is_informational() => false,
        Some(upper) => upper <= most,
        None => rules.buffer_unknown && hint.lower() <= most,
    };
    let body = if buffered { buffer(body, most).await } else { KeptBody::Passing(ResponseBody::passing(body)) };
    let large = match (&body, spill) {
        (KeptBody::Whole(bytes, trailers), Some(spill)) if bytes.len() as u64 > rules.max_response => {
            Some((spill, rules.kept(&parts, bytes.clone(), trailers.is_some()).into_body()))
        }
        _ => None,
    };
    let spilled = if let Some((spill, body)) = large { spill.put(body).await } else { None };
    Split::Value(Kept { parts, body, spilled, rules: Some(rules) })
}

/// Reads a body that should be small. One that is not, or breaks, goes to its caller as it came: the handler is done.
async fn buffer<B: Body<Data = Bytes>>(body: B, max: u64) -> KeptBody<B> {
    let mut rest = Box::pin(body);
    let (mut frames, mut size, mut trailers) = (VecDeque::<Frame<Bytes>>::new(), 0, None::<HeaderMap>);
    loop {
        let broke = match poll_fn(|cx| rest.as_mut().poll_frame(cx)).await {
            None => break,
            Some(Err(error)) => Some(error),
            Some(Ok(frame)) => {
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
            return KeptBody::Passing(ResponseBody::resumed(Read { frames, broke, rest }));
        }
    }
    let mut pieces = frames.into_iter().filter_map(|frame| frame.into_data().ok());
    let bytes = match (pieces.next(), pieces.next()) {
        (Some(first), None) => first,
        (first, second) => first.into_iter().chain(second).chain(pieces).flatten().collect(),
    };
    KeptBody::Whole(bytes, trailers)
}

/// A service's answer, with the rules it is judged by.
pub(crate) struct Answer<B> {
    pub(crate) response: Response<B>,
    pub(crate) rules: Arc<ResponseRules>,
}

/// What does not count as done.
pub(crate) enum Failure<B, E> {
    Response(Response<B>),
    Service(E),
}

/// The caller's answer, before the layer puts it into words.
pub(crate) enum Told<B: Body, E> {
    Ran(Kept<B>),
    Replayed(Kept<B>),
    Failed(Response<B>),
    Rejected(Rejection),
    Service(E),
}

/// The layer's reply strategy.
pub(crate) struct Replying<B, E>(PhantomData<fn() -> (B, E)>);

impl<B: Body, E> Reshapes for Replying<B, E> {
    type Output<R> = Told<B, E>;
}

impl<B: Body<Data = Bytes>, E> Replies<Result<Answer<B>, E>> for Replying<B, E> {
    type Value = Kept<B>;
    type Failure = Failure<B, E>;

    async fn split(reply: Result<Answer<B>, E>) -> Split<Kept<B>, Failure<B, E>> {
        let Answer { response, rules } = match reply {
            Ok(answer) => answer,
            Err(error) => return Split::Transient(Failure::Service(error)),
        };
        match judge(response, rules, true).await {
            Split::Value(kept) => Split::Value(kept),
            Split::Transient(response) | Split::Permanent(response) => Split::Transient(Failure::Response(response)),
        }
    }

    fn value(kept: Kept<B>) -> Told<B, E> {
        Told::Ran(kept)
    }

    fn replayed(kept: Kept<B>) -> Told<B, E> {
        Told::Replayed(kept)
    }

    fn failure(failure: Failure<B, E>) -> Told<B, E> {
        match failure {
            Failure::Response(response) => Told::Failed(response),
            Failure::Service(error) => Told::Service(error),
        }
    }

    /// The effect has happened: its caller is told so, and whoever asks again finds out from the store.
    fn unrecorded(kept: Kept<B>, _: Rejection) -> Result<Told<B, E>, Rejection> {
        Ok(Told::Ran(kept))
    }

    fn describe(failure: &Failure<B, E>) -> Cow<'static, str> {
        match failure {
            Failure::Response(response) => format!("answered {}", response.status().as_u16()).into(),
            Failure::Service(_) => "the service failed".into(),
        }
    }
}

impl<B: Body<Data = Bytes>, E> Rejects<Result<Answer<B>, E>> for Replying<B, E> {
    fn rejected(rejection: Rejection) -> Told<B, E> {
        Told::Rejected(rejection)
    }
}
