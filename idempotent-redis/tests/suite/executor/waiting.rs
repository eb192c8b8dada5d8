//! Duplicates that wait for the run in flight, over stores of two processes.
use std::time::Duration;

use idempotent_core::{Call, DefaultReply, Disposition, Handler, Json, OnInFlight, Outcome, Policy, StateKind};
use idempotent_harness::servers::RedisServer;

use crate::support::runs::{AppError, End, Job, Worker, assert_in_flight, id, lease_end, raw, record, secs};
use crate::support::{calls, open, open_without_cache, until};

fn waiting(most: Duration) -> Policy {
    Policy::new().on_in_flight(OnInFlight::Wait(most))
}

/// A waiter that gives up changes nothing, and the next one waits as well.
#[tokio::test]
async fn a_waiter_gives_up_at_its_limit_without_side_effects() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    let (a, b, c) = (
        Worker::new(open(&server).await, Policy::new()),
        Worker::new(open(&server).await, waiting(secs(1))),
        Worker::new(open(&server).await, waiting(secs(60))),
    );
    let job = Job::held();
    let run = a.begin("k", &job).await;
    let held = record(&store, "k").await.unwrap();
    assert_in_flight(&b.outcome("k", &job).await);
    let after = record(&store, "k").await.unwrap();
    assert_eq!((after.fencing, after.attempt, after.state.kind()), (held.fencing, 1, StateKind::Consuming));
    let late = c.spawn("k", &job);
    until("C waits", async || waited_for(&server, "k")).await;
    assert!(!late.is_finished());
    job.end(End::Ok);
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    let (outcome, answer) = late.await.unwrap();
    assert_eq!((outcome, answer.unwrap()), (Outcome::Replayed, 1));
    assert_eq!(job.runs(), 1);
}

/// Returns whether a waiter is registered: bit 4 of the flags.
fn waited_for(server: &RedisServer, part: &str) -> bool {
    raw(server, part).get(37).is_some_and(|flags| flags & 4 != 0)
}

/// No waiter deletes a claim of another one. One waiter takes over, and the others continue to wait.
#[tokio::test]
async fn exactly_one_waiter_takes_over_when_the_owner_fails() {
    let server = RedisServer::start();
    let mut workers = Vec::new();
    for _ in 0..5 {
        workers.push(Worker::new(open(&server).await, waiting(secs(60))));
    }
    let owner = Worker::new(open(&server).await, Policy::new());
    let (first, second) = (Job::held(), Job::held());
    let run = owner.begin("k", &first).await;
    let before = calls(&server, "evalsha");
    let waiters: Vec<_> = workers.iter().chain(&workers).map(|worker| worker.spawn("k", &second)).collect();
    // Each waiter has failed to claim, registered, and claimed once more.
    until("all of them wait", async || waited_for(&server, "k") && calls(&server, "evalsha") >= before + 15).await;
    first.end(End::Err);
    assert!(matches!(run.await.unwrap().0, Outcome::Released { .. }));
    second.begun(1).await;
    // The others continue to wait, so the key is watched again.
    until("the others wait again", async || waited_for(&server, "k")).await;
    assert_eq!(second.runs(), 1, "exactly one");
    assert!(!waiters.iter().any(tokio::task::JoinHandle::is_finished));
    second.end(End::Ok);
    let mut names = Vec::new();
    for waiter in waiters {
        let (outcome, answer) = waiter.await.unwrap();
        assert_eq!(answer.unwrap(), 1);
        names.push(outcome.name());
    }
    names.sort_unstable();
    assert_eq!((names[0], names.iter().filter(|name| **name == "replayed").count()), ("ran", 9));
    assert_eq!(second.attempts(), [2]);
}

#[tokio::test]
async fn a_waiter_takes_over_when_the_lease_of_a_dead_owner_expires() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    let policy = waiting(secs(60)).lease(secs(6));
    let (a, b) = (Worker::new(open(&server).await, policy), Worker::new(open(&server).await, policy));
    let run = a.begin("k", &Job::held()).await;
    // Aborted after the start: no notification is sent.
    run.abort();
    run.await.unwrap_err();
    let end = lease_end(&store, "k").await;
    let job = Job::quick();
    assert_eq!(b.outcome("k", &job).await, Outcome::Ran);
    assert!(job.fencing()[0].0 >= end);
}

/// A duplicate gets the exact result, even if it is empty. A result that is too large is replaced by a marker.
#[tokio::test]
async fn a_replay_returns_the_result_of_the_first_run() {
    #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Receipt {
        id: u64,
        note: Option<String>,
        nested: Vec<(u8, String)>,
    }
    let server = RedisServer::start();
    let receipt = Receipt { id: 7, note: None, nested: vec![(1, "ünï\0\r\n".into())] };
    let policy = Policy::new().max_result(200);
    // The worker that ran, the same one again, and one with an empty cache.
    let same = Worker::new(open(&server).await, policy);
    let other = Worker::new(open(&server).await, policy);
    for (worker, outcome) in [(&same, Outcome::Ran), (&same, Outcome::Replayed), (&other, Outcome::Replayed)] {
        let executor = &worker.executor;
        let answer = receipt.clone();
        let handler = Handler::<DefaultReply, Json, _, _>::new(move || async move { Ok::<_, AppError>(answer) });
        let (answer, told) = Outcome::capture(executor.run(Call::new(id("receipt")), handler)).await;
        assert_eq!((answer.unwrap(), told), (receipt.clone(), Some(outcome.clone())));
        let none = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<Option<u8>, AppError>(None) });
        let (answer, told) = Outcome::capture(executor.run(Call::new(id("none")), none)).await;
        assert_eq!((answer.unwrap(), told), (None, Some(outcome.clone())));
        let unit = Handler::<DefaultReply, Json, _, _>::new(|| async { Disposition::Ack });
        let (answer, told) = Outcome::capture(executor.run(Call::new(id("unit")), unit)).await;
        assert_eq!((answer, told), (Disposition::Ack, Some(outcome.clone())));
        let large = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<_, AppError>("x".repeat(1_000)) });
        let (_, told) = Outcome::capture(executor.run(Call::new(id("large")), large)).await;
        let marker = if outcome == Outcome::Ran { Outcome::Ran } else { Outcome::ConsumedWithoutResult };
        assert_eq!(told, Some(marker));
    }
}
