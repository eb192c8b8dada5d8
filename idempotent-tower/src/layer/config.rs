//! What a layer's requests share.
use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response};
use idempotent_core::{Executor, Policy, Scene as CoreScene, Tokens};

use crate::layer::setup_error::{self as setup, Idle, SetupError};
use crate::{KeyRules, PayloadCheck, Principal, Problem, ResponseRules};

pub(crate) type Route = dyn Fn(&Parts) -> Option<String> + Send + Sync;
pub(crate) type KeyOf = dyn Fn(&Parts, &Bytes) -> Option<String> + Send + Sync;
pub(crate) type Words = dyn Fn(Problem) -> Response<Bytes> + Send + Sync;
pub(crate) type Skip = dyn Fn(&Parts) -> bool + Send + Sync;

/// The default limit for bodies, in bytes. axum's extractors have the same.
pub(crate) const MAX_BODY: u64 = 2 << 20;

#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) executor: Executor,
    pub(crate) principal: Principal,
    pub(crate) scene: Scene,
    pub(crate) methods: Vec<Method>,
    pub(crate) skip: Option<Arc<Skip>>,
    pub(crate) scope: Scope,
    pub(crate) prefix: Option<Cow<'static, str>>,
    pub(crate) payload: PayloadCheck,
    pub(crate) max_body: u64,
    pub(crate) response: Arc<ResponseRules>,
    pub(crate) policy: Policy,
    pub(crate) message: Option<Arc<str>>,
    pub(crate) detached: bool,
    pub(crate) base: Cow<'static, str>,
    pub(crate) docs: Option<HeaderValue>,
    pub(crate) words: Option<Arc<Words>>,
    /// Setters that were called and do nothing in some scene.
    pub(crate) called: Vec<&'static str>,
    /// Why no request can be handled.
    pub(crate) wrong: Option<Arc<SetupError>>,
}

/// What tells two requests apart.
#[derive(Clone)]
pub(crate) enum Scene {
    Key { rules: KeyRules, of: Option<Arc<KeyOf>>, required: bool },
    Token { header: HeaderName, tokens: Tokens },
    Param,
}

#[derive(Clone)]
pub(crate) enum Scope {
    /// By method and route.
    Route(Option<Arc<Route>>),
    Named(Cow<'static, str>),
}

impl Shared {
    pub(crate) fn new(executor: Executor, principal: Principal, scene: Scene) -> Self {
        Self {
            executor,
            principal,
            scene,
            methods: vec![Method::POST, Method::PATCH],
            skip: None,
            scope: Scope::Route(None),
            prefix: None,
            payload: PayloadCheck::bytes(),
            max_body: MAX_BODY,
            response: Arc::default(),
            policy: Policy::new(),
            message: None,
            detached: true,
            base: Cow::Borrowed(Problem::BASE),
            docs: None,
            words: None,
            called: Vec::new(),
            wrong: None,
        }
    }

    /// As requests find it: with the policy in force, the executor's clock, and what is wrong with it.
    pub(crate) fn in_use(&self) -> Self {
        // A policy that makes no sense is the executor's to refuse, and to count.
        let wrong = SetupError::of(&self.idle(), self.empty(), Ok(())).err().map(Arc::new);
        let response = ResponseRules::timed(&self.response, &self.executor);
        Self { policy: self.in_force(), response, wrong, ..self.clone() }
    }

    pub(crate) fn check(&self) -> Result<(), SetupError> {
        SetupError::of(&self.idle(), self.empty(), self.in_force().check(&CoreScene::Rest))
    }

    fn idle(&self) -> Vec<Idle> {
        setup::idle(&self.scene, &self.called, &self.response)
    }

    fn empty(&self) -> impl Iterator<Item = &'static str> {
        let scope = matches!(&self.scope, Scope::Named(name) if name.is_empty());
        let namespace = self.prefix.as_ref().is_some_and(|name| name.is_empty());
        let window = matches!(self.scene, Scene::Param) && !self.in_force().has_window();
        setup::empty(self.methods.is_empty(), scope, namespace, window)
    }

    /// The layer's over the executor's over what the answers need.
    fn in_force(&self) -> Policy {
        self.policy.or(self.executor.policy(&CoreScene::Rest)).or(self.response.policy())
    }
}
