//! Repeated deliveries of one message.
mod tally;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use idempotent_core::Outcome;

use self::tally::Tally;
pub(crate) use self::tally::note;

/// The result of one delivery: the answer to the caller, and the outcome.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TestDelivery<T> {
    /// The value that the caller of the handler got.
    pub answer: T,
    /// The outcome of the run, as [`Outcome::capture`] reports it; `None` if no run was seen.
    pub outcome: Option<Outcome>,
    /// The number of countable handlers that ran to their end. `outcome` reports one run, and may hide others.
    runs: u64,
}

/// Two consecutive deliveries of one message; see [`run_twice`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeliveredTwice<T> {
    /// The delivery that should run.
    pub first: TestDelivery<T>,
    /// The duplicate.
    pub second: TestDelivery<T>,
}

/// Concurrent deliveries of one message; see [`run_at_once`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeliveredAtOnce<T> {
    /// The deliveries, in the order in which they began.
    pub deliveries: Vec<TestDelivery<T>>,
}

/// Delivers the same message twice: calls `handler`, waits for its end, and calls it again.
///
/// `handler` is a closure that calls an annotated function with equal arguments each time. The function finds its
/// executor as usual: in scope, installed, or by `with = …`.
///
/// # Several handlers in one delivery
/// [`TestDelivery::outcome`] is a single outcome, the least settled of all called handlers. A replayed handler may
/// therefore hide another one that ran again. Such runs are counted if an executor is in
/// [scope](crate::MockExecutor::scope) around `run_twice`, and for every [`MockExecutor`](crate::MockExecutor). No
/// other code should run with that executor at the same time. Runs of other executors are *not* seen: one that a
/// handler takes by `with = …`, one that is in scope only inside of `handler`, and one that is installed for the
/// process, since other tests may use it at the same time. In these cases, use a separate `run_twice` for each handler.
///
/// ```
/// use idempotent::{Rejection, idempotent};
/// use idempotent_testkit::{MockExecutor, run_twice};
///
/// #[idempotent(key = order, scope = "charge")]
/// async fn charge(order: &str, cents: u64) -> Result<u64, Rejection> {
///     Ok(cents)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let twice = MockExecutor::new().scope(run_twice(|| charge("o-17", 500))).await;
/// twice.assert_ran_once();
/// assert_eq!(twice.second.answer.unwrap(), 500); // replayed
/// # }
/// ```
///
/// # Cancellation
/// Dropping the future drops the current delivery.
pub async fn run_twice<T>(handler: impl AsyncFn() -> T) -> DeliveredTwice<T> {
    DeliveredTwice { first: TestDelivery::alone(handler()).await, second: TestDelivery::alone(handler()).await }
}

/// Delivers the same message `n` times at once: all calls of `handler` begin before any of them is awaited, and take
/// turns at their awaits.
///
/// A handler that never waits ends before the second delivery begins. The second delivery then meets a consumed key
/// instead of one in flight.
///
/// If a delivery calls several handlers, their runs are counted as in [`run_twice`], except for runs in separate tasks.
///
/// # Cancellation
/// Dropping the future drops all deliveries.
pub async fn run_at_once<T>(n: usize, handler: impl AsyncFn() -> T) -> DeliveredAtOnce<T> {
    let mut running: Vec<Running<'_, T>> =
        (0..n).map(|_| Running::Going(Box::pin(TestDelivery::of(handler())))).collect();
    poll_fn(|cx| {
        let mut all = Poll::Ready(());
        for run in &mut running {
            if let Running::Going(delivery) = run {
                match delivery.as_mut().poll(cx) {
                    Poll::Ready(delivery) => *run = Running::Done(delivery),
                    Poll::Pending => all = Poll::Pending,
                }
            }
        }
        all
    })
    .await;
    let done = |run| match run {
        Running::Done(delivery) => Some(delivery),
        Running::Going(_) => None,
    };
    DeliveredAtOnce { deliveries: running.into_iter().filter_map(done).collect() }
}

enum Running<'a, T> {
    Going(Pin<Box<dyn Future<Output = TestDelivery<T>> + 'a>>),
    Done(TestDelivery<T>),
}

impl<T> TestDelivery<T> {
    pub(crate) async fn of(handler: impl Future<Output = T>) -> Self {
        let ((answer, outcome), runs) = Tally::begin().during(Outcome::capture(handler)).await;
        Self { answer, outcome, runs }
    }

    /// Creates a delivery like `of`, if no other code runs at the same time. Runs in separate tasks are counted, too.
    async fn alone(handler: impl Future<Output = T>) -> Self {
        let tally = Tally::begin();
        let delivery = Self::of(handler).await;
        Self { runs: delivery.runs.max(tally.so_far()), ..delivery }
    }

