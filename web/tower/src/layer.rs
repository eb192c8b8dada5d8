//! The middleware for tower services, and its settings.
mod config;
mod handle;
mod local;
mod reply;
mod service;
mod settings;
mod setup_error;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderName;
use http::request::Parts;
use http::{Method, Response};
use idempotent_core::{DuplicateMessages, Executor, OnConsumed, OnInFlight, OnStoreError, Policy, Tokens};
use tower_layer::Layer;

use self::config::{KeyScope, KeySource, LayerConfig};
pub use self::local::{LocalLayer, RouteTemplate};
pub use self::service::{IdempotencyService, ResponseFuture};
pub use self::settings::LayerSettings;
pub use self::setup_error::SetupError;
use crate::problem::docs_header;
use crate::{KeyRules, PayloadCheck, Principal, Problem, ResponseRules};

/// A layer that protects handlers against repeated requests.
///
/// POST and PATCH requests with an `Idempotency-Key` run once:
///
/// - A duplicate of a completed request receives the recorded response.
/// - A duplicate of a running request receives 409 with `Retry-After`.
/// - The same key with a different payload is rejected with 422.
/// - A failure frees the key.
///
/// All other requests pass through untouched. The handler runs in its own task, so a client that disconnects does not
/// stop it.
///
/// Put authentication, rate limits, timeouts and compression *outside* this layer.
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
    config: LayerConfig,
}

impl IdempotencyLayer {
    /// The default window of [`by_param`](Self::by_param): 5 s.
    pub const WINDOW: Duration = Duration::from_secs(5);

    /// Creates a layer that identifies requests by their `Idempotency-Key` and stores records with this executor.
    pub fn new(executor: Executor, principal: Principal) -> Self {
        let scene = KeySource::Key { rules: KeyRules::default(), of: None, required: true };
        Self { config: LayerConfig::new(executor, principal, scene) }
    }

    /// Creates a layer that identifies requests by tokens that were issued to the caller before, in
    /// `X-Idempotent-Token`. Each token is valid for one successful request, whatever its payload. Requests run on the
    /// executor of the tokens.
    pub fn by_token(tokens: Tokens, principal: Principal) -> Self {
        let executor = tokens.executor().clone();
        let scene = KeySource::Token { header: HeaderName::from_static("x-idempotent-token"), tokens };
        Self { config: LayerConfig::new(executor, principal, scene) }.reject_duplicates()
    }

    /// Creates a layer without keys. Equal requests of one caller are duplicates while the first runs, and for
    /// [`WINDOW`](Self::WINDOW) after its end. Use it only for routes where two equal requests in a row are a mistake.
    pub fn by_param(executor: Executor, principal: Principal) -> Self {
        let layer = Self { config: LayerConfig::new(executor, principal, KeySource::Param) }.reject_duplicates();
        layer.with(Policy::new().window(Self::WINDOW))
    }

    /// Rejects duplicates of completed requests instead of replaying the response.
    fn reject_duplicates(mut self) -> Self {
        self.config.policy = self.config.policy.on_consumed(OnConsumed::Refuse);
        self
    }

    fn with(mut self, policy: Policy) -> Self {
        self.config.policy = policy.or(self.config.policy);
        self
    }

    /// Records a call of a setter that has no effect in some layers, for [`check`](Self::check).
    fn record_setter(mut self, setter: &'static str) -> Self {
        self.config.called_setters.push(setter);
        self
    }

    /// Forgets the call of a setter that was reset to its default.
    fn forget_setter(mut self, setter: &'static str) -> Self {
        self.config.called_setters.retain(|called| *called != setter);
        self
    }

    /// Adds a problem of the settings that an adapter has found. Such a layer rejects each request that it handles.
    #[doc(hidden)]
    pub fn invalid(mut self, problem: String) -> Self {
        self.config.adapter_problems.push(problem);
        self
    }

    /// Checks the settings. A layer with invalid settings responds with 500 to each request and logs the reason. A
    /// setter that has no effect in this layer, such as `payload` for tokens, is invalid as well.
    ///
    /// # Errors
    /// [`SetupError`] with the name and value of each invalid setting, and the remedy.
    pub fn check(&self) -> Result<(), SetupError> {
        self.config.check()
    }

