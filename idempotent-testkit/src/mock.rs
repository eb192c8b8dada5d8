//! An executor for tests of handlers: in memory, on a clock that stands still, with a log.
mod recorder;
mod store;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use idempotent_core::{
    Claim, Codec, Consumed, Executor, ExecutorBuilder, FencingToken, Json, MemoryStore, Outcome, PolicyError, Tracing,
};

pub use self::recorder::EndedDelivery;
use self::recorder::Recorder;
use self::store::{Attending, Audience, Scripted};
use crate::deliver::fail;
use crate::{FaultStore, SeededEntropy, VirtualClock};

/// A whole [`Executor`] over a store in memory, for tests of handlers. It writes down what each delivery came to,
/// its time stands still until a test moves it, and its store answers as a test says.
///
/// Give it to a handler by `with = …` (it is `AsRef<Executor>`) or by [`scope`](Self::scope). Clones are one.
///
/// ```
/// use idempotent::store::{Claim, InFlight};
/// use idempotent::{Executor, Rejection, idempotent};
/// use idempotent_testkit::MockExecutor;
/// use std::time::Duration;
///
/// #[idempotent(key = order, scope = "charge", with = executor)]
/// async fn charge(executor: &Executor, order: &str) -> Result<u64, Rejection> {
///     Ok(500)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let mock = MockExecutor::new();
/// charge(mock.as_ref(), "o-17").await.unwrap();
/// charge(mock.as_ref(), "o-17").await.unwrap();
/// mock.assert_ran("charge", 1);
///
/// // As if another worker were running it.
/// mock.next_claim(Claim::InFlight(InFlight::Leased { rest: Duration::from_secs(9) }));
/// assert!(matches!(charge(mock.as_ref(), "o-18").await, Err(Rejection::InFlight { .. })));
///
/// // As if another one had done it.
/// mock.next_consumed(&7_u64);
/// assert_eq!(charge(mock.as_ref(), "o-18").await.unwrap(), 7);
/// mock.assert_ran("charge", 1);
/// # }
/// ```
///
/// Where the store refuses or loses a request (see [`store`](Self::store)), the executor asks again after a pause, by
/// a clock that nobody moves. So each such failure lets a second of the mock's time go by, and a test need not
/// do so. A call that hangs, or waits for a run in flight, does wait for [`clock`](Self::clock) to be moved. That
/// needs a `current_thread` runtime, which `#[tokio::test]` has: on another one it panics.
#[derive(Clone, Debug)]
pub struct MockExecutor {
    executor: Executor,
    store: Scripted,
    clock: VirtualClock,
    recorder: Recorder,
    _audience: Arc<Audience>,
}

impl Default for MockExecutor {
    fn default() -> Self {
        Self::new()
    }
}

impl AsRef<Executor> for MockExecutor {
    fn as_ref(&self) -> &Executor {
        &self.executor
    }
}

impl MockExecutor {
    /// With the defaults of an executor, and an empty store.
    #[must_use]
    pub fn new() -> Self {
        #[allow(clippy::expect_used, reason = "no policy is set, and the defaults make sense")]
        Self::configured(|builder| builder).expect("an executor with defaults")
    }

    /// As the service sets up its own, with its policies and namespace. Clock, randomness and observer are the mock's.
    ///
    /// # Errors
    /// As [`ExecutorBuilder::build`].
    pub fn configured(set_up: impl FnOnce(ExecutorBuilder) -> ExecutorBuilder) -> Result<Self, PolicyError> {
        let clock = VirtualClock::new();
        let memory = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        let store = Scripted::new(FaultStore::new(memory, &clock), clock.clone());
        let (recorder, audience) = (Recorder::default(), store.audience());
        let executor = set_up(Executor::builder(store.clone()))
            .clock(Arc::new(clock.clone()))
            .entropy(Arc::new(Attending { entropy: SeededEntropy::new(0), _audience: audience.clone() }))
            .observer((Tracing, recorder.clone()))
            .build()?;
        Ok(Self { executor, store, clock, recorder, _audience: audience })
    }

    /// The next claim that reaches the store is answered so, whatever the store holds; of several calls of this the
    /// first counts first. A scripted [`Acquired`](Claim::Acquired) grants what the store knows nothing of: the
    /// handler runs, and its completion finds that another worker has taken over
    /// ([`LeaseLost`](Outcome::LeaseLost)).
    ///
    /// An answer that nobody asked for is a test that did not test what it says: the last clone of the mock panics when
    /// it is dropped, or of its executor if that lives longer, unless the test is panicking already.
    #[track_caller]
    pub fn next_claim(&self, answer: Claim) {
        self.store.script(answer);
    }

    /// The next claim finds the key consumed, with `value` as its recorded result, kept by the default codec. It
    /// wants to be asked for, as that of [`next_claim`](Self::next_claim).
    ///
    /// # Panics
    /// If `value` cannot be encoded.
    #[track_caller]
    pub fn next_consumed<T>(&self, value: &T)
    where
        Json: Codec<T>,
    {
        match Json::encode(value) {
            Ok(value) => {
                self.next_claim(Claim::Consumed(Consumed { fencing: FencingToken(1), value: value.map(Arc::from) }));
            }
            Err(e) => fail(&e.to_string()),
        }
    }

    /// Runs `future` with this executor in scope; see [`Executor::scope`].
    ///
    /// # Cancellation
    /// Dropping it drops `future`.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        self.executor.scope(future).await
    }

    /// Its time: [`advance`](VirtualClock::advance) past a lease, a retention, a delay.
    #[must_use]
    pub fn clock(&self) -> &VirtualClock {
        &self.clock
    }

    /// Its store, to take down, to lose a reply, to look at each request: `mock.store().down()`.
    #[must_use]
    pub fn store(&self) -> &FaultStore {
        self.store.inner()
    }

    /// Every delivery that has ended, in the order of their ends.
    #[must_use]
    pub fn log(&self) -> Vec<EndedDelivery> {
        self.recorder.ended()
    }

    /// What each delivery came to, in the order of their ends.
    #[must_use]
    pub fn outcomes(&self) -> Vec<Outcome> {
        self.log().into_iter().map(|ended| ended.outcome).collect()
    }

    /// In `scope`, `times` deliveries came to [`Ran`](Outcome::Ran): the handler ran, and that is recorded.
    ///
    /// # Panics
    /// If it was another number. The text shows the log.
    #[track_caller]
    pub fn assert_ran(&self, scope: &str, times: usize) {
        let log = self.log();
        let ran = log.iter().filter(|ended| ended.scope == scope && ended.outcome == Outcome::Ran).count();
        if ran != times {
            fail(&format!("`{scope}` ran {ran} times, not {times}{}", shown(&log, scope)));
        }
    }
}

fn shown(log: &[EndedDelivery], scope: &str) -> String {
    let mut text = String::new();
    if !log.iter().any(|ended| ended.scope == scope) {
        let scopes: BTreeMap<&str, ()> = log.iter().map(|ended| (&*ended.scope, ())).collect();
        let scopes: Vec<&str> = scopes.into_keys().collect();
        text = match scopes[..] {
            [] => {
                "; no delivery has reached this executor: pass it by `with = …`, or call inside `mock.scope(…)`".into()
            }
            _ => format!("; nothing was delivered to it, but to {}: fix it by `scope = \"…\"`", scopes.join(", ")),
        };
    }
    log.iter().fold(text, |text, ended| format!("{text}\n  {ended}"))
}