    /// Returns whether the handler ran to its end in this delivery.
    fn ran(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Ran))
    }

    /// Returns whether the delivery got the recorded result.
    fn is_settled(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Replayed | Outcome::ConsumedWithoutResult))
    }

    /// Returns whether another handler than the one in `outcome` ran to its end.
    fn hides_a_run(&self) -> bool {
        !self.ran() && self.runs > 0
    }

    /// Returns whether the message needs no further delivery.
    pub(crate) fn is_done(&self) -> bool {
        self.ran() || self.is_settled()
    }

    /// Returns the remedy for a delivery that is not done. `field` is the expression of the delivery in the test.
    pub(crate) fn remedy(&self, field: &str) -> String {
        remedy(self.outcome.as_ref(), field)
    }

    /// Returns the name of the outcome for messages. Answers are not shown, because they have any type.
    pub(crate) fn named(&self) -> Named<'_> {
        Named(self.outcome.as_ref())
    }
}

/// An outcome that is displayed by its name.
pub(crate) struct Named<'a>(Option<&'a Outcome>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(outcome) => write!(f, "`{}`", outcome.name()),
            None => f.write_str("nothing"),
        }
    }
}

impl<T> DeliveredTwice<T> {
    /// Asserts that the handler ran in the first delivery, and that the second got the recorded result.
    ///
    /// # Panics
    /// If the assertion fails. The message shows the likely mistake and the remedy.
    #[track_caller]
    pub fn assert_ran_once(&self) {
        let Self { first, second } = self;
        if !first.ran() {
            fail(&format!(
                "the first delivery did not run: it came to {}; {}",
                first.named(),
                first.remedy("twice.first")
            ));
        }
        if second.hides_a_run() && second.is_settled() {
            fail(&format!("in the second delivery a handler ran again beside {}: {UNLIKE}", second.named()));
        }
        match second.outcome {
            _ if second.is_settled() => {}
            Some(Outcome::Ran) => fail(&format!("the second delivery ran again: {UNLIKE}")),
            _ => fail(&format!("the second delivery came to {}; {}", second.named(), second.remedy("twice.second"))),
        }
    }
}

impl<T> DeliveredAtOnce<T> {
    /// Asserts that the handler ran in exactly one delivery, and that each of the others got the recorded result or was
    /// deferred.
    ///
    /// # Panics
    /// If the assertion fails. The message shows the likely mistake and the remedy.
    #[track_caller]
    pub fn assert_ran_once(&self) {
        let mut ran = 0;
        for (at, delivery) in self.deliveries.iter().enumerate() {
            match delivery.outcome {
                Some(Outcome::Ran) => ran += 1,
                Some(Outcome::Replayed | Outcome::ConsumedWithoutResult | Outcome::InFlight { .. })
                    if delivery.hides_a_run() =>
                {
                    ran += 1;
                }
                Some(Outcome::Replayed | Outcome::ConsumedWithoutResult | Outcome::InFlight { .. }) => {}
                _ => fail(&format!(
                    "delivery {} came to {}; {}",
                    at + 1,
                    delivery.named(),
                    delivery.remedy(&format!("deliveries[{at}]"))
                )),
            }
        }
        match ran {
            1 => {}
            0 => fail(&format!("none of {} deliveries ran; {ELSEWHERE}", self.deliveries.len())),
            _ => fail(&format!("{ran} of {} deliveries ran: {UNLIKE}", self.deliveries.len())),
        }
    }
}

const UNLIKE: &str = "their keys differ, or their executors' stores do. Make the key of what all copies of a message \
     have in common, such as an id in it, and not of a time, a counter or a delivery's tag; and deliver both to one \
     executor";

const ELSEWHERE: &str =
    "its key was used before, or is in use: begin each test with an executor and a store of its own, or with a new key";

/// Returns the remedy for a delivery with this outcome, if a run or a duplicate was expected. `delivery` is its field.
fn remedy(outcome: Option<&Outcome>, delivery: &str) -> String {
    let text = match outcome {
        None => {
            "no run was seen: the handler has no `#[idempotent(…)]`, or is called in a task of its own \
             (`Executor::detach` instead of `tokio::spawn` takes the scope along)"
        }
        Some(Outcome::NoExecutor) => {
            "there is no executor: wrap the test in `MockExecutor::new().scope(…)` or `executor.scope(…)`, or pass \
             one by `with = …`"
        }
        Some(Outcome::Replayed | Outcome::ConsumedWithoutResult | Outcome::InFlight { .. }) => ELSEWHERE,
        Some(Outcome::Released { .. } | Outcome::Failed | Outcome::Dead { .. }) => {
            return format!("the handler failed: see `{delivery}.answer`, and give it what it needs to succeed");
        }
        Some(Outcome::BadKey) => {
            return format!("the key is missing, empty or too long: `{delivery}.answer` says which part");
        }
        Some(Outcome::Mismatch) => {
            "the fingerprint differs between deliveries of one message: leave out of it what changes, such as a time \
             or an attempt"
        }
        Some(Outcome::Nested) => "the handler is called inside a run of its own key",
        Some(_) => return format!("`{delivery}.answer` says why"),
    };
    text.to_owned()
}

#[track_caller]
#[allow(clippy::panic, reason = "an assertion of a test")]
pub(crate) fn fail(text: &str) -> ! {
    panic!("{text}")
}
