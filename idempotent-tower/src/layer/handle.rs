//! One request's way: key, principal, body, fingerprint; then the executor's; then the answer's words.
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use idempotent_core::__private::Begun;
use idempotent_core::{Call, Fingerprint, Handler, Identity, Json, Parts as KeyParts, Scene as CoreScene, key_hash};
use tower_service::Service;

use crate::buffered_body::Whole;
use crate::layer::config::{Route, Scene, Scope, Shared};
use crate::layer::reply::{Answer, Replying, Told};
use crate::layer::service::Answered;
use crate::request::payload;
use crate::request::read_body::{self, Unread};
use crate::request::unread_body::Leftover;
use crate::{Attempt, Caller, IdempotencyKey, Idempotent, InvalidKey, Problem, ProblemKind, RequestBody, ResponseBody};

/// The answer to a request that is not handled.
type Refused = Box<Response<Bytes>>;

/// What a request says about itself before its body is in.
enum Claimed {
    Key(IdempotencyKey),
    /// To be looked for in the body.
    KeyInBody,
    Token(Box<str>),
    Params,
}

impl Shared {
    /// Whether nothing is done about it.
    pub(crate) fn passes(&self, parts: &Parts) -> bool {
        // Without a method the layer is set up wrong, and refuses what comes.
        if self.methods.is_empty() {
            return false;
        }
        if !self.methods.contains(&parts.method) || self.skip.as_ref().is_some_and(|skip| skip(parts)) {
            return true;
        }
        match &self.scene {
            Scene::Key { rules, of: None, required: false } => !parts.headers.contains_key(rules.header_name()),
            _ => false,
        }
    }

    /// The service and the request's head are on the heap, and so is the call: each future on the way to the handler
    /// would have room for them once more, and be moved with it.
    pub(crate) async fn handle<S, B, R>(self: Arc<Self>, taken: Box<(S, Parts)>, body: B) -> Answered<R, S::Error>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>, Future: Send, Error: Send + 'static>
            + Send
            + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        R: Body<Data = Bytes, Error: Send> + Send + 'static,
    {
        let (call, body) = match self.call(&taken.1, body).await {
            // Boxed before anything else is waited for, or the future would keep the room for it.
            Ok((call, body)) => (call.map(|(call, key)| (Box::new(call), key)), body),
            Err(refused) => return Ok(refused.map(whole)),
        };
        let Some((call, key)) = call else {
            let (mut inner, parts) = *taken;
            let passed = Box::pin(inner.call(request(parts, body, self.max_body))).await;
            return passed.map(|response| response.map(ResponseBody::passing));
        };
        let (executor, rules, max_body) = (self.executor.clone(), self.response.clone(), self.max_body);
        let begun = Begun::of(Some(&executor), &call);
        let told = begun.clone();
        let run = async move {
            let handler = async || {
                let (mut inner, parts) = *taken;
                let mut request = request(parts, body, max_body);
                if let Some(attempt) = Attempt::current() {
                    request.extensions_mut().insert(attempt);
                }
                if let Some(key) = key {
                    request.extensions_mut().insert(key);
                }
                inner.call(request).await.map(|response| Answer { response, rules })
            };
            executor.run(call, Handler::<Replying<R, S::Error>, Json, _, _>::new(told.told(handler))).await
        };
        let run = Box::pin(AssertUnwindSafe(run).catch_unwind());
        let told = if self.detached { begun.detached(run).await } else { run.await };
        let kept = match told {
            Ok(Told::Replayed(kept)) if kept.is_elsewhere() => kept,
            Ok(told) => return self.answer(told),
            // The panic hook has told the log.
            Err(_) => return Ok(self.problem(Problem::new(ProblemKind::HandlerPanicked)).map(whole)),
        };
        let found = Box::pin(kept.fetched(self.response.spill.as_ref())).await;
        self.answer(Told::Replayed(Box::new(found)))
    }

