//! An executor for tests of handlers: in memory, with a virtual clock and a log.
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

/// A complete [`Executor`] over a memory store, for tests of handlers. It logs the outcome of each delivery, its time
/// stops until a test moves it, and a test can script the answers of its store.
///
/// Pass it to a handler by `with = …` (it implements `AsRef<Executor>`), or put it in scope with
/// [`scope`](Self::scope). Clones share one executor.
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
/// // As if another worker had completed it.
/// mock.next_consumed(&7_u64);
/// assert_eq!(charge(mock.as_ref(), "o-18").await.unwrap(), 7);
/// mock.assert_ran("charge", 1);
/// # }
/// ```
///
/// If the store refuses or loses a request (see [`store`](Self::store)), the executor retries after a pause, but the
/// clock does not move by itself. Each such failure therefore advances the mock's time by a second. A call that hangs,
/// or waits for a run in flight, does need a test that moves the [`clock`](Self::clock). Moving the clock needs a
/// `current_thread` runtime, as `#[tokio::test]` has, and panics on another one.
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
    /// Creates a mock with the executor's defaults and an empty store.
    #[must_use]
    pub fn new() -> Self {
        #[allow(clippy::expect_used, reason = "no policy is set, and the defaults make sense")]
        Self::configured(|builder| builder).expect("an executor with defaults")
    }

    /// Creates a mock that is configured like the executor of the service, with its policies and namespace. Clock,
    /// randomness and observer are the mock's.
    ///
    /// # Errors
    /// The errors of [`ExecutorBuilder::build`].
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

    /// Scripts the answer to the next claim that reaches the store, whatever the store contains. Several scripted
    /// answers are used in order. With a scripted [`Acquired`](Claim::Acquired), the store has no record of the grant:
    /// the handler runs, and its completion finds that another worker has taken over
    /// ([`LeaseLost`](Outcome::LeaseLost)).
    ///
    /// A test with an unused answer does not test what it claims. The last clone of the mock, or of its executor if
    /// that lives longer, therefore panics when it is dropped, unless the test is already panicking.
    #[track_caller]
    pub fn next_claim(&self, answer: Claim) {
        self.store.script(answer);
    }

    /// Scripts that the next claim finds the key consumed, with `value` as its recorded result, encoded by the default
    /// codec. The answer must be used, like that of [`next_claim`](Self::next_claim).
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
    /// Dropping the returned future drops `future`.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        self.executor.scope(future).await
    }

    /// Returns the clock of the mock: [`advance`](VirtualClock::advance) it past a lease, a retention or a delay.
    #[must_use]
    pub fn clock(&self) -> &VirtualClock {
        &self.clock
    }

    /// Returns the store of the mock, to take it down, lose a reply, or inspect each request: `mock.store().down()`.
    #[must_use]
    pub fn store(&self) -> &FaultStore {
        self.store.inner()
    }

    /// Returns every delivery that has ended, in the order of the ends.
    #[must_use]
    pub fn log(&self) -> Vec<EndedDelivery> {
        self.recorder.ended()
    }

    /// Returns the outcome of each delivery, in the order of the ends.
    #[must_use]
    pub fn outcomes(&self) -> Vec<Outcome> {
        self.log().into_iter().map(|ended| ended.outcome).collect()
    }

    /// Asserts that `times` deliveries in `scope` had the outcome [`Ran`](Outcome::Ran): the handler ran, and its
    /// result is recorded.
    ///
    /// # Panics
    /// If the number differs. The message shows the log.
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
