//! The layer, and its settings.
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use idempotent_core::{Clock, Executor, Fingerprint, Policy};
use idempotent_tower::{IdempotencyLayer, KeyRules, PayloadCheck, Principal, ResponseRules, SetupError, StorePolicy};
use tonic::Code;
use tower_layer::Layer;

use crate::call_rules::CallRules;
use crate::message_frames::PREFIX;
use crate::method_set::MethodSet;
use crate::problem_status::{denied_response, problem_status};
use crate::unary_responses::{UnaryCall, UnaryResponseRules, UnaryResponses};
use crate::{GrpcService, StreamPolicy};

/// A layer that protects the unary calls of gRPC services against repeated calls.
///
/// A call with the metadata entry `idempotency-key` runs once:
///
/// - A duplicate of a completed call receives the recorded response: metadata, message, status and trailers.
/// - A duplicate of a running call receives ABORTED with `google.rpc.RetryInfo`.
/// - The same key with a different message is rejected with FAILED_PRECONDITION.
/// - A call that fails frees its key.
///
/// All other calls pass through untouched, health checks and reflection included, unless
/// [`require_key`](Self::require_key) names their method. The method runs in its own task, so a
/// client that disconnects does not stop it, nor does a deadline.
///
/// Put authentication, rate limits and the translation of gRPC-Web *outside* this layer.
///
/// ```no_run
/// use idempotent_core::{Executor, MemoryStore};
/// use idempotent_tonic::{GrpcLayer, denied};
/// use idempotent_tower::{Caller, Principal};
/// use tonic::Status;
/// use tonic::transport::Server;
///
/// # async fn serve(routes: tonic::service::Routes) -> Result<(), Box<dyn std::error::Error>> {
/// let principal = Principal::from_fn(|head| {
///     let user = head.headers.get("x-user").and_then(|user| user.to_str().ok());
///     user.map(Caller::named).ok_or_else(|| denied(Status::unauthenticated("no user")))
/// });
/// let layer = GrpcLayer::new(Executor::new(MemoryStore::new()), principal).require_key(["/shop.Orders/Pay"]);
/// layer.check()?;
/// Server::builder().layer(layer).add_routes(routes).serve("127.0.0.1:3000".parse()?).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct GrpcLayer {
    http: IdempotencyLayer,
    clock: Arc<dyn Clock>,
    rules: CallRules,
    responses: ResponseRules,
    stored: Vec<Code>,
}

impl GrpcLayer {
    /// The default limit of a request message: 4 MiB, like the limit of tonic.
    pub const MAX_MESSAGE: u64 = 4 << 20;

    /// The default of [`stream_after`](Self::stream_after): 10 s.
    pub const STREAM_AFTER: Duration = Duration::from_secs(10);

    /// Creates a layer that stores records with this executor. The principal names the caller of a call: metadata are
    /// headers of the head that its function receives, and interceptors outside the layer can add extensions.
    pub fn new(executor: Executor, principal: Principal) -> Self {
        let clock = executor.clock().clone();
        let rules = CallRules {
            key: KeyRules::default(),
            key_required: MethodSet::default(),
            passed: MethodSet::default(),
            streams: StreamPolicy::default(),
            stream_after: Self::STREAM_AFTER,
        };
        let http = IdempotencyLayer::new(executor, principal.map_denied(denied_response)).methods([Method::POST]);
        let layer = Self { http, clock, rules, responses: ResponseRules::default(), stored: Vec::new() };
        layer.max_message(Self::MAX_MESSAGE)
    }

    /// Checks the settings. A layer with invalid settings responds with INTERNAL to each call with a key, and logs the
    /// reason.
    ///
    /// # Errors
    /// [`SetupError`] with the name and value of each invalid setting, and the remedy.
    pub fn check(&self) -> Result<(), SetupError> {
        self.configured().check()
    }

    /// Sets the rules for reading the key. Their header is the metadata entry, whose value is ASCII. A call with the
    /// binary form of the entry, whose name ends with `-bin`, is rejected with INVALID_ARGUMENT.
    ///
    /// # Default
    /// The entry `idempotency-key`, up to 255 characters
    pub fn key(mut self, rules: KeyRules) -> Self {
        self.rules.key = rules;
        self
    }

    /// Rejects calls of these methods without a key, with INVALID_ARGUMENT. A method is `/package.Service/Method`, and
    /// `/package.Service/*` names all methods of a service. Several calls add up.
    ///
    /// A request for such a method that is no unary gRPC call is rejected as well, with or without a key: another HTTP
    /// method than POST, another content type, or a streaming request whatever the [`StreamPolicy`].
    ///
    /// # Default
    /// Calls without a key pass through without protection
    pub fn require_key<M: Into<String>>(mut self, methods: impl IntoIterator<Item = M>) -> Self {
        self.rules.key_required.extend(methods);
        self
    }

    /// Passes calls of these methods through untouched, with or without a key. Name the streaming methods here if their
    /// clients send keys. The form is the one of [`require_key`](Self::require_key). Several calls add up.
    pub fn pass_through<M: Into<String>>(mut self, methods: impl IntoIterator<Item = M>) -> Self {
        self.rules.passed.extend(methods);
        self
    }

    /// Sets the treatment of a call with a key that turns out to be a stream.
    ///
    /// # Default
    /// [`StreamPolicy::Refuse`]
    pub fn streams(mut self, policy: StreamPolicy) -> Self {
        self.rules.streams = policy;
        self
    }

