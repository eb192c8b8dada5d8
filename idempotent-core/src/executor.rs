//! The executor, its configuration, and the calls and handlers that it runs.
mod builder;
mod call;
mod claim_admission;
mod delivery;
mod detached;
mod handler;
pub mod returns;
mod scope;
mod shutdown;
mod site;

use std::fmt;
use std::sync::Arc;

pub use self::builder::ExecutorBuilder;
pub use self::call::{Call, within};
pub use self::claim_admission::{AdmittedClaim, ClaimAdmission, Withdrawal};
pub use self::delivery::DeliveryContext;
pub use self::detached::Begun;
pub use self::handler::{BatchItem, Handler};
pub use self::scope::{AlreadyInstalled, executor};
pub use self::shutdown::{Drained, Served, Stopped};
pub use self::site::Site;
use crate::engine::Engine;
use crate::{Clock, Entropy, ExecutorCounts, Policy, Scene, Store};

/// A runner that executes handlers once per key. Cheap to clone: all clones share their state.
///
/// ```
/// use idempotent_core::{DefaultReply, Call, Executor, Handler, Identity, Json, MemoryStore, Rejection, Scene};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let executor = Executor::new(MemoryStore::new());
/// let order = "o-17";
/// for _ in 0..2 {
///     let call = Call::new(Identity::new(Scene::Mq, "orders", order));
///     let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<_, Rejection>(42) });
///     assert_eq!(executor.run(call, handler).await.unwrap(), 42); // the second time it is replayed
/// }
/// assert_eq!((executor.counts().of("ran"), executor.counts().of("replayed")), (1, 1));
/// # });
/// ```
#[derive(Clone)]
pub struct Executor(pub(crate) Arc<Engine>);

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("namespace", &self.0.namespace)
            .field("store", &self.0.store)
            .finish_non_exhaustive()
    }
}

impl AsRef<Self> for Executor {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Executor {
    /// Creates an executor with the default configuration.
    #[must_use]
    pub fn new(store: impl Store) -> Self {
        Self::builder(store).build_unchecked()
    }

    /// Returns a builder for an executor with a custom namespace, policies, clock or observer.
    pub fn builder(store: impl Store) -> ExecutorBuilder {
        ExecutorBuilder::new(Arc::new(store))
    }

    /// Returns the outcome counters of all deliveries so far.
    #[must_use]
    pub fn counts(&self) -> ExecutorCounts {
        self.0.counters.read()
    }

    /// Returns the number of calls that wait for another run to end: duplicates in flight, and calls with an order.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.waiting_calls()
    }

    /// Returns the executor's store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// Returns the executor's clock. Code that settles deliveries should use the same clock.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// Returns the executor's source of randomness.
    #[must_use]
    pub fn entropy(&self) -> &Arc<dyn Entropy> {
        &self.0.entropy
    }

    /// Returns the namespace of the executor's keys.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// Returns the policy in force for a scene: the executor's policy over the scene's default.
    pub fn policy(&self, scene: &Scene) -> Policy {
        self.0.policy(scene)
    }
}

/// Renews a lease until the returned guard is dropped. For benchmarks.
#[cfg(feature = "test-hooks")]
#[doc(hidden)]
pub fn renew_until_dropped(holder: &Executor, lease: &crate::Lease, now: std::time::Instant) -> impl Drop {
    holder.0.renewer.add(lease, now)
}
