//! Runs through executors on a real server. `tests/integration/suite/behaviour` shows what an executor does over each
//! kind of store, and the conformance laws show what this store does. These tests cover the scripts, the connection and
//! the server's own clock.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use idempotent_core::{
    Call, Claim, ClaimRequest, Completion, Disposition, FencingToken, Outcome, Policy, Settled, Store,
};
use idempotent_harness::servers::{Connection, RedisCluster, RedisServer};
use idempotent_redis::RedisStore;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::runs::{End, Job, Worker, assert_in_flight, id, lease_end, ms, raw, record, secs, time_of, ttl};
use crate::support::{ask, calls, done, granted, hold, key, open, open_without_cache, start_without_cache, until};

const CLAIMS: usize = 50;

/// Opens a store with long timeouts, because a server on a busy machine may pause for seconds.
async fn patient(server: &RedisServer) -> RedisStore {
    let builder = RedisStore::builder(server.url()).response_timeout(secs(30));
    builder.cache(None).connect().await.unwrap()
}

/// Claims concurrently over these connections, with tokens of this round. Returns the fencing numbers of the winners.
async fn race(stores: &[RedisStore], part: &str, round: u32) -> Vec<FencingToken> {
    let barrier = Arc::new(Barrier::new(CLAIMS));
    let mut claims = JoinSet::new();
    for (number, store) in (1..=CLAIMS as u128).zip(stores.iter().cycle()) {
        let (store, barrier) = (store.clone(), barrier.clone());
        let request = ask(part, u128::from(round) << 64 | number);
        claims.spawn(async move {
            barrier.wait().await;
            store.claim(&request).await.unwrap()
        });
    }
    let won = |claim| match claim {
        Claim::Acquired(grant) => Some(grant.fencing),
        Claim::InFlight(_) => None,
        other => panic!("{other:?}"),
    };
    claims.join_all().await.into_iter().filter_map(won).collect()
}

/// A record may vanish while other claims are rejected because of it. The key is then claimed again, and no run starts
/// without a grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vanished_record_is_claimed_again_and_never_twice() {
    let server = Arc::new(RedisServer::start());
    let stores = [patient(&server).await, patient(&server).await];
    let over = Arc::new(AtomicBool::new(false));
    // Deletes the key repeatedly during the claims, like an operator, an eviction or a flush.
    let vanishing = std::thread::spawn({
        let (server, over) = (server.clone(), over.clone());
        move || {
            let mut connection = server.connect();
            let mut gone = 0;
            while !over.load(SeqCst) {
                gone += connection.ask(&["DEL", key("k").as_str()]).unwrap().integer().unwrap();
            }
            gone
        }
    });
    let mut granted = 0;
    for round in 0..100 {
        granted += race(&stores, "k", round).await.len();
    }
    over.store(true, SeqCst);
    let gone = usize::try_from(vanishing.join().unwrap()).unwrap();
    assert!(gone > 0 && granted >= 100, "{gone} vanished, {granted} granted");
    assert!(
        (gone..=gone + 1).contains(&granted),
        "one grant for each marker that vanished, and the last: {gone}, {granted}"
    );
}

/// A claim in flight does not allow a second run, and a rejected duplicate deletes nothing.
#[tokio::test]
async fn a_duplicate_of_a_run_in_flight_costs_one_command_and_is_deferred() {
    let server = RedisServer::start();
    let (a, b) = (Worker::new(open(&server).await, Policy::new()), Worker::new(open(&server).await, Policy::new()));
    let job = Job::held();
    let run = a.begin("k", &job).await;
    let (before, held) = (calls(&server, "evalsha"), raw(&server, "k"));
    let duplicate = b.outcome("k", &job).await;
    assert_in_flight(&duplicate);
    assert_eq!(calls(&server, "evalsha"), before + 1, "at once: nothing is waited for, nothing is asked twice");
    let Disposition::Retry { after } = duplicate.disposition() else { panic!("{duplicate:?}") };
    assert!(after <= secs(1), "a short handler costs its duplicate little");
    assert_eq!(raw(&server, "k"), held);
    job.end(End::Ok);
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    assert_eq!(b.outcome("k", &job).await.disposition(), Disposition::Ack);
    assert_eq!(job.runs(), 1);
}

