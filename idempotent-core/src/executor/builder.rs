//! The builder of an executor, which rejects invalid configurations before the first delivery.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::Executor;
use crate::engine::Engine;
use crate::{
    Clock, DuplicateMessages, Entropy, Observer, OsEntropy, Policy, PolicyError, Redelivery, Scene, Store, SystemClock,
    Tracing,
};

/// A builder for an [`Executor`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ExecutorBuilder {
    store: Arc<dyn Store>,
    namespace: Box<str>,
    policies: HashMap<Scene, Policy>,
    redelivery: Vec<(Scene, Redelivery)>,
    duplicate_messages: Option<DuplicateMessages>,
    claim_interval: Duration,
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
            duplicate_messages: None,
            claim_interval: Duration::ZERO,
            clock: None,
            entropy: Arc::new(OsEntropy),
            observer: Arc::new(Tracing),
        }
    }

    /// Sets the namespace, which separates the keys of services that share a store.
    ///
    /// # Default
    /// `idempotent`
    pub fn namespace(mut self, namespace: impl Into<Box<str>>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the policy of a scene. Values that are not set have the defaults of the scene.
    pub fn policy(mut self, scene: Scene, policy: Policy) -> Self {
        self.policies.insert(scene.canonical(), policy);
        self
    }

    /// Checks the lease and retention of a scene against the redelivery behaviour of its broker.
    pub fn redelivery(mut self, scene: Scene, redelivery: Redelivery) -> Self {
        self.redelivery.push((scene.canonical(), redelivery));
        self
    }

    /// Sets the texts for duplicates that get no result, for all functions without a `message` of their own.
    ///
    /// ```
    /// use idempotent_core::{DuplicateMessages, Executor, MemoryStore};
    ///
    /// let executor = Executor::builder(MemoryStore::new())
    ///     .duplicate_messages(DuplicateMessages::english_and_chinese())
    ///     .build()?;
    /// # Ok::<_, idempotent_core::PolicyError>(())
    /// ```
    ///
    /// # Default
    /// A text for logs, such as `an identical call is in flight; retry in 1s`, and the detail of each
    /// HTTP problem
    pub fn duplicate_messages(mut self, messages: impl Into<DuplicateMessages>) -> Self {
        self.duplicate_messages = Some(messages.into());
        self
    }

    /// Sets the shortest time between two claims of a key in flight by this executor, for keys with many deliveries at
    /// once. 100 ms bounds the claims of such a key to 10 per second and process, unless the store fails or takes longer
    /// for an answer.
    ///
    /// While this executor runs a key, a duplicate is deferred, or waits if the policy permits it, without a claim. After
    /// the store has answered that another process runs the key, this answer counts for the interval, until this
    /// executor learns of the settlement. An executor whose own lease may have ended asks the store, as do calls with
    /// another payload, with an order, or in a transaction.
    ///
    /// A duplicate may therefore be deferred for up to this interval after another process has settled its key. After
    /// an operator has forgotten a running key by force, duplicates are deferred until the next renewal of the run.
    /// Neither changes what runs: only the store grants a key.
    ///
    /// # Default
    /// [`Duration::ZERO`]: each delivery is claimed
    pub fn claim_interval(mut self, interval: Duration) -> Self {
        self.claim_interval = interval;
        self
    }

    /// Sets the source of time and timers.
    ///
    /// # Default
    /// [`SystemClock`]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the source of owner tokens and jitter.
    ///
    /// # Default
    /// [`OsEntropy`]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// Sets the observer of all events, instead of [`Tracing`]. Use `(Tracing, mine)` to keep the default observer.
    ///
    /// # Default
    /// [`Tracing`]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Arc::new(observer);
        self
    }

    /// Builds the executor. Logs a warning if a retention is unlimited.
    ///
    /// # Errors
    /// [`PolicyError`] if the namespace is empty, or if a policy is invalid or does not fit its broker.
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
        for scene in executor.0.policies.scenes() {
            if executor.policy(scene).keeps_for_ever() {
                tracing::warn!(target: "idempotent", scene = scene.as_str(),
                    "`retain = forever`: the store grows with every key; set a finite retention");
            }
        }
        Ok(executor)
    }

    /// Builds the executor without checks. The defaults of the scenes are valid.
    pub(super) fn build_unchecked(self) -> Executor {
        let Self { store, namespace, policies, duplicate_messages, claim_interval, clock, entropy, observer, .. } =
            self;
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let engine = Engine::new(store, namespace, policies, duplicate_messages, clock, entropy, observer);
        Executor(Arc::new(engine.with_claim_interval(claim_interval)))
    }
}
