//! Workers that die at each of their awaits.
mod bound;
mod world;

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use self::bound::within;
use self::world::World;
use crate::TestDelivery;
use crate::clock::require_one_thread;
use crate::deliver::fail;

/// Drops `future` at its `n`th waiting await, counted from 1: the `n`th poll that returns [`Pending`](Poll::Pending).
/// Returns `None` if the future was dropped, and its output if it ended before. With 0, the future is dropped without a
/// poll.
///
/// The run is *cancelled*: its destructors run, including those of the executor, which free the key if the handler had
/// not begun. A killed process runs no destructors; [`crash_everywhere`] simulates that.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use idempotent_testkit::crash_at;
/// use tokio::task::yield_now;
///
/// let work = async || {
///     yield_now().await;
///     yield_now().await;
///     7
/// };
/// assert_eq!(crash_at(2, work()).await, None);
/// assert_eq!(crash_at(3, work()).await, Some(7));
/// # }
/// ```
///
/// # Cancellation
/// Dropping the returned future drops `future`.
pub async fn crash_at<F: Future>(n: usize, future: F) -> Option<F::Output> {
    cut(n, future, || ()).await
}

/// Drops `future` like [`crash_at`], and calls `dies` just before.
async fn cut<F: Future>(n: usize, future: F, dies: impl Fn()) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut waited = 0;
    let ended = poll_fn(|cx| {
        if waited < n {
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => return Poll::Ready(Some(output)),
                Poll::Pending => waited += 1,
            }
        }
        if waited < n { Poll::Pending } else { Poll::Ready(None) }
    })
    .await;
    if ended.is_none() {
        dies();
    }
    ended
}

/// A crash, and the delivery that followed it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Crash<S, T> {
    /// The number of the await at which the worker died, from 1.
    pub at: usize,
    /// True if the worker held the key at that time, so that the handler may have begun.
    pub held: bool,
    /// The redelivery of the message to another worker, after the lease had expired.
    pub redelivered: TestDelivery<T>,
    /// The outside world of both deliveries.
    pub state: S,
}

impl<S, T> fmt::Display for Crash<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = if self.held { "holding its key" } else { "before it held its key" };
        let redelivered = &self.redelivered;
        write!(f, "died at await {}, {held}; the redelivery came to {}", self.at, redelivered.named())?;
        if redelivered.is_done() { Ok(()) } else { write!(f, "; {}", redelivered.remedy("crash.redelivered")) }
    }
}

/// Kills one worker at its first await, one at its second, and so on, until a run ends unharmed. After each death,
/// another worker gets the message when the lease of the dead worker has expired.
///
/// For each crash, `state` creates a new outside world (a fake bank, an outbox), and `deliver` delivers the message
/// with it, both times with equal arguments, to the executor in scope. Each crash has a new store, in memory, with a
/// virtual clock, so no test waits for a lease. The awaits of the store are crash points, too: before a request is sent
/// and before its answer arrives. A crash therefore falls into each gap between claim, handler and record. The executor
/// has the default policy, which the attribute overrides.
///
/// A worker dies like a killed process: from that moment on, nothing reaches the store, not even from the destructors
/// of its executor. Unlike in a killed process, the destructors of the handler run, and a task that the handler
/// spawned, or into which it is detached, continues.
///
/// Your assertions on `state` decide whether the effect is idempotent: a crash between effect and record runs the
/// handler again, and no marker can prevent that.
///
/// ```
/// use std::cell::RefCell;
/// use std::collections::HashMap;
/// use idempotent::{Lease, Rejection, idempotent};
/// use idempotent_testkit::crash_everywhere;
///
/// /// A far side that takes a key of its own, and charges once for it.
/// #[derive(Default)]
/// struct Bank(RefCell<HashMap<String, u64>>);
///
/// #[idempotent(key = order, scope = "charge")]
/// async fn charge(bank: &Bank, order: &str, cents: u64) -> Result<(), Rejection> {
///     let step = Lease::current().map(|lease| lease.step_key("charge")).unwrap_or_default();
///     bank.0.borrow_mut().entry(step).or_insert(cents);
///     tokio::task::yield_now().await; // the bank's answer is in transit
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// for crash in crash_everywhere(Bank::default, async |bank| charge(bank, "o-17", 500).await).await {
///     assert_eq!(crash.state.0.borrow().values().sum::<u64>(), 500, "{crash}");
/// }
/// # }
/// ```
///
/// Needs a `current_thread` runtime, which `#[tokio::test]` has; see [`VirtualClock`](crate::VirtualClock). For a
/// handler that sleeps with tokio's timers, `#[tokio::test(start_paused = true)]` avoids real waits; it needs tokio's
/// feature `test-util`.
///
/// # Handlers with a fixed executor
/// A handler that takes a fixed executor by `with = …` cannot be cut off from its store. Let it take `&Executor`, or a
/// type that implements `AsRef<Executor>`, and pass the executor in scope inside of `deliver`:
///
/// ```
/// use idempotent::{Executor, Rejection, idempotent};
/// use idempotent_testkit::crash_everywhere;
///
/// #[idempotent(key = order, scope = "charge", with = executor)]
/// async fn charge(executor: &Executor, order: &str) -> Result<(), Rejection> {
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let deliver = async |(): &()| charge(&Executor::current().unwrap(), "o-17").await;
/// assert_eq!(crash_everywhere(|| (), deliver).await.len(), 4);
/// # }
/// ```
///
/// # Panics
/// The message names the line of the call. Panics if:
/// - `deliver` does not use the executor in scope, which therefore cannot be cut off.
/// - No run ends unharmed within 500 awaits, or a redelivery does not end within 5,000.
/// - A delivery does not end within 30 s of real time, because it waits for an event that does not happen, such as a
///   clock that only the test moves.
/// - The runtime is multi-threaded.
///
/// # Cancellation
/// Dropping the future drops the current run.
#[track_caller]
pub fn crash_everywhere<S, T>(
    state: impl Fn() -> S,
    deliver: impl AsyncFn(&S) -> T,
) -> impl Future<Output = Vec<Crash<S, T>>> {
    crash_at_each(state, deliver, PATIENCE, Location::caller())
}

