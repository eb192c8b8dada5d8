//! Ordered calls over stores of several processes, on one server and on a cluster whose nodes share the chain.
use std::sync::Arc;
use std::time::Instant;

use idempotent_core::{Call, OnBrokenOrder, OnInFlight, Outcome, Policy, Store};
use idempotent_harness::servers::{RedisCluster, RedisServer};
use idempotent_redis::RedisStore;

use crate::support::runs::{End, Job, Worker, id, ms, record, secs};

async fn store(url: &str) -> RedisStore {
    RedisStore::connect(url).await.unwrap()
}

/// Returns call `n` of a user's chain.
fn call(user: &str, n: u32) -> Call {
    Call::new(id(&format!("{user}{n}"))).after(&(n > 1).then(|| format!("{user}{}", n - 1)))
}

/// Delivers a call until it is no longer deferred.
async fn until_settled(worker: &Worker, user: &str, n: u32, job: &Arc<Job>) -> Outcome {
    for _ in 0..5_000 {
        let (outcome, _) = worker.deliver_call(call(user, n), job).await;
        if !outcome.is_deferral() && !matches!(outcome, Outcome::StoreDown(_)) {
            return outcome;
        }
        tokio::time::sleep(ms(10)).await;
    }
    panic!("put off for ever")
}

async fn a_chain_runs_in_its_order(url: &str) {
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(Worker::new(store(url).await, Policy::new().max_retries(0)));
    }
    let jobs: Vec<_> = (0..10).map(|_| Job::quick()).collect();
    // Delivers the last call first, each from another process.
    let runs: Vec<_> = (1..=10_u32)
        .rev()
        .map(|n| {
            let (worker, job) = (workers[n as usize % 3].clone(), jobs[n as usize - 1].clone());
            tokio::spawn(async move { until_settled(&worker, "a", n, &job).await })
        })
        .collect();
    for run in runs {
        assert_eq!(run.await.unwrap(), Outcome::Ran);
    }
    // By the server's clock: each fencing number is the time of the grant, and they rise along the chain.
    let grants: Vec<_> = jobs.iter().map(|job| job.fencing()).collect();
    assert!(grants.iter().all(|of| of.len() == 1), "each ran once: {grants:?}");
    assert!(grants.is_sorted(), "{grants:?}");
}

async fn the_next_item_is_held_and_released(url: &str) {
    let policy = Policy::new().on_broken_order(OnBrokenOrder::Skip(secs(2))).max_retries(0);
    let (a, b) = (Worker::new(store(url).await, policy), Worker::new(store(url).await, policy));
    let (dies, job) = (Job::ends(End::Err), Job::quick());
    assert!(matches!(a.deliver_call(call("d", 1), &dies).await.0, Outcome::Dead { .. }));
    let began = Instant::now();
    assert!(matches!(b.deliver_call(call("d", 2), &job).await.0, Outcome::Held { .. }));
    let peeker = store(url).await;
    assert!(record(&peeker as &dyn Store, "d2").await.is_none(), "its key is not held meanwhile");
    // The store records the time, so another process continues to count.
    assert_eq!(until_settled(&a, "d", 2, &job).await, Outcome::Ran);
    assert!(began.elapsed() >= secs(2), "not before its time");
    assert_eq!(job.attempts(), [1]);
}

async fn a_call_that_waits_in_place_wakes_with_its_predecessor_in_another_process(url: &str) {
    let waits = Policy::new().on_in_flight(OnInFlight::Wait(secs(60)));
    let (a, b) = (Worker::new(store(url).await, Policy::new()), Worker::new(store(url).await, waits));
    let (first, second) = (Job::held(), Job::quick());
    let run = {
        let (a, first) = (a.clone(), first.clone());
        tokio::spawn(async move { a.deliver_call(call("w", 1), &first).await.0 })
    };
    first.begun(1).await;
    let next = {
        let (b, second) = (b.clone(), second.clone());
        tokio::spawn(async move { b.deliver_call(call("w", 2), &second).await.0 })
    };
    tokio::time::sleep(ms(50)).await;
    assert!(!next.is_finished() && second.runs() == 0);
    first.end(End::Ok);
    assert_eq!((run.await.unwrap(), next.await.unwrap()), (Outcome::Ran, Outcome::Ran));
    assert_eq!((a.executor.counts().of("ran"), b.executor.counts().of("waiting")), (1, 0));
}

