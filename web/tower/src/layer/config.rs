//! The settings of a layer.
use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response};
use idempotent_core::{DuplicateMessages, Executor, Policy, Scene, Tokens};

use crate::layer::setup_error::{self as setup, SetupError, UnusedSetter};
use crate::{KeyRules, PayloadCheck, Principal, Problem, ResponseRules};

pub(crate) type RouteFn = dyn Fn(&Parts) -> Option<String> + Send + Sync;
pub(crate) type KeyFn = dyn Fn(&Parts, &Bytes) -> Option<String> + Send + Sync;
pub(crate) type ProblemFn = dyn Fn(Problem) -> Response<Bytes> + Send + Sync;
pub(crate) type SkipFn = dyn Fn(&Parts) -> bool + Send + Sync;

/// The default limit for request bodies, in bytes, like the limit of axum's extractors.
pub(crate) const MAX_BODY: u64 = 2 << 20;

/// The settings that all requests of a layer share.
#[derive(Clone)]
pub(crate) struct LayerConfig {
    pub(crate) executor: Executor,
    pub(crate) principal: Principal,
    pub(crate) key_source: KeySource,
    pub(crate) methods: Vec<Method>,
    pub(crate) skip: Option<Arc<SkipFn>>,
    pub(crate) scope: KeyScope,
    pub(crate) prefix: Option<Cow<'static, str>>,
    pub(crate) payload: PayloadCheck,
    pub(crate) max_body: u64,
    pub(crate) response: Arc<ResponseRules>,
    pub(crate) policy: Policy,
    pub(crate) message: Option<DuplicateMessages>,
    pub(crate) detached: bool,
    pub(crate) base: Cow<'static, str>,
    pub(crate) docs: Option<HeaderValue>,
    pub(crate) problem_fn: Option<Arc<ProblemFn>>,
    /// The called setters that have no effect with some key source.
    pub(crate) called_setters: Vec<&'static str>,
    /// Problems of the settings that an adapter has found.
    pub(crate) adapter_problems: Vec<String>,
    /// The reason why the layer rejects each request.
    pub(crate) setup_error: Option<Arc<SetupError>>,
}

/// The source of the key of a request.
#[derive(Clone)]
pub(crate) enum KeySource {
    Key { rules: KeyRules, of: Option<Arc<KeyFn>>, required: bool },
    Token { header: HeaderName, tokens: Tokens },
    Param,
}

#[derive(Clone)]
pub(crate) enum KeyScope {
    /// One scope for each method and route.
    Route(Option<Arc<RouteFn>>),
    Named(Cow<'static, str>),
}

impl LayerConfig {
    pub(crate) fn new(executor: Executor, principal: Principal, key_source: KeySource) -> Self {
        Self {
            executor,
            principal,
            key_source,
            methods: vec![Method::POST, Method::PATCH],
            skip: None,
            scope: KeyScope::Route(None),
            prefix: None,
            payload: PayloadCheck::bytes(),
            max_body: MAX_BODY,
            response: Arc::default(),
            policy: Policy::new(),
            message: None,
            detached: true,
            base: Cow::Borrowed(Problem::BASE),
            docs: None,
            problem_fn: None,
            called_setters: Vec::new(),
            adapter_problems: Vec::new(),
            setup_error: None,
        }
    }

    /// Returns the settings for a service, with the effective policy, the clock of the executor, and the setup error.
    pub(crate) fn prepared(&self) -> Self {
        // The executor rejects an invalid policy itself, and counts that.
        let setup_error = SetupError::of(&self.unused_setters(), self.other_problems(), Ok(())).err().map(Arc::new);
        let response = ResponseRules::timed(&self.response, &self.executor);
        Self { policy: self.effective_policy(), response, setup_error, ..self.clone() }
    }

    pub(crate) fn check(&self) -> Result<(), SetupError> {
        SetupError::of(&self.unused_setters(), self.other_problems(), self.effective_policy().check(&Scene::Rest))
    }

    fn unused_setters(&self) -> Vec<UnusedSetter> {
        setup::unused_setters(&self.key_source, &self.called_setters, &self.response)
    }

    fn other_problems(&self) -> impl Iterator<Item = &str> {
        let empty = self.empty_settings().map(|text| -> &str { text });
        empty.chain(self.adapter_problems.iter().map(String::as_str))
    }

    fn empty_settings(&self) -> impl Iterator<Item = &'static str> + use<> {
        let scope = matches!(&self.scope, KeyScope::Named(name) if name.is_empty());
        let namespace = self.prefix.as_ref().is_some_and(|name| name.is_empty());
        let window = matches!(self.key_source, KeySource::Param) && !self.effective_policy().has_window();
        setup::empty_settings(self.methods.is_empty(), scope, namespace, window)
    }

    /// Merges the policies: the layer overrides the executor, which overrides the response rules.
    fn effective_policy(&self) -> Policy {
        self.policy.or(self.executor.policy(&Scene::Rest)).or(self.response.policy())
    }
}
