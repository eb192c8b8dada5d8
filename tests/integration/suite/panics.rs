//! Panics in hooks of the application: what each of them does to its run. The guide on guarantees has a table.
mod parts;

use std::borrow::Cow;
use std::future::{Future, ready};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::common::{AppError, End, Job, PlainHandler, id, ms, on_memory, secs};
use futures_util::FutureExt;
use idempotent::observe::RunInfo;
use idempotent::reply::{HandlerOutcome, RejectStrategy, ReplyStrategy, ResponseShape};
use idempotent::store::StateKind;
use idempotent::{
    BatchItem, Call, Clock, Codec, Event, Executor, Handler, MemoryStore, Observer, Outcome, Policy, Rejection,
    Timestamp,
};
use idempotent_core::{CodecError, Entropy, EntropyError, Timer};
use idempotent_harness::LogLines;
use idempotent_testkit::{FOREVER, StoreOperation};

/// Returns the number of logged panics of a hook.
fn logged_panics(log: &LogLines, hook: &str) -> usize {
    let said = log.text();
    let errors = said.lines().filter(|line| line.contains(" ERROR "));
    errors.filter(|line| line.contains(&format!("hook=\"{hook}\""))).count()
}

#[derive(Debug)]
struct PanickingObserver;

impl Observer for PanickingObserver {
    fn on(&self, _: &RunInfo<'_>, _: &Event<'_>) {
        panic!("as told");
    }
    fn wants_timing(&self) -> bool {
        true
    }
}

/// The number of events, and of those that end a delivery.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<(AtomicU32, AtomicU32)>);

impl Observer for Seen {
    fn on(&self, _: &RunInfo<'_>, event: &Event<'_>) {
        self.0.0.fetch_add(1, SeqCst);
        self.0.1.fetch_add(u32::from(matches!(event, Event::Ended { .. })), SeqCst);
    }
}

#[test]
fn an_observer_that_panics_changes_no_outcome_and_no_count_and_hides_nothing_from_the_next_one() {
    on_memory(async |world| {
        let log = LogLines::default();
        let _scope = idempotent_harness::logs_to(log.clone());
        let seen = Seen::default();
        let policy = Policy::new().lease(secs(2)).max_retries(1).settle_timeout(ms(100));
        let worker = world
            .worker_by("a", policy, |builder| builder.observer(((PanickingObserver, seen.clone()), PanickingObserver)));
        let ok = Job::takes(ms(0));
        assert_eq!(worker.outcome("ok", &ok).await, Outcome::Ran);
        assert_eq!(worker.outcome("ok", &ok).await, Outcome::Replayed);
        let fails = Job::ends(ms(0), End::Err);
        assert!(matches!(worker.outcome("fails", &fails).await, Outcome::Released { .. }));
        // The report of a run that panics or is dropped is sent by a destructor.
        let panics = worker.spawn("panics", &Job::ends(ms(0), End::Panic)).await;
        assert!(panics.await.unwrap_err().is_panic());
        let dropped = worker.spawn("dropped", &Job::takes(secs(1))).await;
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        // These events come from other tasks: the settlement that goes on, and the renewal.
        worker.store.fail_before(StoreOperation::Complete, FOREVER);
        let late = worker.spawn("late", &ok).await;
        world.clock.advance(secs(5)).await;
        assert_eq!(late.await.unwrap().0, Outcome::Unrecorded);
        worker.store.heal();
        worker.store.lose_request(StoreOperation::Renew, FOREVER);
        let lost = worker.spawn("lost", &Job::takes(secs(60))).await;
        world.clock.advance(secs(3)).await;
        assert_eq!(lost.await.unwrap().0, Outcome::LeaseLost);
        let counts = worker.executor.counts();
        assert_eq!((counts.deliveries(), counts.ended()), (7, 7), "{counts:?}");
        assert_eq!(seen.0.1.load(SeqCst), 7, "of {} events", seen.0.0.load(SeqCst));
        assert_eq!(logged_panics(&log, "observer"), 1);
    });
}

fn panics<T>() -> T {
    panic!("as told")
}

