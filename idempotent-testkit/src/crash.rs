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

/// Drops `future` at its `n`th await that has to wait, counted from 1: at the `n`th poll that comes to
/// [`Pending`](Poll::Pending). `None` if it was dropped, its output if it ended before. 0 drops it unpolled.
///
/// This is a run that is *cancelled*: its destructors run, the executor's too, which frees the key if the handler
/// had not begun. A process that is killed runs none; that is what [`crash_everywhere`] plays.
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
/// Dropping it drops `future`.
pub async fn crash_at<F: Future>(n: usize, future: F) -> Option<F::Output> {
    cut(n, future, || ()).await
}

/// `dies` happens just before the future is dropped.
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

/// One crash, and what the next delivery found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Crash<S, T> {
    /// The await at which the worker died, from 1.
    pub at: usize,
    /// Whether it held the key by then, so that the handler may have begun.
    pub held: bool,
    /// The same message, delivered to another worker once the lease was over.
    pub redelivered: TestDelivery<T>,
    /// What both deliveries worked on.
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

/// Kills the worker at its first await, at its second, and so on until a run ends unharmed; after each death the
/// message is delivered again, to another worker, once the lease of the dead one is over.
///
/// For each crash `state` makes a fresh outside world (a fake bank, an outbox), and `deliver` delivers the message
/// with it: both times with equal arguments, to the executor in scope. The store is new for each crash, and in
/// memory; its clock is virtual, so no lease is waited for. Its own awaits are crash points, too: before a
/// request is sent and before its answer is heard, so that a crash falls into each gap between claim, handler and
/// record. The executor's policy is the default one, under the attribute's.
///
/// A worker dies as a killed process does: from that moment on nothing of it reaches the store, its executor's
/// destructors neither. Destructors of the handler's own do run, which a killed process would not grant them, and a task
/// that it spawned, or that it is detached into, goes on.
///
/// Whether the effect is idempotent is for you to say, by `state`: a crash between effect and record runs the
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
///     tokio::task::yield_now().await; // the bank's answer is under way
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
/// Needs a `current_thread` runtime, which `#[tokio::test]` has; see [`VirtualClock`](crate::VirtualClock). A handler
/// that sleeps by tokio's timers need not be waited for: `#[tokio::test(start_paused = true)]`, with tokio's feature
/// `test-util`.
///
/// # A handler with an executor of its own
/// One that takes it `with = …` cannot be cut off from its store. Let it take `&Executor`, or what is `AsRef<Executor>`, and
/// give it the one in scope, inside of `deliver`:
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
/// The text names the line that called this.
/// - `deliver` does not run by the executor in scope, so that there is nothing to cut it off from.
/// - No run ends unharmed within 500 awaits, or a redelivery not within 5,000.
/// - A delivery does not end within 30 s of real time: it waits for something that nobody brings about, such as a
///   clock that only the test moves.
/// - On a multi-thread runtime.
///
/// # Cancellation
/// Dropping it drops the run that is under way.
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

/// Real time, since a handler may wait for something real. No handler that passes comes near.
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

    /// Nothing ever wakes it: however short the wait, it is in vain.
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
    #[should_panic = "the redelivery after the death at await 1 did not end: does the handler wait for something nobody moves"]
    async fn a_redelivery_that_waits_for_ever_is_told() {
        let wait = Duration::from_millis(10);
        crash_at_each(|| (), async |()| deliver_unless(true).await, wait, Location::caller()).await;
    }

    #[tokio::test]
    #[should_panic = "the delivery that was to die at await"]
    async fn a_first_delivery_that_waits_for_ever_is_told() {
        let wait = Duration::from_millis(500);
        let delivered = std::cell::Cell::new(0);
        let odd = async |(): &()| {
            delivered.set(delivered.get() + 1);
            deliver_unless(delivered.get() % 2 == 1).await
        };
        crash_at_each(|| (), odd, wait, Location::caller()).await;
    }
}