    /// Sets the rules for reading the key.
    pub fn key(mut self, rules: KeyRules) -> Self {
        if let KeySource::Key { rules: current, .. } = &mut self.config.key_source {
            *current = rules;
        }
        self.record_setter("key")
    }

    /// Reads the key from another source than a header, such as a field of the body. `None` is a missing key. The rules
    /// of [`key`](Self::key) check its length and format.
    pub fn key_from(mut self, key: impl Fn(&Parts, &Bytes) -> Option<String> + Send + Sync + 'static) -> Self {
        if let KeySource::Key { of, .. } = &mut self.config.key_source {
            *of = Some(Arc::new(key));
        }
        self.record_setter("key_from")
    }

    /// Sets whether a request without a key is rejected with 400, or passes through without protection. A malformed key
    /// is always rejected.
    ///
    /// # Default
    /// `true`: rejected
    pub fn required(mut self, required: bool) -> Self {
        if let KeySource::Key { required: current, .. } = &mut self.config.key_source {
            *current = required;
        }
        self.record_setter("required")
    }

    /// Sets the header that contains the token.
    ///
    /// # Default
    /// `X-Idempotent-Token`
    pub fn token_header(mut self, name: HeaderName) -> Self {
        if let KeySource::Token { header, .. } = &mut self.config.key_source {
            *header = name;
        }
        self.record_setter("token_header")
    }

    /// Sets how long after the completion of a run an equal request counts as a duplicate. Zero means no window and is
    /// invalid with [`by_param`](Self::by_param). A run whose process died holds its key until the lease expires, which may
    /// take longer than the window.
    ///
    /// # Default
    /// [`WINDOW`](Self::WINDOW) for [`by_param`](Self::by_param). Otherwise no window: [`ttl`](Self::ttl) applies, which a
    /// window replaces
    pub fn window(self, window: Duration) -> Self {
        let layer = self.with(Policy::new().window(window));
        if window.is_zero() { layer.forget_setter("window") } else { layer.record_setter("window") }
    }

    /// Sets whether a duplicate of a completed request receives the recorded response instead of 409. This applies to a
    /// used key, a used token, and an equal request within the window.
    ///
    /// # Default
    /// `true` for keys, `false` for tokens and params
    pub fn replay(self, replay: bool) -> Self {
        let on_consumed = if replay { OnConsumed::Replay } else { OnConsumed::Refuse };
        self.with(Policy::new().on_consumed(on_consumed))
    }

    /// Sets the `detail` text of the problem that a rejected duplicate receives: one text, or one per language. The
    /// layer selects a language by the request's `Accept-Language`.
    ///
    /// # Default
    /// The [`duplicate_messages`](idempotent_core::ExecutorBuilder::duplicate_messages) of the executor
    pub fn message(mut self, message: impl Into<DuplicateMessages>) -> Self {
        self.config.message = Some(message.into());
        self
    }

