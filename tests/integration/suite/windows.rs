//! Calls that are identified by their parameters: the window, which starts at completion, and the answer to a
//! duplicate within it.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{AppError, End, Job, PlainHandler, Worker, World, assert_in_flight, id, ms, secs};
use crate::without_capabilities::Bare;
use idempotent::{Call, Executor, OnConsumed, OnInFlight, Outcome, Policy, PolicyError, Redelivery, Rejection, Scene};
use idempotent_testkit::{FOREVER, StoreOperation};

const WINDOW: Duration = secs(5);

on_both_stores! {
    an_equal_call_is_a_duplicate_until_the_window_is_over_counted_from_completion
    an_equal_call_in_flight_is_in_flight_however_short_the_window
    a_failure_frees_the_call_at_once
    a_permanent_failure_and_a_dead_key_are_kept_for_the_window
    a_duplicate_receives_the_remaining_window
    a_store_that_cannot_be_asked_how_much_is_left_says_all_of_it
    a_duplicate_that_waits_for_the_run_in_flight_is_refused_when_it_is_done
    a_window_with_replay_gives_the_result_again
    a_dead_workers_call_is_taken_over_after_the_lease
    a_retention_said_further_in_is_not_cut_by_a_window_said_further_out
}

fn refusing() -> Policy {
    Policy::new().window(WINDOW).on_consumed(OnConsumed::Refuse)
}

fn call() -> Call {
    Call::new(id("two cups of tea")).policy(refusing()).message("just ordered")
}

/// In a task of its own, begun by the time this returns.
async fn begun(worker: &Worker, call: Call, job: &Arc<Job>) -> tokio::task::JoinHandle<(Outcome, Option<Rejection>)> {
    let (worker, clock, job) = (worker.clone(), worker.clock.clone(), job.clone());
    let task = tokio::spawn(async move {
        let (outcome, answer) = worker.deliver_call(call, &job).await;
        (outcome, rejection(answer))
    });
    clock.settle().await;
    task
}

fn rejection<T>(answer: Result<T, AppError>) -> Option<Rejection> {
    match answer {
        Err(AppError::Idempotent(rejection)) => Some(rejection),
        _ => None,
    }
}

/// Returns the remaining time that the answer states.
#[track_caller]
fn rest(told: &(Outcome, Option<Rejection>)) -> Duration {
    match told {
        (Outcome::Duplicate, Some(Rejection::Duplicate { retry_after: Some(rest), message: Some(message) })) => {
            assert_eq!(message.to_string(), "just ordered");
            *rest
        }
        other => panic!("no duplicate of a window: {other:?}"),
    }
}

/// A duplicate is rejected during the run and after it.
async fn an_equal_call_is_a_duplicate_until_the_window_is_over_counted_from_completion(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(secs(60)));
    let run = begun(&worker, call(), &job).await;
    world.clock.advance(secs(60)).await;
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    for later in [ms(0), ms(4999)] {
        world.clock.advance(later).await;
        assert_eq!(worker.deliver_call(call(), &job).await.0, Outcome::Duplicate, "shorter than the lease of 30 s");
    }
    world.clock.advance(ms(1)).await;
    let run = begun(&worker, call(), &job).await;
    world.clock.advance(secs(60)).await;
    assert_eq!((run.await.unwrap().0, job.runs(), job.attempts()), (Outcome::Ran, 2, vec![1, 1]), "another call");
    let counts = worker.executor.counts();
    assert_eq!((counts.of("ran"), counts.of("duplicate"), counts.deliveries()), (2, 2, 4));
}

async fn an_equal_call_in_flight_is_in_flight_however_short_the_window(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(secs(20)));
    let short = || call().policy(refusing().window(ms(1)));
    let run = begun(&worker, short(), &job).await;
    world.clock.advance(secs(19)).await;
    let (outcome, answer) = worker.deliver_call(short(), &job).await;
    assert_in_flight(&outcome);
    assert_eq!(rejection(answer).unwrap().to_string(), "just ordered");
    world.clock.advance(secs(1)).await;
    assert_eq!((run.await.unwrap().0, job.runs()), (Outcome::Ran, 1));
}

