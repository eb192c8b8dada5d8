//! The path of one request through the layer: key, caller, body, fingerprint, the call of the executor, and the
//! response.
use std::any::Any;
use std::borrow::Cow;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::ACCEPT_LANGUAGE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Body;
use idempotent_core::__private::Begun;
use idempotent_core::{Call, Executor, Fingerprint, Handler, Identity, Json, Parts as KeyParts, Scene, key_hash};
use tower_service::Service;

use crate::accept_language::preferred;
use crate::buffered_body::BufferedBody;
use crate::layer::config::{KeyScope, KeySource, LayerConfig, RouteFn};
use crate::layer::local::RouteTemplate;
use crate::layer::reply::{CallResult, HandlerResponse, LayerReply};
use crate::layer::service::ServiceResult;
use crate::request::payload;
use crate::request::principal::{ANONYMOUS_CREDENTIALS, UnidentifiedCaller};
use crate::request::read_body::{self, ReadError};
use crate::request::unread_body::{BodyDiscard, UnreadBody};
use crate::{
    Caller, IdempotencyKey, Idempotent, InvalidKey, Problem, ProblemKind, RequestAttempt, RequestBody, ResponseBody,
};

/// The response to a request that is not handled.
pub(super) type RejectedResponse = Box<Response<Bytes>>;

/// A request that is not handled: its response, and the rest of its body if that must be discarded.
pub(super) struct RefusedRequest<B> {
    pub(super) response: RejectedResponse,
    pub(super) unread: Option<BodyDiscard<B>>,
}

impl<B> From<RejectedResponse> for RefusedRequest<B> {
    fn from(response: RejectedResponse) -> Self {
        Self { response, unread: None }
    }
}

/// The call of a request, if it has one, and its body.
type PreparedCall = (Option<(Box<Call>, Option<IdempotencyKey>)>, BufferedBody);

/// The result of a run. The error is the payload of a panic.
pub(super) type RunResult<R, E> = Result<CallResult<R, E>, Box<dyn Any + Send>>;

/// The key of a request as far as its head contains it.
enum RequestKey {
    Key(IdempotencyKey),
    /// The key is in the body.
    KeyInBody,
    Token(Box<str>),
    Params,
}

impl LayerConfig {
    /// Returns whether the request passes through untouched.
    pub(crate) fn bypasses(&self, parts: &Parts) -> bool {
        // A layer without methods is misconfigured and rejects all requests.
        if self.methods.is_empty() {
            return false;
        }
        if !self.methods.contains(&parts.method) || self.skip.as_ref().is_some_and(|skip| skip(parts)) {
            return true;
        }
        match &self.key_source {
            KeySource::Key { rules, of: None, required: false } => !parts.headers.contains_key(rules.header_name()),
            _ => false,
        }
    }

    /// Handles one request.
    pub(crate) async fn handle<S, B, R>(self: Arc<Self>, taken: Box<(S, Parts)>, body: B) -> ServiceResult<R, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>, Future: Send, Error: Send + 'static>
            + Send
            + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        R: Body<Data = Bytes, Error: Send> + Send + 'static,
    {
        let (call, body) = match self.prepare_call(&taken.1, body).await {
            Ok(prepared) => prepared,
            Err(RefusedRequest { response, unread }) => {
                // The first poll spawns the task.
                unread.map(|unread| Executor::detach(unread).now_or_never());
                return Ok(response.map(buffered_response));
            }
        };
        let Some(call) = call else { return self.pass(taken, body).await };
        let (begun, languages, run) = self.begin(taken, call, body);
        let result = if self.detached { begun.detached(run).await } else { run.await };
        self.finish(result, &languages).await
    }

    /// Passes a request on whose body has been read.
    pub(super) async fn pass<S, B, R>(&self, taken: Box<(S, Parts)>, body: BufferedBody) -> ServiceResult<R, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        R: Body<Data = Bytes>,
    {
        let (mut inner, parts) = unboxed(taken);
        let passed = Box::pin(inner.call(buffered_request(parts, body, self.max_body))).await;
        passed.map(|response| response.map(ResponseBody::passing))
    }