/// Returns call `n` of a user's stream.
fn numbered(user: &str, n: u64) -> Call {
    Call::new(id(&format!("{user}{n}"))).sequence(user, n)
}

async fn registered_numbers_run_in_their_order(url: &str) {
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(Worker::new(store(url).await, Policy::new().max_retries(0)));
    }
    let streams = ["a", "b", "c"];
    for user in streams {
        // Concurrently, as producers do.
        let (one, other) = (workers[0].executor.clone(), workers[1].executor.clone());
        let odd = tokio::spawn(async move { one.register(&id(user), (1..=10).step_by(2)).await });
        let even = tokio::spawn(async move { other.register(&id(user), (2..=10).step_by(2)).await });
        assert_eq!((odd.await.unwrap().unwrap().late, even.await.unwrap().unwrap().late), (0, 0));
    }
    let mut runs = Vec::new();
    let jobs: Vec<Vec<_>> = streams.iter().map(|_| (0..10).map(|_| Job::quick()).collect()).collect();
    for (user, jobs) in streams.into_iter().zip(&jobs) {
        for n in (1..=10_u64).rev() {
            let (worker, job) = (workers[n as usize % 3].clone(), jobs[n as usize - 1].clone());
            runs.push(tokio::spawn(async move {
                for _ in 0..5_000 {
                    let (outcome, _) = worker.deliver_call(numbered(user, n), &job).await;
                    if !outcome.is_deferral() && !matches!(outcome, Outcome::StoreDown(_)) {
                        return outcome;
                    }
                    tokio::time::sleep(ms(10)).await;
                }
                panic!("put off for ever")
            }));
        }
    }
    for run in runs {
        assert_eq!(run.await.unwrap(), Outcome::Ran);
    }
    for jobs in jobs {
        let grants: Vec<_> = jobs.iter().map(|job| job.fencing()).collect();
        assert!(grants.iter().all(|of| of.len() == 1) && grants.is_sorted(), "each once, in order: {grants:?}");
    }
}

#[tokio::test]
async fn a_chain_on_one_server_runs_in_order() {
    a_chain_runs_in_its_order(&RedisServer::start().url()).await;
}

#[tokio::test]
async fn a_chain_over_the_nodes_of_a_cluster_runs_in_order() {
    a_chain_runs_in_its_order(&RedisCluster::start(3).url()).await;
}

#[tokio::test]
async fn registered_numbers_on_one_server_run_in_order() {
    registered_numbers_run_in_their_order(&RedisServer::start().url()).await;
}

#[tokio::test]
async fn registered_numbers_on_a_cluster_run_in_order() {
    registered_numbers_run_in_their_order(&RedisCluster::start(3).url()).await;
}

#[tokio::test]
async fn a_dead_item_holds_the_next() {
    the_next_item_is_held_and_released(&RedisServer::start().url()).await;
}

#[tokio::test]
async fn a_dead_item_on_another_node_holds_the_next() {
    the_next_item_is_held_and_released(&RedisCluster::start(3).url()).await;
}

#[tokio::test]
async fn a_waiting_item_wakes_with_its_predecessor() {
    a_call_that_waits_in_place_wakes_with_its_predecessor_in_another_process(&RedisServer::start().url()).await;
}

#[tokio::test]
async fn a_waiting_item_wakes_with_its_predecessor_on_another_node() {
    a_call_that_waits_in_place_wakes_with_its_predecessor_in_another_process(&RedisCluster::start(3).url()).await;
}