async fn a_failure_frees_the_call_at_once(world: World) {
    let worker = world.worker("a", Policy::new());
    for (ends, end) in [(End::Err, "error"), (End::Panic, "panic")] {
        let run = begun(&worker, call(), &Job::ends(ms(0), ends)).await;
        assert_eq!(run.await.is_err(), end == "panic");
    }
    assert_eq!(worker.deliver_call(call(), &Job::takes(ms(0))).await.0, Outcome::Ran);
}

/// And not for as long as messages are: after the window an equal call is another one.
async fn a_permanent_failure_and_a_dead_key_are_kept_for_the_window(world: World) {
    let worker = world.worker("a", Policy::new());
    let fail = async |permanent: fn(&AppError) -> bool| {
        let handler = PlainHandler::new(|| async { Err::<u32, _>(AppError::NoArticle) });
        let call = call().policy(refusing().max_retries(0));
        Outcome::capture(worker.executor.run(call, handler.permanent(permanent))).await.1.unwrap()
    };
    for permanent in [(|_| true) as fn(&AppError) -> bool, |_| false] {
        let first = fail(permanent).await;
        assert!(matches!(first, Outcome::Failed | Outcome::Dead { .. }), "{first:?}");
        world.clock.advance(WINDOW - ms(1)).await;
        assert_eq!(worker.deliver_call(call(), &Job::takes(ms(0))).await.0, first);
        world.clock.advance(ms(1)).await;
    }
    assert_eq!(worker.deliver_call(call(), &Job::takes(ms(0))).await.0, Outcome::Ran);
}

async fn a_duplicate_receives_the_remaining_window(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    worker.deliver_call(call(), &job).await.1.unwrap();
    for (later, left) in [(ms(0), WINDOW), (ms(1200), ms(3800)), (ms(3799), ms(1))] {
        world.clock.advance(later).await;
        let told = begun(&worker, call(), &job).await.await.unwrap();
        assert_eq!(rest(&told), left);
    }
    // Who recognises duplicates by a key has no such time to tell.
    let by_key = Call::new(id("k")).policy(Policy::new().on_consumed(OnConsumed::Refuse));
    worker.deliver_call(by_key.clone(), &job).await.1.unwrap();
    let told = rejection(worker.deliver_call(by_key, &job).await.1).unwrap();
    assert!(matches!(told, Rejection::Duplicate { retry_after: None, message: None }), "{told:?}");
    assert_eq!(told.to_string(), "duplicate: already processed");
}

async fn a_store_that_cannot_be_asked_how_much_is_left_says_all_of_it(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    worker.deliver_call(call(), &job).await.1.unwrap();
    world.clock.advance(secs(2)).await;
    worker.store.fail_before(StoreOperation::Peek, FOREVER);
    assert_eq!(rest(&begun(&worker, call(), &job).await.await.unwrap()), WINDOW, "down");
    worker.store.heal();
    worker.store.hang(StoreOperation::Peek, 1);
    let hangs = begun(&worker, call(), &job).await;
    world.clock.advance(ms(2999)).await;
    assert!(!hangs.is_finished());
    world.clock.advance(secs(8)).await;
    assert_eq!(rest(&hangs.await.unwrap()), WINDOW, "given up after a third of the lease");

    let bare = Executor::builder(Bare(worker.store.clone())).clock(Arc::new(world.clock.clone())).build().unwrap();
    let bare = Worker { executor: bare, store: worker.store.clone(), clock: world.clock.clone() };
    bare.deliver_call(call(), &job).await.1.unwrap();
    world.clock.advance(secs(2)).await;
    assert_eq!(rest(&begun(&bare, call(), &job).await.await.unwrap()), WINDOW, "a store that has not the capability");
}