#[test]
fn a_rule_that_panics_counts_as_not_given() {
    on_memory(async |world| {
        let log = LogLines::default();
        let _scope = idempotent_harness::logs_to(log.clone());
        let worker = world.worker("a", Policy::new());
        let runs = AtomicU32::new(0);
        for outcome in [Outcome::Ran, Outcome::Replayed] {
            let handler = PlainHandler::new(|| async {
                runs.fetch_add(1, SeqCst);
                Ok::<u32, AppError>(7)
            });
            let run = worker.executor.run(Call::new(id("value")), handler.failed_if(|_| panics()));
            let (answer, ended) = Outcome::capture(run).await;
            assert_eq!((answer.unwrap(), ended, runs.load(SeqCst)), (7, Some(outcome), 1), "its effect has happened");
        }
        let handler = PlainHandler::new(|| async { Err::<u32, _>(AppError::NoStock) });
        let run = worker.executor.run(Call::new(id("error")), handler.permanent(|_| panics()));
        let (answer, ended) = Outcome::capture(run).await;
        assert!(matches!((&answer, &ended), (Err(AppError::NoStock), Some(Outcome::Released { .. }))), "{ended:?}");
        assert_eq!((logged_panics(&log, "failed_if"), logged_panics(&log, "permanent")), (1, 1));
    });
}

/// A strategy whose functions panic by the answer of the handler.
struct Breaks;

impl ResponseShape for Breaks {
    type Output<R> = R;
}

impl ReplyStrategy<Result<&'static str, &'static str>> for Breaks {
    type Value = &'static str;
    type Failure = &'static str;

    fn split(
        reply: Result<&'static str, &'static str>,
    ) -> impl Future<Output = HandlerOutcome<&'static str, &'static str>> {
        ready(reply.map_or_else(HandlerOutcome::Transient, HandlerOutcome::Value))
    }
    fn value(value: &'static str) -> Result<&'static str, &'static str> {
        if value == "value" { panics() } else { Ok(value) }
    }
    fn replayed(value: &'static str) -> Result<&'static str, &'static str> {
        if value == "replayed" { panics() } else { Ok(value) }
    }
    fn failure(failure: &'static str) -> Result<&'static str, &'static str> {
        if failure == "failure" { panics() } else { Err(failure) }
    }
    fn describe(failure: &&'static str) -> Cow<'static, str> {
        if *failure == "describe" { panics() } else { "described".into() }
    }
}

impl RejectStrategy<Result<&'static str, &'static str>> for Breaks {
    fn rejected(_: Rejection) -> Result<&'static str, &'static str> {
        panics()
    }
}

/// Keeps a text; panics for some.
struct BreaksCodec;

impl Codec<&'static str> for BreaksCodec {
    fn encode(value: &&'static str) -> Result<Option<Vec<u8>>, CodecError> {
        if *value == "encode" { panics() } else { Ok(Some(value.as_bytes().into())) }
    }
    fn decode(bytes: Option<&[u8]>) -> Result<&'static str, CodecError> {
        match bytes {
            Some(b"decode") => panics(),
            Some(b"replayed") => Ok("replayed"),
            _ => Ok("kept"),
        }
    }
}

type Broken<F> = Handler<Breaks, BreaksCodec, Result<&'static str, &'static str>, F>;

#[test]
fn a_codec_that_panics_loses_the_value_and_repeats_nothing() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        for value in ["encode", "decode"] {
            let run = || {
                let handler = Broken::rejecting(move || ready(Ok(value)), |_| Err("rejected"));
                Outcome::capture(worker.executor.run(Call::new(id(value)), handler))
            };
            assert_eq!(run().await, (Ok(value), Some(Outcome::Ran)));
            let (answer, outcome) = run().await;
            let expected = match value {
                "encode" => (Ok("kept"), Some(Outcome::Replayed)),
                _ => (Err("rejected"), Some(Outcome::ConsumedWithoutResult)),
            };
            assert_eq!((answer, outcome), expected, "{value}");
        }
    });
}

#[test]
fn a_description_that_panics_changes_only_the_recorded_text() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new().max_retries(0));
        let handler = Broken::new(|| ready(Err("describe")));
        let (answer, outcome) = Outcome::capture(worker.executor.run(Call::new(id("k")), handler)).await;
        assert!(matches!((answer, outcome), (Err("describe"), Some(Outcome::Dead { .. }))));
        let record = world.record("k").await.unwrap();
        assert!(format!("{:?}", record.state).contains("the description of the error panicked"), "{:?}", record.state);
    });
}

