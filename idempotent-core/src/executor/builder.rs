//! Setting up an executor; nonsense is refused here, before the first delivery.
use std::collections::HashMap;
use std::sync::Arc;

use super::Executor;
use crate::engine::Engine;
use crate::{Clock, Entropy, Observer, OsEntropy, Policy, PolicyError, Redelivery, Scene, Store, SystemClock, Tracing};

/// Sets up an [`Executor`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ExecutorBuilder {
    store: Arc<dyn Store>,
    namespace: Box<str>,
    policies: HashMap<Scene, Policy>,
    redelivery: Vec<(Scene, Redelivery)>,
    clock: Option<Arc<dyn Clock>>,
    entropy: Arc<dyn Entropy>,
    observer: Arc<dyn Observer>,
}

impl ExecutorBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            namespace: "idempotent".into(),
            policies: HashMap::new(),
            redelivery: Vec::new(),
            clock: None,
            entropy: Arc::new(OsEntropy),
            observer: Arc::new(Tracing),
        }
    }

    /// Keeps this service's keys apart from others' in the same store.
    ///
    /// # Default
    /// `idempotent`
    pub fn namespace(mut self, namespace: impl Into<Box<str>>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// A scene's policy; what it leaves open is the scene's default.
    pub fn policy(mut self, scene: Scene, policy: Policy) -> Self {
        self.policies.insert(scene.canonical(), policy);
        self
    }

    /// Checks the scene's lease and retention against how its broker redelivers.
    pub fn redelivery(mut self, scene: Scene, redelivery: Redelivery) -> Self {
        self.redelivery.push((scene.canonical(), redelivery));
        self
    }

    /// Where now and timers come from.
    ///
    /// # Default
    /// [`SystemClock`]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Where owner tokens and jitter come from.
    ///
    /// # Default
    /// [`OsEntropy`]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// Who is told what happens. In place of [`Tracing`]; `(Tracing, mine)` keeps it.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Arc::new(observer);
        self
    }

    /// The executor.
    ///
    /// # Errors
    /// [`PolicyError`] if a policy makes no sense or does not fit its broker. A retention without end is allowed
    /// and warned of.
    pub fn build(self) -> Result<Executor, PolicyError> {
        if self.namespace.is_empty() {
            return Err(PolicyError::no_namespace());
        }
        for (scene, policy) in &self.policies {
            policy.check(scene)?;
        }
        for (scene, redelivery) in &self.redelivery {
            self.policies.get(scene).copied().unwrap_or_default().check_against(scene, redelivery)?;
        }
        let executor = self.build_unchecked();
        for scene in executor.0.policies.keys() {
            if executor.policy(scene).keeps_for_ever() {
                tracing::warn!(target: "idempotent", scene = scene.as_str(),
                    "retain = forever: the store grows with every key");
            }
        }
        Ok(executor)
    }

    /// Builds the executor without a check. The defaults of the scenes need none.
    pub(super) fn build_unchecked(self) -> Executor {
        let Self { store, namespace, policies, clock, entropy, observer, .. } = self;
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        Executor(Arc::new(Engine::new(store, namespace, policies, clock, entropy, observer)))
    }
}