async fn a_duplicate_that_waits_for_the_run_in_flight_is_refused_when_it_is_done(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(secs(1)));
    let waiting = || call().policy(refusing().on_in_flight(OnInFlight::Wait(secs(10))));
    let run = begun(&worker, waiting(), &job).await;
    let waits = begun(&worker, waiting(), &job).await;
    world.clock.advance(secs(1)).await;
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    assert_eq!(rest(&waits.await.unwrap()), WINDOW);
    assert_eq!(job.runs(), 1);
}

async fn a_window_with_replay_gives_the_result_again(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    let replaying = || Call::new(id("k")).policy(Policy::new().window(WINDOW));
    for (later, wanted) in [(ms(0), (Outcome::Ran, 1)), (ms(4999), (Outcome::Replayed, 1)), (ms(1), (Outcome::Ran, 2))]
    {
        world.clock.advance(later).await;
        let (outcome, answer) = worker.deliver_call(replaying(), &job).await;
        assert_eq!((outcome, answer.unwrap()), wanted);
    }
}

async fn a_dead_workers_call_is_taken_over_after_the_lease(world: World) {
    let (a, b) = (world.worker("a", Policy::new()), world.worker("b", Policy::new()));
    let run = begun(&a, call(), &Job::takes(secs(60))).await;
    a.kill(run).await;
    let job = Job::takes(ms(0));
    world.clock.advance(secs(29)).await;
    assert_in_flight(&b.deliver_call(call(), &job).await.0);
    world.clock.advance(secs(1)).await;
    assert_eq!(b.deliver_call(call(), &job).await.0, Outcome::Ran);
}

/// A handler's retention of an hour applies, although the executor has a shorter window for calls without a retention.
async fn a_retention_said_further_in_is_not_cut_by_a_window_said_further_out(world: World) {
    let (long, short) = (Policy::new().retain(secs(3600)), Policy::new().window(WINDOW));
    for (outer, inner, kept) in [(short, long, secs(3600)), (long, short, WINDOW), (short, Policy::new(), WINDOW)] {
        let (worker, job) = (world.worker("a", outer), Job::takes(ms(0)));
        let call = || Call::new(id(&format!("{kept:?} by {inner:?}"))).policy(inner);
        for (later, wanted) in [(ms(0), Outcome::Ran), (kept - ms(1), Outcome::Replayed), (ms(1), Outcome::Ran)] {
            world.clock.advance(later).await;
            assert_eq!(worker.deliver_call(call(), &job).await.0, wanted, "{later:?} later, of {kept:?}");
        }
    }
}

#[test]
fn a_policy_of_windows_is_read_from_configuration_and_checked() {
    let read = |json: &str| serde_json::from_str::<Policy>(json).map_err(|error| error.to_string());
    let policy = read(r#"{"window": "5s", "on_consumed": "refuse"}"#).unwrap();
    assert_eq!(policy, refusing());
    assert_eq!(read(r#"{"on_consumed": "replay"}"#).unwrap(), Policy::new().on_consumed(OnConsumed::Replay));
    for (json, texts) in [
        (r#"{"window": 5}"#, ["`window`", "\"5s\""]),
        (r#"{"window": "5"}"#, ["`window`", "no unit"]),
        (r#"{"windwo": "5s"}"#, ["unknown setting `windwo`", "did you mean `window`?"]),
        (r#"{"on_consumed": "drop"}"#, ["`on_consumed`", "`refuse`"]),
    ] {
        let text = read(json).unwrap_err();
        assert!(texts.iter().all(|wanted| text.contains(wanted)), "{json}: {text}");
    }
    // Shorter than the lease is what windows are for, and not what retention is.
    assert_eq!(policy.check(&Scene::Rest), Ok(()));
    assert!(Policy::new().retain(WINDOW).check(&Scene::Rest).is_err());
    let short: Result<(), PolicyError> = policy.check_against(&Scene::Mq, &Redelivery::after([secs(60)]));
    assert!(short.unwrap_err().to_string().contains("retain is 5s"), "a broker brings its duplicates later than that");
}