#[test]
fn a_blocked_handler_keeps_its_key() {
    let server = RedisServer::start();
    idempotent_testkit::blocked_handler_keeps_its_key(async || open_without_cache(&server).await);
}

/// The old connection is dead and another server process has the data. The completion is retried until the guard time.
#[tokio::test]
async fn a_completion_survives_a_restart_of_the_server() {
    let server = RedisServer::builder().aof().start();
    let (worker, other) =
        (Worker::new(open(&server).await, Policy::new()), Worker::new(open(&server).await, Policy::new()));
    let job = Job::held();
    let run = worker.begin("k", &job).await;
    let held = raw(&server, "k");
    server.kill();
    job.end(End::Ok);
    // More failures than stale pooled connections could cause.
    until("the completion fails, again and again", async || worker.failed("complete") >= 3).await;
    assert!(!run.is_finished());
    server.restart();
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    assert_ne!(raw(&server, "k"), held);
    assert_eq!(other.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!(job.runs(), 1);
}

/// Delivers ten calls of each stream, the last one first and each by another process, until all have run. Checks that
/// the calls of a stream ran in their order, each once.
async fn run_in_order(workers: &[Worker], streams: &'static [&str], call: fn(&str, u32) -> Call) {
    let jobs: Vec<Vec<_>> = streams.iter().map(|_| (0..10).map(|_| Job::quick()).collect()).collect();
    let mut runs = Vec::new();
    for (stream, jobs) in streams.iter().copied().zip(&jobs) {
        for n in (1..=10_u32).rev() {
            let (worker, job) = (workers[n as usize % workers.len()].clone(), jobs[n as usize - 1].clone());
            runs.push(tokio::spawn(async move { worker.redeliver(|| call(stream, n), &job).await }));
        }
    }
    for run in runs {
        assert_eq!(run.await.unwrap(), Outcome::Ran);
    }
    // Each fencing number is the time of the grant by the server's clock.
    for jobs in jobs {
        let grants: Vec<_> = jobs.iter().map(|job| job.fencing()).collect();
        assert!(grants.iter().all(|of| of.len() == 1) && grants.is_sorted(), "each once, in order: {grants:?}");
    }
}

async fn three_workers(url: &str) -> Vec<Worker> {
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(Worker::new(RedisStore::connect(url).await.unwrap(), Policy::new().max_retries(0)));
    }
    workers
}

#[tokio::test]
async fn a_chain_runs_in_order_on_one_server_and_over_the_nodes_of_a_cluster() {
    let (server, cluster) = (RedisServer::start(), RedisCluster::start(3));
    for url in [server.url(), cluster.url()] {
        let call = |user: &str, n: u32| {
            Call::new(id(&format!("{user}{n}"))).after(&(n > 1).then(|| format!("{user}{}", n - 1)))
        };
        run_in_order(&three_workers(&url).await, &["a"], call).await;
    }
}

#[tokio::test]
async fn registered_numbers_run_in_order_on_one_server_and_on_a_cluster() {
    let (server, cluster) = (RedisServer::start(), RedisCluster::start(3));
    for url in [server.url(), cluster.url()] {
        let workers = three_workers(&url).await;
        for user in ["a", "b", "c"] {
            // Concurrently, as producers do.
            let (one, other) = (workers[0].executor.clone(), workers[1].executor.clone());
            let odd = tokio::spawn(async move { one.register(&id(user), (1..=10).step_by(2)).await });
            let even = tokio::spawn(async move { other.register(&id(user), (2..=10).step_by(2)).await });
            assert_eq!((odd.await.unwrap().unwrap().late, even.await.unwrap().unwrap().late), (0, 0));
        }
        let call = |user: &str, n: u32| Call::new(id(&format!("{user}{n}"))).sequence(user, n.into());
        run_in_order(&workers, &["a", "b", "c"], call).await;
    }
}