    /// The call that a request makes and its body, or the answer to one that makes none. `None` where it has no key and
    /// needs none.
    #[allow(clippy::type_complexity, reason = "read at one place")]
    async fn call<B>(&self, parts: &Parts, body: B) -> Result<(Option<(Call, Option<IdempotencyKey>)>, Whole), Refused>
    where
        B: Body<Data = Bytes> + Send + 'static,
    {
        let head = self.claimed(parts).and_then(|claimed| Ok((claimed, self.caller(parts)?)));
        let (claimed, caller) = match head {
            Ok(head) => head,
            Err(refused) => return Err(self.before(refused, parts, Leftover::unread(body))),
        };
        let mut seen = self.payload.begin(parts);
        let body = read_body::whole(body, self.max_body, seen.as_mut()).await.map_err(|unread| match unread {
            Unread::TooLarge(rest) => {
                let detail = format!("The body is larger than the {} bytes taken. Nothing was done.", self.max_body);
                self.before(self.problem(Problem::new(ProblemKind::BodyTooLarge).detail(detail)), parts, rest)
            }
            Unread::Broken => self.problem(Problem::new(ProblemKind::InvalidBody)),
        })?;
        let fingerprint = self.payload.finish(seen, parts, &body.bytes);
        let key = match claimed {
            Claimed::KeyInBody => self.key_in_body(parts, &body.bytes)?.map(Claimed::Key),
            other => Some(other),
        };
        let Some(claimed) = key else { return Ok((None, body)) };
        let call = self.by(&claimed, parts, &caller, fingerprint)?;
        let key = if let Claimed::Key(key) = claimed { Some(key) } else { None };
        Ok((Some((call, key)), body))
    }

    fn caller(&self, parts: &Parts) -> Result<Caller, Refused> {
        let caller = self.principal.of(parts).map_err(|denied| denied.into_response())?;
        if self.principal.overlooks(&caller, parts) {
            return Err(self.misconfigured(
                &"a request with an `Authorization` header has an anonymous principal: put the authentication outside the \
                  layer, or use `Principal::none()` if all callers may read each other's answers",
            ));
        }
        Ok(caller)
    }

    fn misconfigured(&self, why: &dyn std::fmt::Display) -> Refused {
        tracing::error!(target: "idempotent", error = %why, "a request cannot be handled");
        self.problem(Problem::new(ProblemKind::Misconfigured))
    }

    /// An answer that comes before the body is in.
    fn before<B>(&self, mut refused: Refused, parts: &Parts, rest: Leftover<B>) -> Refused
    where
        B: Body<Data = Bytes> + Send + 'static,
    {
        rest.behind(&mut refused, parts, self.max_body, self.executor.clock().clone());
        refused
    }

    fn claimed(&self, parts: &Parts) -> Result<Claimed, Refused> {
        if let Some(wrong) = &self.wrong {
            return Err(self.misconfigured(wrong));
        }
        match &self.scene {
            Scene::Key { of: Some(_), .. } => Ok(Claimed::KeyInBody),
            Scene::Key { rules, .. } => match rules.read(&parts.headers) {
                Ok(Some(key)) => Ok(Claimed::Key(key)),
                Ok(None) => Err(self.missing_key()),
                Err(invalid) => Err(self.invalid_key(invalid)),
            },
            Scene::Token { header, .. } => match token(&parts.headers, header) {
                // None of ours is nearly as long.
                Some(token) if token.len() > 255 => Err(self.problem(Problem::new(ProblemKind::UnknownToken))),
                Some(token) => Ok(Claimed::Token(token)),
                None => Err(self.problem(Problem::new(ProblemKind::MissingToken))),
            },
            Scene::Param => Ok(Claimed::Params),
        }
    }

    fn key_in_body(&self, parts: &Parts, body: &Bytes) -> Result<Option<IdempotencyKey>, Refused> {
        let Scene::Key { rules, of: Some(of), required } = &self.scene else { return Ok(None) };
        match of(parts, body) {
            Some(text) => rules.checked(text).map(Some).map_err(|invalid| self.invalid_key(invalid)),
            None if *required => Err(self.missing_key()),
            None => Ok(None),
        }
    }

