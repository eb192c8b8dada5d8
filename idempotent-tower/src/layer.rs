//! The middleware for tower services, and its settings.
mod config;
mod handle;
mod reply;
mod service;
mod setup_error;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response};
use idempotent_core::{Executor, OnConsumed, OnInFlight, OnStoreError, Policy, Tokens};
use tower_layer::Layer;

use self::config::{Scene, Scope, Shared};
pub use self::service::{IdempotencyService, ResponseFuture};
pub use self::setup_error::SetupError;
use crate::{KeyRules, PayloadCheck, Principal, Problem, ResponseRules};

/// Makes the handlers behind it safe against requests that come twice.
///
/// POST and PATCH requests with an `Idempotency-Key` run once: a duplicate of one that is done gets the recorded answer,
/// of one that is running 409 with `Retry-After`, the same key with another payload 422, and a failure frees the key.
/// Everything else passes untouched. The handler runs in a task of its own: a client that goes away does not stop it.
///
/// Put authentication, rate limits, timeouts and compression *around* it.
///
/// ```
/// use axum::Router;
/// use axum::routing::post;
/// use idempotent_core::{Executor, MemoryStore};
/// use idempotent_tower::{Caller, IdempotencyLayer, Principal};
///
/// let principal = Principal::from_fn(|parts| {
///     let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok());
///     Ok(user.map_or_else(Caller::anonymous, Caller::named))
/// });
/// let layer = IdempotencyLayer::new(Executor::new(MemoryStore::new()), principal);
/// let app: Router = Router::new().route("/orders", post(async || "ordered")).layer(layer);
/// # drop(app);
/// ```
#[derive(Clone)]
#[must_use]
pub struct IdempotencyLayer {
    shared: Shared,
}

impl IdempotencyLayer {
    /// The window of [`params`](Self::params), unless told otherwise.
    pub const WINDOW: Duration = Duration::from_secs(5);

    /// By `Idempotency-Key`, with the records of this executor.
    pub fn new(executor: Executor, principal: Principal) -> Self {
        let scene = Scene::Key { rules: KeyRules::default(), of: None, required: true };
        Self { shared: Shared::new(executor, principal, scene) }
    }

    /// By tokens that were issued to the caller before, in `X-Idempotent-Token`: each is good for one request that
    /// succeeds. The payload does not count. Runs are those of the executor that the tokens are of.
    pub fn tokens(tokens: Tokens, principal: Principal) -> Self {
        let executor = tokens.executor().clone();
        let scene = Scene::Token { header: HeaderName::from_static("x-idempotent-token"), tokens };
        Self { shared: Shared::new(executor, principal, scene) }.refusing()
    }

    /// Without any key: two requests of one caller that say the same are one while the first runs, and for
    /// [`WINDOW`](Self::WINDOW) after it is done. Only for routes where two equal requests in a row are a mistake.
    pub fn params(executor: Executor, principal: Principal) -> Self {
        let layer = Self { shared: Shared::new(executor, principal, Scene::Param) }.refusing();
        layer.with(Policy::new().window(Self::WINDOW))
    }

    fn refusing(mut self) -> Self {
        self.shared.policy = self.shared.policy.on_consumed(OnConsumed::Refuse);
        self
    }

    fn with(mut self, policy: Policy) -> Self {
        self.shared.policy = policy.or(self.shared.policy);
        self
    }

    /// Notes a setter that does nothing for some layers, for [`check`](Self::check).
    fn called(mut self, setter: &'static str) -> Self {
        self.shared.called.push(setter);
        self
    }

    /// What was set is what it is without.
    fn taken_back(mut self, setter: &'static str) -> Self {
        self.shared.called.retain(|called| *called != setter);
        self
    }

    /// Whether what was set makes sense: else every request is answered 500, and the log says why. That is also so
    /// where something was set that does nothing in this layer, as `payload` does for tokens.
    ///
    /// # Errors
    /// [`SetupError`]: what is wrong, by name and number, and what to do.
    pub fn check(&self) -> Result<(), SetupError> {
        self.shared.check()
    }

