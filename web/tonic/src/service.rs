//! The layer's service, which selects calls and applies the policy for streams.
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use idempotent_core::Clock;
use idempotent_tower::{IdempotencyService, RequestBody, ResponseBody};
use tonic::server::NamedService;
use tower_service::Service;

use crate::StreamPolicy;
use crate::call_rules::{CallRules, Treatment};
use crate::problem_status::{form_refused, problem_status, stream_refused};
use crate::unary_request::UnaryRequest;
use crate::unary_responses::{UnaryCall, UnaryResponses};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A service inside a [`GrpcLayer`](crate::GrpcLayer), such as a generated server or all routes of a tonic server.
#[derive(Clone)]
pub struct GrpcService<S> {
    /// Handles unary calls with a key, and passes all others through.
    guarded: IdempotencyService<UnaryResponses<S>>,
    /// Receives streams with a key, if the policy passes them through.
    inner: S,
    rules: Arc<CallRules>,
    clock: Arc<dyn Clock>,
}

impl<S> GrpcService<S> {
    pub(crate) fn new(
        guarded: IdempotencyService<UnaryResponses<S>>,
        inner: S,
        rules: Arc<CallRules>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { guarded, inner, rules, clock }
    }
}

/// The service has the name of the inner service, so that a server can route calls to one service inside a layer.
impl<S: NamedService> NamedService for GrpcService<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: fmt::Debug> fmt::Debug for GrpcService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// The future of a response.
///
/// # Cancellation
/// Dropping the future before the request message has arrived has no effect on the store. After that, the method
/// completes in its own task, and a retry receives its response, unless
/// [`cancel_on_disconnect`](crate::GrpcLayer::cancel_on_disconnect) is set. This also applies to a call whose deadline
/// passes.
pub type ResponseFuture<R, E> =
    Pin<Box<dyn Future<Output = Result<Response<ResponseBody<ResponseBody<R>>>, E>> + Send>>;

impl<S, B, R> Service<Request<B>> for GrpcService<S>
where
    S: Service<
            Request<RequestBody<UnaryRequest<B>>>,
            Response = Response<R>,
            Future: Send + 'static,
            Error: Send + 'static,
        > + Clone
        + Send
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    R: Body<Data = Bytes, Error: Send> + Send + 'static,
{
    type Response = Response<ResponseBody<ResponseBody<R>>>;
    type Error = S::Error;
    type Future = ResponseFuture<R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.guarded.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        // An outer layer of this type may have set the mark.
        parts.extensions.remove::<UnaryCall>();
        match self.rules.treatment(&parts) {
            Treatment::PassThrough => {
                Box::pin(self.guarded.call(Request::from_parts(parts, UnaryRequest::passing(body))))
            }
            Treatment::Refuse(problem) => {
                let refused = problem_status(&problem, self.rules.key.header_name()).into_http();
                Box::pin(std::future::ready(Ok(refused)))
            }
            Treatment::RefuseForm(status) => Box::pin(std::future::ready(Ok(form_refused(status)))),
            Treatment::Handle(streams) => {
                let resumes = streams == StreamPolicy::PassThrough;
                let head = resumes.then(|| (parts.clone(), self.inner.clone()));
                let (body, mut stream) =
                    UnaryRequest::checked(body, self.clock.clone(), self.rules.stream_after, resumes);
                parts.extensions.insert(UnaryCall);
                let answered = self.guarded.call(Request::from_parts(parts, body));
                Box::pin(async move {
                    let response = answered.await?;
                    match (stream.try_recv(), head) {
                        (Err(_), _) => Ok(response),
                        (Ok(_), None) => Ok(stream_refused().into_http()),
                        (Ok(stream), Some((parts, mut inner))) => {
                            poll_fn(|cx| inner.poll_ready(cx)).await?;
                            let body = RequestBody::new(UnaryRequest::resumed(stream));
                            let passed = inner.call(Request::from_parts(parts, body)).await?;
                            Ok(passed.map(ResponseBody::passing).map(ResponseBody::passing))
                        }
                    }
                })
            }
        }
    }
}