    fn by(
        &self,
        claimed: &Claimed,
        parts: &Parts,
        caller: &Caller,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Call, Refused> {
        let call = match (claimed, &self.scene) {
            // Its answer belongs to the route it was spent on.
            (Claimed::Token(token), Scene::Token { tokens, .. }) => {
                tokens.call(&**token, caller).fingerprint(Ok(payload::of_target(parts)))
            }
            (Claimed::Key(key), _) => {
                let call = Call::new(self.identity(parts, caller, key.as_str().as_bytes()));
                call.fingerprint(Ok(fingerprint.unwrap_or_else(|| payload::of_target(parts))))
            }
            // What a request says is its key.
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
            Scope::Named(scope) => Identity::new(CoreScene::Rest, scope.clone(), key),
            Scope::Route(named) => match route(named.as_deref(), parts) {
                Some(route) => Identity::new(CoreScene::Rest, [method, " ", &route].concat(), key),
                // Paths are too many to be names: they count as a part of the key.
                None => match payload::target(parts).path() {
                    path if path.len() + key.len() > KeyParts::MAX => {
                        Identity::new(CoreScene::Rest, method.to_owned(), &("long", key_hash(path), key))
                    }
                    path => Identity::new(CoreScene::Rest, method.to_owned(), &(path, key)),
                },
            },
        };
        let identity = identity.tenant(caller).described("the request's key");
        match &self.prefix {
            Some(prefix) => identity.prefix(prefix.clone()),
            None => identity,
        }
    }

    fn answer<R: Body<Data = Bytes>, E>(&self, told: Told<R, E>) -> Answered<R, E> {
        let gone =
            |location| self.problem(Problem::new(ProblemKind::ResponseNotRetained).location(location)).map(whole);
        Ok(match told {
            Told::Service(error) => return Err(error),
            Told::Failed(response) => *response,
            Told::Ran(kept) => kept.into_response().unwrap_or_else(gone),
            Told::Replayed(kept) => match kept.into_response() {
                Ok(mut response) => {
                    self.response.replay_header.mark(response.headers_mut());
                    response
                }
                Err(location) => gone(location),
            },
            Told::Rejected(rejection) => self.problem(rejection.into()).map(whole),
        })
    }

    fn missing_key(&self) -> Refused {
        self.problem(Problem::new(ProblemKind::MissingKey))
    }

    fn invalid_key(&self, invalid: InvalidKey) -> Refused {
        self.problem(Problem::new(ProblemKind::InvalidKey).detail(invalid.to_string()))
    }

    fn problem(&self, problem: Problem) -> Refused {
        let problem = problem.base(self.base.clone()).docs(self.docs.clone());
        match &self.words {
            Some(words) => {
                let mut response = words(problem);
                response.extensions_mut().insert(Idempotent::release());
                response.into()
            }
            None => problem.to_response().into(),
        }
    }
}

/// One line, as it stands.
fn token(headers: &HeaderMap, header: &http::HeaderName) -> Option<Box<str>> {
    let mut lines = headers.get_all(header).iter();
    let token = lines.next().filter(|_| lines.next().is_none())?.to_str().ok()?.trim();
    (!token.is_empty()).then(|| token.into())
}

fn route<'a>(named: Option<&Route>, parts: &'a Parts) -> Option<Cow<'a, str>> {
    match named {
        Some(named) => named(parts).map(Cow::Owned),
        None => template(parts).map(Cow::Borrowed),
    }
}

#[cfg(feature = "axum")]
fn template(parts: &Parts) -> Option<&str> {
    parts.extensions.get::<axum::extract::MatchedPath>().map(axum::extract::MatchedPath::as_str)
}

#[cfg(not(feature = "axum"))]
fn template(_: &Parts) -> Option<&str> {
    None
}

fn whole<R: Body>(bytes: Bytes) -> ResponseBody<R> {
    ResponseBody::whole(bytes, None)
}

/// Returns a request whose body has been read. A limit above axum's default also applies to axum's extractors. Otherwise, an
/// extractor would refuse such a body with a plain-text answer.
fn request<B>(parts: Parts, body: Whole, max_body: u64) -> Request<RequestBody<B>> {
    let mut request = Request::from_parts(parts, RequestBody::whole(body));
    #[cfg(feature = "axum")]
    if max_body > crate::layer::config::MAX_BODY {
        axum::extract::DefaultBodyLimit::max(usize::try_from(max_body).unwrap_or(usize::MAX)).apply(&mut request);
    }
    #[cfg(not(feature = "axum"))]
    let _ = (&mut request, max_body);
    request
}