    /// Where the key stands and what it must look like.
    pub fn key(mut self, rules: KeyRules) -> Self {
        if let Scene::Key { rules: current, .. } = &mut self.shared.scene {
            *current = rules;
        }
        self.called("key")
    }

    /// Takes the key from elsewhere than a header: a field of the body, say. `None` is a missing key; length and format
    /// are checked by the rules of [`key`](Self::key).
    pub fn key_from(mut self, key: impl Fn(&Parts, &Bytes) -> Option<String> + Send + Sync + 'static) -> Self {
        if let Scene::Key { of, .. } = &mut self.shared.scene {
            *of = Some(Arc::new(key));
        }
        self.called("key_from")
    }

    /// Whether a request without a key is refused (400), or passes without protection. A malformed key is refused in any
    /// case.
    ///
    /// # Default
    /// Refused
    pub fn required(mut self, required: bool) -> Self {
        if let Scene::Key { required: current, .. } = &mut self.shared.scene {
            *current = required;
        }
        self.called("required")
    }

    /// The header that tokens come in.
    ///
    /// # Default
    /// `X-Idempotent-Token`
    pub fn token_header(mut self, name: HeaderName) -> Self {
        if let Scene::Token { header, .. } = &mut self.shared.scene {
            *header = name;
        }
        self.called("token_header")
    }

    /// Sets how long after a run's end an equal request counts as a duplicate. Zero means no window and is refused with
    /// [`params`](Self::params). A run that died holds its key until the lease expires, which may take longer than the window.
    ///
    /// # Default
    /// [`WINDOW`](Self::WINDOW) for [`params`](Self::params), else none: [`ttl`](Self::ttl) counts, in whose place it is
    pub fn window(self, window: Duration) -> Self {
        let layer = self.with(Policy::new().window(window));
        if window.is_zero() { layer.taken_back("window") } else { layer.called("window") }
    }

    /// Answers a used key, a used token, or an equal request within the window, with the recorded answer instead of 409.
    ///
    /// # Default
    /// For keys yes, for tokens and params no
    pub fn replay(self, replay: bool) -> Self {
        let on_consumed = if replay { OnConsumed::Replay } else { OnConsumed::Refuse };
        self.with(Policy::new().on_consumed(on_consumed))
    }

    /// What a duplicate that gets no answer of its own reads as `detail`.
    pub fn message(mut self, message: impl Into<Arc<str>>) -> Self {
        self.shared.message = Some(message.into());
        self
    }