    /// Sets the longest pause in the request or response of a call with a key. After a longer pause the call counts as a
    /// stream. The limit prevents that the layer and the client of a bidirectional stream wait for each other.
    ///
    /// # Default
    /// [`STREAM_AFTER`](Self::STREAM_AFTER), 10 s
    pub fn stream_after(mut self, pause: Duration) -> Self {
        self.rules.stream_after = pause;
        self
    }

    /// Sets the size of the largest accepted request message, in bytes as sent. A larger message is rejected with
    /// RESOURCE_EXHAUSTED before the layer claims the key. The services inside have limits of their own.
    ///
    /// # Default
    /// [`MAX_MESSAGE`](Self::MAX_MESSAGE), 4 MiB
    pub fn max_message(mut self, bytes: u64) -> Self {
        self.http = self.http.max_body(bytes.saturating_add(PREFIX as u64));
        self
    }

    /// Sets the comparison of calls with the same key, in addition to the method. The function receives the message as
    /// sent, without its prefix. If it returns `None`, only the method counts.
    ///
    /// # Default
    /// The bytes of the message and its flag of compression. A client must resend the same bytes: two encodings of one
    /// message may differ, for example if the message has maps or is compressed once.
    pub fn compare(
        mut self,
        fingerprint: impl Fn(&Parts, &Bytes) -> Option<Fingerprint> + Send + Sync + 'static,
    ) -> Self {
        let check = move |head: &Parts, body: &Bytes| fingerprint(head, &body.slice(PREFIX.min(body.len())..));
        self.http = self.http.payload(PayloadCheck::by(check));
        self
    }

    /// Sets the rules for storing responses, such as size limits, dropped metadata and the marker of a replay. Their
    /// [`store`](ResponseRules::store) has no effect: [`store_codes`](Self::store_codes) replaces it.
    pub fn response(mut self, rules: ResponseRules) -> Self {
        self.responses = rules;
        self
    }

    /// Stores the responses with these codes as well. Use it for codes that a retry would not change, such as
    /// [`Code::FailedPrecondition`] for a payment that was declined. Several calls add up.
    ///
    /// # Default
    /// Only OK is stored. Any other code frees the key
    pub fn store_codes(mut self, codes: impl IntoIterator<Item = Code>) -> Self {
        self.stored.extend(codes);
        self
    }

    /// Sets the namespace of the keys.
    ///
    /// # Default
    /// The namespace of the executor
    pub fn namespace(mut self, namespace: impl Into<Cow<'static, str>>) -> Self {
        self.http = self.http.namespace(namespace);
        self
    }

    /// Sets lease, retries and other settings. They override the executor's policy for REST.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.http = self.http.policy(policy);
        self
    }

    /// Sets how long a run holds its key without a renewal.
    ///
    /// # Default
    /// 30 s, renewed every 10 s
    pub fn lease(mut self, lease: Duration) -> Self {
        self.http = self.http.lease(lease);
        self
    }

    /// Sets how long a response is retained after its run has completed.
    ///
    /// # Default
    /// 24 h
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.http = self.http.ttl(ttl);
        self
    }

    /// Sets how long a duplicate of a running call waits for its response. After that time it is rejected with ABORTED.
    ///
    /// # Default
    /// No waiting
    pub fn wait(mut self, most: Duration) -> Self {
        self.http = self.http.wait(most);
        self
    }

    /// Sets whether methods run without protection while the store is unavailable. Duplicates then run as well.
    ///
    /// # Default
    /// `false`: rejected with UNAVAILABLE
    pub fn fail_open(mut self, open: bool) -> Self {
        self.http = self.http.fail_open(open);
        self
    }

    /// Sets whether a method is dropped when its client disconnects or its deadline passes. The effect of a method that
    /// had started is then unknown, and its key stays held until the lease expires.
    ///
    /// # Default
    /// `false`: the method completes, and a retry receives its response
    pub fn cancel_on_disconnect(mut self, cancel: bool) -> Self {
        self.http = self.http.cancel_on_disconnect(cancel);
        self
    }

    /// Returns the layer of `idempotent-tower` with all settings.
    fn configured(&self) -> IdempotencyLayer {
        let key = self.rules.key.header_name().clone();
        let http = self.http.clone().key(self.rules.key.clone());
        let http = http
            .response(self.responses.clone().store(StorePolicy::Grpc))
            .skip(|head| head.extensions.get::<UnaryCall>().is_none())
            // The route template of a tonic server names the service and not the method.
            .route(|_| None)
            .problem_response(move |problem| problem_status(&problem, &key).into_http());
        self.rules.problems().into_iter().fold(http, IdempotencyLayer::invalid)
    }
}

impl<S: Clone> Layer<S> for GrpcLayer {
    type Service = GrpcService<S>;

    fn layer(&self, inner: S) -> GrpcService<S> {
        let rules = UnaryResponseRules {
            streams: self.rules.streams,
            stream_after: self.rules.stream_after,
            stored: self.stored.clone(),
            largest: self.responses.largest_in_memory(),
            clock: self.clock.clone(),
        };
        let guarded = self.configured().layer(UnaryResponses::new(inner.clone(), Arc::new(rules)));
        GrpcService::new(guarded, inner, Arc::new(self.rules.clone()), self.clock.clone())
    }
}

impl fmt::Debug for GrpcLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcLayer").field("rules", &self.rules).field("stored", &self.stored).finish_non_exhaustive()
    }
}
