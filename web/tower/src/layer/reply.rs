//! The layer's reply strategy for the executor.
use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body::Body;
use idempotent_core::{HandlerOutcome, RejectStrategy, Rejection, ReplyStrategy, ResponseShape};

use crate::ResponseRules;
use crate::response::body::ResponseBody;
use crate::response::classify::classify;
use crate::response::stored::StoredResponse;

/// The response of the inner service, with the rules that classify it.
pub(crate) struct HandlerResponse<B> {
    pub(crate) response: Response<B>,
    pub(crate) rules: Arc<ResponseRules>,
}

/// The output of a run that does not complete its request.
pub(crate) enum HandlerFailure<B: Body, E> {
    Response(Response<ResponseBody<B>>),
    Service(E),
}

/// The result of a call, before the layer converts it into a response.
pub(crate) enum CallResult<B: Body, E> {
    // Boxed because the task and every outer future reserve space for it, even while the handler runs.
    Ran(Box<StoredResponse<B>>),
    Replayed(Box<StoredResponse<B>>),
    Failed(Box<Response<ResponseBody<B>>>),
    Rejected(Rejection),
    Service(E),
}

/// The reply strategy of the layer.
pub(crate) struct LayerReply<B, E>(PhantomData<fn() -> (B, E)>);

impl<B: Body, E> ResponseShape for LayerReply<B, E> {
    type Output<R> = CallResult<B, E>;
}

impl<B: Body<Data = Bytes>, E> ReplyStrategy<Result<HandlerResponse<B>, E>> for LayerReply<B, E> {
    type Value = StoredResponse<B>;
    type Failure = HandlerFailure<B, E>;

    async fn split(reply: Result<HandlerResponse<B>, E>) -> HandlerOutcome<StoredResponse<B>, HandlerFailure<B, E>> {
        let HandlerResponse { response, rules } = match reply {
            Ok(answer) => answer,
            Err(error) => return HandlerOutcome::Transient(HandlerFailure::Service(error)),
        };
        // Boxed because the future needs no space while the handler runs.
        match Box::pin(classify(response, Some(rules), true)).await {
            HandlerOutcome::Value(kept) => HandlerOutcome::Value(kept),
            HandlerOutcome::Transient(response) | HandlerOutcome::Permanent(response) => {
                HandlerOutcome::Transient(HandlerFailure::Response(response))
            }
        }
    }

    fn value(kept: StoredResponse<B>) -> CallResult<B, E> {
        CallResult::Ran(Box::new(kept))
    }

    fn replayed(kept: StoredResponse<B>) -> CallResult<B, E> {
        CallResult::Replayed(Box::new(kept))
    }

    fn failure(failure: HandlerFailure<B, E>) -> CallResult<B, E> {
        match failure {
            HandlerFailure::Response(response) => CallResult::Failed(Box::new(response)),
            HandlerFailure::Service(error) => CallResult::Service(error),
        }
    }

    /// Returns the response although it was not recorded, because the effect has happened. A duplicate learns the
    /// outcome from the store.
    fn unrecorded(kept: StoredResponse<B>, _: Rejection) -> Result<CallResult<B, E>, Rejection> {
        Ok(CallResult::Ran(Box::new(kept)))
    }

    fn describe(failure: &HandlerFailure<B, E>) -> Cow<'static, str> {
        match failure {
            HandlerFailure::Response(response) => format!("answered {}", response.status().as_u16()).into(),
            HandlerFailure::Service(_) => "the service failed".into(),
        }
    }
}

impl<B: Body<Data = Bytes>, E> RejectStrategy<Result<HandlerResponse<B>, E>> for LayerReply<B, E> {
    fn rejected(rejection: Rejection) -> CallResult<B, E> {
        CallResult::Rejected(rejection)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    type Reply = LayerReply<Full<Bytes>, &'static str>;

    fn describe(failure: &HandlerFailure<Full<Bytes>, &'static str>) -> Cow<'static, str> {
        <Reply as ReplyStrategy<Result<HandlerResponse<Full<Bytes>>, &'static str>>>::describe(failure)
    }

    #[test]
    fn a_failure_is_described_by_its_status() {
        let mut response = Response::new(ResponseBody::passing(Full::default()));
        *response.status_mut() = http::StatusCode::BAD_GATEWAY;
        assert_eq!(describe(&HandlerFailure::Response(response)), "answered 502");
        assert_eq!(describe(&HandlerFailure::Service("secret")), "the service failed");
    }
}