async fn crash_at_each<S, T>(
    state: impl Fn() -> S,
    deliver: impl AsyncFn(&S) -> T,
    patience: Duration,
    caller: &Location<'_>,
) -> Vec<Crash<S, T>> {
    require_one_thread();
    let tell = |text: &str| -> ! { fail(&format!("crash_everywhere at {caller}: {text}")) };
    let mut crashes = Vec::new();
    for at in 1..=MOST {
        let (world, state) = (World::new(), state());
        let run = world.first.executor.scope(TestDelivery::of(deliver(&state)));
        match within(patience, usize::MAX, cut(at, run, || world.first.store.kill())).await {
            Ok(None) => {}
            Ok(Some(_)) if world.was_asked() => return crashes,
            Ok(Some(_)) => tell(OUT_OF_REACH),
            Err(unended) => tell(&format!("the delivery that was to die at await {at} {unended}")),
        }
        let held = world.outlive_leases().await;
        let again = world.second.executor.scope(TestDelivery::of(deliver(&state)));
        match within(patience, MOST_AGAIN, again).await {
            Ok(redelivered) => crashes.push(Crash { at, held, redelivered, state }),
            Err(unended) => tell(&format!("the redelivery after the death at await {at} {unended}")),
        }
    }
    tell(&format!(
        "no run ended unharmed within {MOST} awaits: does the handler poll in a loop? Let it wait for an event"
    ))
}

const MOST: usize = 500;

/// A redelivery may have to clean up first.
const MOST_AGAIN: usize = 10 * MOST;

/// The limit in real time, since a handler may wait for a real event. It is far above the time of every passing
/// handler.
const PATIENCE: Duration = Duration::from_secs(30);

const OUT_OF_REACH: &str = "the handler did not ask the store of the executor in scope: is it annotated? If it has \
     `with = …`, let it take `&Executor`, and give it `&Executor::current().unwrap()` inside the closure; where it takes \
     a state that holds an executor, build that state there of `Executor::current()`. If it is called in a task of its \
     own, spawn that by `Executor::detach`";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::pending;
    use std::panic::Location;
    use std::time::Duration;

    use idempotent_core::{Call, DefaultReply, Executor, Handler, Identity, Json, Rejection, Scene};

    use super::crash_at_each;

    /// Delivers once, or waits without ever being woken, so that the wait fails at any limit.
    async fn deliver_unless(waits: bool) -> Result<(), Rejection> {
        let handler = async || {
            if waits {
                pending::<()>().await;
            }
            Ok(())
        };
        let call = Call::new(Identity::new(Scene::Mq, "waits", "o-17"));
        Executor::current().unwrap().run(call, Handler::<DefaultReply, Json, _, _>::new(handler)).await
    }

    #[tokio::test]
    #[should_panic = "the redelivery after the death at await 1 did not end: does it wait for an event that never comes"]
    async fn an_endless_redelivery_is_reported() {
        let wait = Duration::from_millis(10);
        crash_at_each(|| (), async |()| deliver_unless(true).await, wait, Location::caller()).await;
    }

    #[tokio::test]
    #[should_panic = "the delivery that was to die at await"]
    async fn an_endless_first_delivery_is_reported() {
        let wait = Duration::from_millis(500);
        let delivered = std::cell::Cell::new(0);
        let odd = async |(): &()| {
            delivered.set(delivered.get() + 1);
            deliver_unless(delivered.get() % 2 == 1).await
        };
        crash_at_each(|| (), odd, wait, Location::caller()).await;
    }
}