#[test]
fn a_reply_strategy_that_panics_does_so_after_its_run_is_settled_and_counted() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        for (key, reply, outcome, state) in [
            ("value", Ok("value"), "ran", StateKind::Consumed),
            ("failure", Err("failure"), "released", StateKind::Vacant),
        ] {
            let handler = Broken::new(move || ready(reply));
            assert!(
                AssertUnwindSafe(worker.executor.run(Call::new(id(key)), handler)).catch_unwind().await.is_err(),
                "{key}"
            );
            assert_eq!(world.record(key).await.unwrap().state.kind(), state, "{key}");
            assert_eq!(worker.executor.counts().of(outcome), 1, "{key}");
        }
        let handler = Broken::new(|| ready(Ok("fine")));
        let rejected = AssertUnwindSafe(worker.executor.run(Call::new(id("")), handler)).catch_unwind();
        assert!(rejected.await.is_err());
        let counts = worker.executor.counts();
        assert_eq!((counts.of("bad_key"), counts.deliveries(), counts.ended()), (1, 3, 3));
    });
}

#[test]
fn a_reply_strategy_that_panics_for_one_item_of_a_batch_leaves_no_other_item_unsettled() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let handler = Broken::batch(|items: Vec<BatchItem<&'static str>>| {
            ready(items.iter().map(|given| Ok(given.item)).collect::<Vec<_>>())
        });
        let items = ["value", "first", "second"].map(|item| (Call::new(id(item)), item));
        assert!(AssertUnwindSafe(worker.executor.run_batch(items.into(), handler)).catch_unwind().await.is_err());
        for key in ["value", "first", "second"] {
            assert_eq!(world.record(key).await.unwrap().state.kind(), StateKind::Consumed, "{key}");
        }
        assert_eq!(worker.executor.counts().of("ran"), 3);
    });
}

#[test]
fn a_reply_strategy_that_panics_for_a_duplicate_in_a_batch_does_so_after_the_duplicate_is_counted() {
    on_memory(async |world| {
        let worker = world.worker("a", Policy::new());
        let run = || {
            let handler = Broken::batch(|_: Vec<BatchItem<()>>| ready(vec![Ok("replayed")]));
            AssertUnwindSafe(worker.executor.run_batch(vec![(Call::new(id("k")), ())], handler)).catch_unwind()
        };
        run().await.unwrap();
        assert!(run().await.is_err());
        assert_eq!((worker.executor.counts().of("replayed"), worker.executor.counts().ended()), (1, 2));
    });
}

#[derive(Debug)]
struct PanickingEntropy;

impl Entropy for PanickingEntropy {
    fn bits(&self) -> Result<u128, EntropyError> {
        panics()
    }
}

#[test]
fn a_source_of_randomness_that_panics_refuses_the_call() {
    on_memory(async |world| {
        let worker = world.worker_by("a", Policy::new(), |builder| builder.entropy(Arc::new(PanickingEntropy)));
        let job = Job::takes(ms(0));
        let (outcome, answer) = worker.deliver("k", &job).await;
        assert!(matches!(answer, Err(AppError::Idempotent(Rejection::Entropy(_)))), "{answer:?}");
        assert_eq!((job.runs(), worker.executor.counts().of(outcome.name())), (0, 1));
    });
}

/// A clock that panics while the switch is on.
#[derive(Clone, Debug)]
struct Switched<C>(C, Arc<AtomicBool>);

impl<C: Clock> Clock for Switched<C> {
    fn now(&self) -> std::time::Instant {
        if self.1.load(SeqCst) { panics() } else { self.0.now() }
    }
    fn wall(&self) -> Timestamp {
        self.0.wall()
    }
    fn sleep_until(&self, deadline: std::time::Instant) -> Timer {
        self.0.sleep_until(deadline)
    }
}

#[test]
fn a_clock_that_panics_ends_its_call_and_not_the_process() {
    on_memory(async |world| {
        let is_on = Arc::new(AtomicBool::new(false));
        let clock = Switched(world.clock.clone(), is_on.clone());
        let executor = Executor::builder(MemoryStore::new()).clock(Arc::new(clock)).build().unwrap();
        let call = executor.clone();
        let run = tokio::spawn(async move {
            let handler = PlainHandler::new(|| async move {
                is_on.store(true, SeqCst);
                Ok::<u32, AppError>(1)
            });
            call.run(Call::new(id("k")), handler).await.is_ok()
        });
        assert!(run.await.unwrap_err().is_panic());
        let counts = executor.counts();
        assert_eq!((counts.deliveries(), counts.ended()), (1, 1), "{counts:?}");
    });
}
