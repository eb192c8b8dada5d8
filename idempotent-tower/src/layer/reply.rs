//! The layer's reply strategy for the executor.
use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body::Body;
use idempotent_core::{Rejection, Rejects, Replies, Reshapes, Split};

use crate::ResponseRules;
use crate::response::body::ResponseBody;
use crate::response::classify::judge;
use crate::response::stored::Kept;

/// A service's answer, with the rules it is judged by.
pub(crate) struct Answer<B> {
    pub(crate) response: Response<B>,
    pub(crate) rules: Arc<ResponseRules>,
}

/// What does not count as done.
pub(crate) enum Failure<B: Body, E> {
    Response(Response<ResponseBody<B>>),
    Service(E),
}

/// The caller's answer, before the layer puts it into words.
pub(crate) enum Told<B: Body, E> {
    // Boxed: the task it was made in and every future on the way out have room for it, also while the handler runs.
    Ran(Box<Kept<B>>),
    Replayed(Box<Kept<B>>),
    Failed(Box<Response<ResponseBody<B>>>),
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
        // Boxed: while the handler runs there is no need of it.
        match Box::pin(judge(response, Some(rules), true)).await {
            Split::Value(kept) => Split::Value(kept),
            Split::Transient(response) | Split::Permanent(response) => Split::Transient(Failure::Response(response)),
        }
    }

    fn value(kept: Kept<B>) -> Told<B, E> {
        Told::Ran(Box::new(kept))
    }

    fn replayed(kept: Kept<B>) -> Told<B, E> {
        Told::Replayed(Box::new(kept))
    }

    fn failure(failure: Failure<B, E>) -> Told<B, E> {
        match failure {
            Failure::Response(response) => Told::Failed(Box::new(response)),
            Failure::Service(error) => Told::Service(error),
        }
    }

    /// The effect has happened: its caller is told so, and whoever asks again finds out from the store.
    fn unrecorded(kept: Kept<B>, _: Rejection) -> Result<Told<B, E>, Rejection> {
        Ok(Told::Ran(Box::new(kept)))
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