    /// Creates the run of a call. Also returns the languages that the caller prefers.
    ///
    /// The service, the head of the request and the call are boxed. Otherwise each future on the path to the handler
    /// would reserve space for them and move them.
    #[allow(clippy::type_complexity, reason = "read at two places")]
    pub(super) fn begin<S, B, R>(
        &self,
        taken: Box<(S, Parts)>,
        (call, key): (Box<Call>, Option<IdempotencyKey>),
        body: BufferedBody,
    ) -> (Begun, Vec<HeaderValue>, Pin<Box<impl Future<Output = RunResult<R, S::Error>> + use<S, B, R>>>)
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        R: Body<Data = Bytes>,
    {
        // Parsed only for a rejection. The clones share the bytes of the header.
        let languages = taken.1.headers.get_all(ACCEPT_LANGUAGE).iter().cloned().collect();
        let (executor, rules, max_body) = (self.executor.clone(), self.response.clone(), self.max_body);
        let begun = Begun::of(Some(&executor), &call);
        let started = begun.clone();
        let run = async move {
            let handler = async || {
                // The block ends before the wait, so that the future does not keep the request and the service.
                let response = {
                    let (mut inner, parts) = unboxed(taken);
                    let mut request = buffered_request(parts, body, max_body);
                    if let Some(attempt) = RequestAttempt::current() {
                        request.extensions_mut().insert(attempt);
                    }
                    if let Some(key) = key {
                        request.extensions_mut().insert(key);
                    }
                    inner.call(request)
                };
                response.await.map(|response| HandlerResponse { response, rules })
            };
            executor.run(call, Handler::<LayerReply<R, S::Error>, Json, _, _>::new(started.told(handler))).await
        };
        (begun, languages, Box::pin(AssertUnwindSafe(run).catch_unwind()))
    }

    /// Returns the response to a request that has run, or was rejected by the executor.
    pub(super) async fn finish<R, E>(&self, result: RunResult<R, E>, languages: &[HeaderValue]) -> ServiceResult<R, E>
    where
        R: Body<Data = Bytes>,
    {
        let kept = match result {
            Ok(CallResult::Replayed(kept)) if kept.is_elsewhere() => kept,
            Ok(result) => return self.respond(result, languages),
            // The panic hook has logged the panic.
            Err(_) => return Ok(self.problem(Problem::new(ProblemKind::HandlerPanicked)).map(buffered_response)),
        };
        let found = Box::pin(kept.fetched(self.response.spill.as_ref())).await;
        self.respond(CallResult::Replayed(Box::new(found)), languages)
    }

    /// Returns the call of a request and its body, or the response to a request that is rejected. The call is `None` if
    /// the request has no key and needs none.
    pub(super) async fn prepare_call<B>(&self, parts: &Parts, body: B) -> Result<PreparedCall, RefusedRequest<B>>
    where
        B: Body<Data = Bytes>,
    {
        let head = self.request_key(parts).and_then(|key| Ok((key, self.caller(parts)?)));
        let (request_key, caller) = match head {
            Ok(head) => head,
            Err(refused) => return Err(self.reject_unread(refused, parts, UnreadBody::unread(body))),
        };
        let mut seen = self.payload.begin(parts);
        let body = read_body::whole(body, self.max_body, seen.as_mut()).await.map_err(|unread| match unread {
            ReadError::TooLarge(rest) => {
                let detail = format!("The body is larger than the {} bytes taken. Nothing was done.", self.max_body);
                self.reject_unread(self.problem(Problem::new(ProblemKind::BodyTooLarge).detail(detail)), parts, rest)
            }
            ReadError::Broken => self.problem(Problem::new(ProblemKind::InvalidBody)).into(),
        })?;
        let fingerprint = self.payload.finish(seen, parts, &body.bytes);
        let key = match request_key {
            RequestKey::KeyInBody => self.key_in_body(parts, &body.bytes)?.map(RequestKey::Key),
            other => Some(other),
        };
        let Some(request_key) = key else { return Ok((None, body)) };
        let call = Box::new(self.build_call(&request_key, parts, &caller, fingerprint)?);
        let key = if let RequestKey::Key(key) = request_key { Some(key) } else { None };
        Ok((Some((call, key)), body))
    }