    /// The methods it looks at; all others pass untouched, whatever their headers.
    ///
    /// # Default
    /// POST and PATCH
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.shared.methods = methods.into_iter().collect();
        self
    }

    /// Lets requests pass untouched for which this says so.
    pub fn skip(mut self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.shared.skip = Some(Arc::new(skip));
        self
    }

    /// One scope for all routes: the same key on another route is then the same key, and refused (422) since the request
    /// is another.
    ///
    /// # Default
    /// Each method and route has keys of its own
    pub fn scope(mut self, scope: impl Into<Cow<'static, str>>) -> Self {
        self.shared.scope = Scope::Named(scope.into());
        self.called("scope")
    }

    /// Names the route a request belongs to, `/orders/{id}` say. With the feature `axum` its route templates are used;
    /// where nothing names a route it is the path, or its hash where it is too long for a key.
    pub fn route(mut self, route: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.shared.scope = Scope::Route(Some(Arc::new(route)));
        self.called("route")
    }

    /// The namespace of its keys.
    ///
    /// # Default
    /// The executor's
    pub fn namespace(mut self, namespace: impl Into<Cow<'static, str>>) -> Self {
        self.shared.prefix = Some(namespace.into());
        self.called("namespace")
    }

    /// What two requests with one key must have in common.
    ///
    /// # Default
    /// [`PayloadCheck::bytes`]
    pub fn payload(mut self, check: PayloadCheck) -> Self {
        self.shared.payload = check;
        self.called("payload")
    }

    /// The largest body taken, in bytes; a larger one is refused (413) before anything is claimed. Of a request that is
    /// refused before its body is in, as much again is read away behind the answer (64 KiB at least), for two seconds.
    ///
    /// A limit above 2 MiB also applies to axum's extractors inside the layer, which would otherwise refuse such a body by their
    /// `DefaultBodyLimit`; the limit then also overrides a lower `DefaultBodyLimit` outside the layer. A `DefaultBodyLimit`
    /// between the layer and the handler overrides this limit.
    ///
    /// # Default
    /// 2 MiB, as axum's extractors
    pub fn max_body(mut self, bytes: u64) -> Self {
        self.shared.max_body = bytes;
        self
    }

    /// Which answers are kept, and what of them.
    pub fn response(mut self, rules: ResponseRules) -> Self {
        self.shared.response = Arc::new(rules);
        self
    }

    /// Leases, retries and the rest, over the executor's policy for REST.
    pub fn policy(self, policy: Policy) -> Self {
        self.with(policy)
    }

    /// How long a run may hold its key without a renewal.
    ///
    /// # Default
    /// 30 s, renewed every third of it
    pub fn lease(self, lease: Duration) -> Self {
        self.with(Policy::new().lease(lease))
    }

    /// How often a lease is renewed while its handler runs.
    ///
    /// # Default
    /// A third of the lease
    pub fn heartbeat(self, heartbeat: Duration) -> Self {
        self.with(Policy::new().heartbeat(heartbeat))
    }

    /// How long an answer is kept, from the end of its run.
    ///
    /// # Default
    /// 24 h
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(Policy::new().retain(ttl)).called("ttl")
    }

    /// A duplicate of a running request waits this long for its answer, and is told to come back only then. It goes with
    /// its client.
    ///
    /// # Default
    /// It is told at once
    pub fn wait(self, most: Duration) -> Self {
        self.with(Policy::new().on_in_flight(OnInFlight::Wait(most)))
    }

    /// Runs handlers without protection while the store cannot be reached: duplicates run too.
    ///
    /// # Default
    /// No: 503
    pub fn fail_open(self, open: bool) -> Self {
        let on_store_error = if open { OnStoreError::RunUnprotected } else { OnStoreError::Fail };
        let layer = self.with(Policy::new().on_store_error(on_store_error));
        if open { layer.called("fail_open") } else { layer.taken_back("fail_open") }
    }

    /// Drops the handler with its request when the client goes away. One that had not started frees the key; of one that
    /// had the effect is unknown, and the key is left to its lease.
    ///
    /// # Default
    /// No: it runs to its end, and a retry gets its answer
    pub fn cancel_on_disconnect(mut self, cancel: bool) -> Self {
        self.shared.detached = !cancel;
        self
    }

    /// What the `type` of problems begins with; the code follows.
    ///
    /// # Default
    /// [`Problem::BASE`]
    pub fn problem_base(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.shared.base = uri.into();
        self
    }

    /// Where clients read how to send keys: a `Link` with `rel="describedby"` on every problem with the key.
    ///
    /// # Default
    /// The page that [`Problem::BASE`] is on, also in place of what is no address: name your own
    pub fn docs(mut self, uri: &str) -> Self {
        let is_address = uri.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"".contains(&byte));
        let link = HeaderValue::try_from(format!("<{uri}>; rel=\"describedby\""));
        self.shared.docs = link.ok().filter(|_| is_address);
        self
    }

    /// Puts problems into other words, another form or another status.
    pub fn problem(mut self, words: impl Fn(Problem) -> Response<Bytes> + Send + Sync + 'static) -> Self {
        self.shared.words = Some(Arc::new(words));
        self
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, Arc::new(self.shared.in_use()))
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scene = match &self.shared.scene {
            Scene::Key { .. } => "key",
            Scene::Token { .. } => "token",
            Scene::Param => "param",
        };
        f.debug_struct("IdempotencyLayer")
            .field("by", &scene)
            .field("principal", &self.shared.principal)
            .field("payload", &self.shared.payload)
            .field("policy", &self.shared.policy)
            .finish_non_exhaustive()
    }
}