    /// Sets the methods of protected requests. Requests with another method pass through untouched, whatever their
    /// headers.
    ///
    /// # Default
    /// POST and PATCH
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.config.methods = methods.into_iter().collect();
        self
    }

    /// Passes requests through untouched for which this function returns true.
    pub fn skip(mut self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.config.skip = Some(Arc::new(skip));
        self
    }

    /// Sets one scope for all routes. A key that is used on two routes is then the same key, and the second request is
    /// rejected with 422 because it differs.
    ///
    /// # Default
    /// One scope for each method and route
    pub fn scope(mut self, scope: impl Into<Cow<'static, str>>) -> Self {
        self.config.scope = KeyScope::Named(scope.into());
        self.record_setter("scope")
    }

    /// Names the route of a request, such as `/orders/{id}`. With the feature `axum`, the default is the route
    /// template. A request without a named route uses its path, or the hash of the path if it is too long for a key.
    pub fn route(mut self, route: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.config.scope = KeyScope::Route(Some(Arc::new(route)));
        self.record_setter("route")
    }

    /// Sets the namespace of the keys.
    ///
    /// # Default
    /// The namespace of the executor
    pub fn namespace(mut self, namespace: impl Into<Cow<'static, str>>) -> Self {
        self.config.prefix = Some(namespace.into());
        self.record_setter("namespace")
    }

    /// Sets the comparison of requests with the same key.
    ///
    /// # Default
    /// [`PayloadCheck::bytes`]
    pub fn payload(mut self, check: PayloadCheck) -> Self {
        self.config.payload = check;
        self.record_setter("payload")
    }

    /// Sets the size of the largest accepted body, in bytes. A larger body is rejected with 413 before the layer claims
    /// the key.
    ///
    /// If a request is rejected before its body has arrived, the layer reads and discards up to the same number of
    /// bytes after the response, but at least 64 KiB, for up to 2 s.
    ///
    /// A limit above 2 MiB also applies to axum's extractors inside the layer, which would otherwise reject such a body
    /// by their `DefaultBodyLimit`. The limit then also overrides a lower `DefaultBodyLimit` outside the layer. A
    /// `DefaultBodyLimit` between the layer and the handler overrides this limit.
    ///
    /// # Default
    /// 2 MiB, like axum's extractors
    pub fn max_body(mut self, bytes: u64) -> Self {
        self.config.max_body = bytes;
        self
    }

    /// Sets the rules for storing responses.
    pub fn response(mut self, rules: ResponseRules) -> Self {
        self.config.response = Arc::new(rules);
        self
    }

    /// Sets lease, retries and other settings. They override the executor's policy for REST.
    pub fn policy(self, policy: Policy) -> Self {
        self.with(policy)
    }

    /// Sets how long a run holds its key without a renewal.
    ///
    /// # Default
    /// 30 s, renewed every 10 s
    pub fn lease(self, lease: Duration) -> Self {
        self.with(Policy::new().lease(lease))
    }

    /// Sets the interval at which the lease is renewed while the handler runs.
    ///
    /// # Default
    /// A third of the lease
    pub fn heartbeat(self, heartbeat: Duration) -> Self {
        self.with(Policy::new().heartbeat(heartbeat))
    }

    /// Sets how long a response is retained after its run has completed.
    ///
    /// # Default
    /// 24 h
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(Policy::new().retain(ttl)).record_setter("ttl")
    }

    /// Sets how long a duplicate of a running request waits for its response. After that time it is rejected with 409.
    /// It stops waiting when its client disconnects.
    ///
    /// # Default
    /// No waiting
    pub fn wait(self, most: Duration) -> Self {
        self.with(Policy::new().on_in_flight(OnInFlight::Wait(most)))
    }

    /// Sets whether handlers run without protection while the store is unavailable. Duplicates then run as well.
    ///
    /// # Default
    /// `false`: rejected with 503
    pub fn fail_open(self, open: bool) -> Self {
        let on_store_error = if open { OnStoreError::RunUnprotected } else { OnStoreError::Fail };
        let layer = self.with(Policy::new().on_store_error(on_store_error));
        if open { layer.record_setter("fail_open") } else { layer.forget_setter("fail_open") }
    }

    /// Sets whether the handler is dropped when its client disconnects. A handler that had not started frees its key.
    /// The effect of one that had started is unknown, so its key stays held until the lease expires.
    ///
    /// # Default
    /// `false`: the handler completes, and a retry receives its response
    pub fn cancel_on_disconnect(mut self, cancel: bool) -> Self {
        self.config.detached = !cancel;
        self
    }

    /// Sets the prefix of the `type` of problems; the code follows it.
    ///
    /// # Default
    /// [`Problem::BASE`]
    pub fn problem_base(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.config.base = uri.into();
        self
    }

    /// Sets the URI of the documentation for clients. A problem about the key contains the URI as a `Link` header with
    /// `rel="describedby"`; other problems have no such header.
    ///
    /// # Default
    /// The page of [`Problem::BASE`], which also replaces an invalid URI
    pub fn docs_link(mut self, uri: &str) -> Self {
        self.config.docs = docs_header(uri);
        self
    }

    /// Customizes the response that a [`Problem`] becomes.
    pub fn problem_response(mut self, response: impl Fn(Problem) -> Response<Bytes> + Send + Sync + 'static) -> Self {
        self.config.problem_fn = Some(Arc::new(response));
        self
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, Arc::new(self.config.prepared()))
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scene = match &self.config.key_source {
            KeySource::Key { .. } => "key",
            KeySource::Token { .. } => "token",
            KeySource::Param => "param",
        };
        f.debug_struct("IdempotencyLayer")
            .field("by", &scene)
            .field("principal", &self.config.principal)
            .field("payload", &self.config.payload)
            .field("policy", &self.config.policy)
            .finish_non_exhaustive()
    }
}