    fn caller(&self, parts: &Parts) -> Result<Caller, RejectedResponse> {
        self.principal.identify(parts).map_err(|why| match why {
            UnidentifiedCaller::Denied(denied) => denied.into_response(),
            UnidentifiedCaller::AnonymousCredentials => self.misconfigured(&ANONYMOUS_CREDENTIALS),
        })
    }

    fn misconfigured(&self, why: &dyn std::fmt::Display) -> RejectedResponse {
        tracing::error!(target: "idempotent", error = %why, "a request cannot be handled");
        self.problem(Problem::new(ProblemKind::Misconfigured))
    }

    /// Returns a response that precedes the body, and the work of discarding the body after it.
    fn reject_unread<B>(&self, mut response: RejectedResponse, parts: &Parts, rest: UnreadBody<B>) -> RefusedRequest<B>
    where
        B: Body<Data = Bytes>,
    {
        let unread = rest.discard_after(&mut response, parts, self.max_body, &**self.executor.clock());
        RefusedRequest { response, unread }
    }

    fn request_key(&self, parts: &Parts) -> Result<RequestKey, RejectedResponse> {
        if let Some(wrong) = &self.setup_error {
            return Err(self.misconfigured(wrong));
        }
        match &self.key_source {
            KeySource::Key { of: Some(_), .. } => Ok(RequestKey::KeyInBody),
            KeySource::Key { rules, .. } => match rules.read(&parts.headers) {
                Ok(Some(key)) => Ok(RequestKey::Key(key)),
                Ok(None) => Err(self.missing_key()),
                Err(invalid) => Err(self.invalid_key(invalid)),
            },
            KeySource::Token { header, .. } => match token(&parts.headers, header) {
                // Issued tokens are much shorter.
                Some(token) if token.len() > 255 => Err(self.problem(Problem::new(ProblemKind::UnknownToken))),
                Some(token) => Ok(RequestKey::Token(token)),
                None => Err(self.problem(Problem::new(ProblemKind::MissingToken))),
            },
            KeySource::Param => Ok(RequestKey::Params),
        }
    }

    fn key_in_body(&self, parts: &Parts, body: &Bytes) -> Result<Option<IdempotencyKey>, RejectedResponse> {
        let KeySource::Key { rules, of: Some(of), required } = &self.key_source else { return Ok(None) };
        match of(parts, body) {
            Some(text) => rules.checked(text).map(Some).map_err(|invalid| self.invalid_key(invalid)),
            None if *required => Err(self.missing_key()),
            None => Ok(None),
        }
    }