/// No fraction of a ms is truncated, and nothing becomes zero.
#[tokio::test]
async fn durations_below_a_second_and_below_a_ms_are_not_truncated() {
    let (server, store) = start_without_cache().await;
    for (part, retain) in [("half a second", ms(500)), ("a µs", Duration::from_micros(1))] {
        let held = hold(&store, part, 1).await;
        assert_eq!(store.complete(&held, &Completion { retain, ..done(None) }).await.unwrap(), Settled::Done);
        until("the end of the retention", async || ttl(&server, part) == -2).await;
        assert_eq!(record(&store, part).await, None);
    }
    // A lease of less than a ms is a lease.
    let short = ClaimRequest { lease: Duration::from_nanos(1), ..ask("short", 1) };
    let grant = granted(store.claim(&short).await.unwrap());
    assert!(lease_end(&store, "short").await > grant.fencing.0);
    let policy = Policy::new().lease(ms(900)).retain(ms(950));
    let (worker, job) = (Worker::new(store, policy), Job::quick());
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
    assert!(ttl(&server, "k") <= 950);
}

/// Each step costs one command, and no observer finds a key without an expiry.
#[tokio::test]
async fn each_step_is_one_script_call_and_every_key_always_has_an_expiry() {
    let (server, store) = start_without_cache().await;
    let worker = Worker::new(store.clone(), Policy::new().lease(secs(3)));
    // The scripts are cached from here on.
    let job = Job::held();
    let run = worker.begin("warm", &job).await;
    let end = lease_end(&store, "warm").await;
    until("a renewal", async || lease_end(&store, "warm").await > end).await;
    job.end(End::Ok);
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    let mut monitor = server.connect();
    assert_eq!(monitor.ask(&["MONITOR"]).unwrap().text(), "OK");
    let (asked, job) = (time_of(&server), Job::held());
    let run = worker.begin("k", &job).await;
    let end = lease_end(&store, "k").await;
    assert!(end <= time_of(&server) + 3_000_000 && end >= asked + 3_000_000);
    let (rest, ttl) = (end.saturating_sub(time_of(&server)) / 1_000, ttl(&server, "k"));
    assert!(u64::try_from(ttl).unwrap() >= rest, "the key outlives its lease: {ttl} ms, {rest} ms");
    until("a renewal", async || lease_end(&store, "k").await > end).await;
    job.end(End::Ok);
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    server.command(&["ECHO", "the test has seen enough"]);
    let (calls, writes) = of_key(&mut monitor, key("k").as_str());
    // The calls are the claim, the completion, one or more renewals, and the queries of this test.
    assert!(calls.iter().all(|call| call.contains("\"EVALSHA\"")), "{calls:#?}");
    assert!((3..=20).contains(&writes.len()), "{writes:#?}");
    for write in &writes {
        assert!(write.contains("\"SET\"") && write.contains("\"PX\""), "{write}");
    }
    let claims = writes.iter().filter(|write| write.contains("\"NX\"")).count();
    assert_eq!(claims, 1, "the marker is written by one command, and by a claim");
}

/// Returns the commands in a monitor's output that concern the key: those of clients, and the writes by scripts.
fn of_key(monitor: &mut Connection, key: &str) -> (Vec<String>, Vec<String>) {
    let (mut calls, mut writes) = (Vec::new(), Vec::new());
    loop {
        let line = monitor.answer().unwrap().text();
        if line.contains("the test has seen enough") {
            return (calls, writes);
        }
        let reads =
            ["\"GET\"", "\"PEXPIRETIME\"", "\"PUBLISH\""].iter().any(|read| line.contains(&format!("] {read}")));
        let asked_by_hand = line.contains("\"PTTL\"");
        if !line.contains(key) || reads || asked_by_hand {
            continue;
        }
        if line.contains(" lua]") { writes.push(line) } else { calls.push(line) }
    }
}