    fn build_call(
        &self,
        request_key: &RequestKey,
        parts: &Parts,
        caller: &Caller,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Call, RejectedResponse> {
        let call = match (request_key, &self.key_source) {
            // The response of a token belongs to the route where it was used.
            (RequestKey::Token(token), KeySource::Token { tokens, .. }) => {
                tokens.call(&**token, caller).fingerprint(Ok(payload::of_target(parts)))
            }
            (RequestKey::Key(key), _) => {
                let call = Call::new(self.identity(parts, caller, key.as_str().as_bytes()));
                call.fingerprint(Ok(fingerprint.unwrap_or_else(|| payload::of_target(parts))))
            }
            // Without keys, the fingerprint is the key.
            _ => match fingerprint {
                Some(said) => Call::new(self.identity(parts, caller, &said.to_bytes())),
                None => {
                    let detail = "The body has no fingerprint. Nothing was done.";
                    return Err(self.problem(Problem::new(ProblemKind::InvalidBody).detail(detail)));
                }
            },
        };
        let call = call.policy(self.policy);
        Ok(match &self.message {
            Some(message) => call.message(message.clone()),
            None => call,
        })
    }

    fn identity(&self, parts: &Parts, caller: &Caller, key: &[u8]) -> Identity {
        let method = parts.method.as_str();
        let identity = match &self.scope {
            KeyScope::Named(scope) => Identity::new(Scene::Rest, scope.clone(), key),
            KeyScope::Route(named) => match route(named.as_deref(), parts) {
                Some(route) => Identity::new(Scene::Rest, [method, " ", &route].concat(), key),
                // The number of distinct paths is unbounded, so the path is part of the key and not of the scope.
                None => match payload::target(parts).path() {
                    path if path.len() + key.len() > KeyParts::MAX => {
                        Identity::new(Scene::Rest, method.to_owned(), &("long", key_hash(path), key))
                    }
                    path => Identity::new(Scene::Rest, method.to_owned(), &(path, key)),
                },
            },
        };
        let identity = identity.tenant(caller).described("the request's key");
        match &self.prefix {
            Some(prefix) => identity.prefix(prefix.clone()),
            None => identity,
        }
    }

    fn respond<R, E>(&self, result: CallResult<R, E>, languages: &[HeaderValue]) -> ServiceResult<R, E>
    where
        R: Body<Data = Bytes>,
    {
        let gone = |location| {
            self.problem(Problem::new(ProblemKind::ResponseNotRetained).location(location)).map(buffered_response)
        };
        Ok(match result {
            CallResult::Service(error) => return Err(error),
            CallResult::Failed(response) => *response,
            CallResult::Ran(kept) => kept.into_response().unwrap_or_else(gone),
            CallResult::Replayed(kept) => match kept.into_response() {
                Ok(mut response) => {
                    self.response.replay_header.mark(response.headers_mut());
                    response
                }
                Err(location) => gone(location),
            },
            CallResult::Rejected(rejection) => {
                self.problem(Problem::of_rejection(rejection, || preferred(languages))).map(buffered_response)
            }
        })
    }

    fn missing_key(&self) -> RejectedResponse {
        self.problem(Problem::new(ProblemKind::MissingKey))
    }

    fn invalid_key(&self, invalid: InvalidKey) -> RejectedResponse {
        self.problem(Problem::new(ProblemKind::InvalidKey).detail(invalid.to_string()))
    }

    fn problem(&self, problem: Problem) -> RejectedResponse {
        let problem = problem.base(self.base.clone()).docs(self.docs.clone());
        match &self.problem_fn {
            Some(problem_fn) => {
                let mut response = problem_fn(problem);
                response.extensions_mut().insert(Idempotent::release());
                response.into()
            }
            None => problem.to_response().into(),
        }
    }
}

/// Unboxes a value and frees the box. An async block would keep the memory of an unboxed local until its end.
#[allow(clippy::boxed_local, reason = "the box is freed here")]
fn unboxed<T>(value: Box<T>) -> T {
    *value
}

/// Returns the value of a header that occurs once.
fn token(headers: &HeaderMap, header: &http::HeaderName) -> Option<Box<str>> {
    let mut lines = headers.get_all(header).iter();
    let token = lines.next().filter(|_| lines.next().is_none())?.to_str().ok()?.trim();
    (!token.is_empty()).then(|| token.into())
}

fn route<'a>(named: Option<&RouteFn>, parts: &'a Parts) -> Option<Cow<'a, str>> {
    match named {
        Some(named) => named(parts).map(Cow::Owned),
        None => matched_path(parts).map(Cow::Borrowed),
    }
}

fn matched_path(parts: &Parts) -> Option<&str> {
    if let Some(RouteTemplate(template)) = parts.extensions.get() {
        return Some(template);
    }
    #[cfg(feature = "axum")]
    return parts.extensions.get::<axum::extract::MatchedPath>().map(axum::extract::MatchedPath::as_str);
    #[cfg(not(feature = "axum"))]
    None
}

pub(super) fn buffered_response<R: Body>(bytes: Bytes) -> ResponseBody<R> {
    ResponseBody::whole(bytes, None)
}

/// Creates a request whose body has been read. A limit above the default of axum also applies to axum's extractors.
/// Otherwise, an extractor would reject such a body with a plain-text response.
fn buffered_request<B>(parts: Parts, body: BufferedBody, max_body: u64) -> Request<RequestBody<B>> {
    let mut request = Request::from_parts(parts, RequestBody::whole(body));
    #[cfg(feature = "axum")]
    if max_body > crate::layer::config::MAX_BODY {
        axum::extract::DefaultBodyLimit::max(usize::try_from(max_body).unwrap_or(usize::MAX)).apply(&mut request);
    }
    #[cfg(not(feature = "axum"))]
    let _ = (&mut request, max_body);
    request
}
