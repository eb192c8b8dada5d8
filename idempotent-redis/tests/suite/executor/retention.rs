//! Retention and expiry of records.
use std::time::Duration;

use idempotent_core::{Outcome, Policy, StateKind, Store};
use idempotent_harness::servers::{Connection, RedisServer};

use crate::support::runs::{End, Job, Worker, lease_end, ms, record, secs, time_of, ttl, until_time};
use crate::support::{HOUR, done, hold, key, open, open_without_cache, until};

#[tokio::test]
async fn a_consumed_key_is_retained_for_its_retention_time() {
    let server = RedisServer::builder().faketime().start();
    let store = open_without_cache(&server).await;
    let policy = Policy::new().lease(secs(600)).max_run(secs(600)).retain(HOUR);
    let (worker, job) = (Worker::new(store.clone(), policy), Job::quick());
    let before = time_of(&server) / 1_000;
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
    let after = time_of(&server).div_ceil(1_000);
    let ends = server.command(&["PEXPIRETIME", key("k").as_str()]).integer().unwrap();
    let ends = u64::try_from(ends).unwrap();
    assert!((before + 3_600_000..=after + 3_600_000).contains(&ends), "from completion on, to the ms");
    assert!((1..=3_600_000).contains(&ttl(&server, "k")));
    assert_eq!(record(&store, "k").await.unwrap().state.kind(), StateKind::Consumed);

    // All but a second, or less if the test is slow.
    let passed = (time_of(&server) / 1_000 - before) as f64 / 1e3;
    server.shift_clock(3_599.0 - passed);
    assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!(job.runs(), 1);
    server.shift_clock(3_601.0);
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
    assert_eq!(job.runs(), 2);
}

#[tokio::test]
async fn a_key_that_is_retained_forever_has_no_expiry() {
    let server = RedisServer::builder().faketime().start();
    let store = open_without_cache(&server).await;
    let (worker, job) = (Worker::new(store, Policy::new().retain(Policy::FOREVER)), Job::quick());
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
    assert_eq!(ttl(&server, "k"), -1);
    server.shift_clock(30.0 * 24.0 * 3600.0);
    assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!(job.runs(), 1);
}

/// A plain `SET` would remove the expiry and `KEEPTTL` would keep the old one; the policy determines the new one.
#[tokio::test]
async fn each_step_sets_the_expiry_of_its_policy() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    for (part, retain) in [("shorter", secs(60)), ("longer", HOUR * 2)] {
        let held = hold(&store, part, 1).await;
        // A lease of 30 s and a retention of one hour.
        assert!((3_600_001..=3_630_000).contains(&ttl(&server, part)), "{}", ttl(&server, part));
        store.renew(&held, secs(100)).await.unwrap();
        assert!((3_630_001..=3_700_000).contains(&ttl(&server, part)), "{}", ttl(&server, part));
        store.complete(&held, &idempotent_core::Completion { retain, ..done(None) }).await.unwrap();
        let most = i64::try_from(retain.as_millis()).unwrap();
        // A long retention is extended by up to 1/128.
        let (most, least) = if retain > HOUR { (most + most / 128, most - 29_000) } else { (most, most - 29_000) };
        assert!((least..=most).contains(&ttl(&server, part)), "{part}: {}", ttl(&server, part));
    }
}

/// No fraction of a ms is truncated, and nothing becomes zero.
#[tokio::test]
async fn durations_below_a_second_and_below_a_ms_are_not_truncated() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    for (part, retain) in [("half a second", ms(500)), ("a µs", Duration::from_micros(1))] {
        let held = hold(&store, part, 1).await;
        let done = idempotent_core::Completion { retain, ..done(None) };
        assert_eq!(store.complete(&held, &done).await.unwrap(), idempotent_core::Settled::Done);
        until("the end of the retention", async || ttl(&server, part) == -2).await;
        assert_eq!(record(&store, part).await, None);
    }
    // A lease of less than a ms is a lease.
    let ask = idempotent_core::ClaimRequest { lease: Duration::from_nanos(1), ..crate::support::ask("short", 1) };
    let grant = crate::support::granted(store.claim(&ask).await.unwrap());
    assert!(lease_end(&store, "short").await > grant.fencing.0);
    let policy = Policy::new().lease(ms(900)).retain(ms(950));
    let (worker, job) = (Worker::new(store, policy), Job::quick());
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
    assert!(ttl(&server, "k") <= 950);
}

/// Each step costs one command, and no observer finds a key without an expiry.
#[tokio::test]
async fn each_step_is_one_script_call_and_every_key_always_has_an_expiry() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
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

/// A duplicate of a finished run is acknowledged without any change, whenever the first acknowledgement was lost.
#[tokio::test]
async fn a_duplicate_of_a_finished_run_is_acknowledged_and_keeps_the_record() {
    let server = RedisServer::builder().faketime().start();
    let (worker, job) = (Worker::new(open(&server).await, Policy::new()), Job::quick());
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
    let ends = || server.command(&["PEXPIRETIME", key("k").as_str()]).integer().unwrap();
    let (first, written) = (ends(), crate::support::runs::raw(&server, "k"));
    for later in [1.0, 5.0, 60.0, 3_600.0] {
        server.shift_clock(later);
        // Another process, with an empty cache.
        for worker in [&worker, &Worker::new(open(&server).await, Policy::new())] {
            let outcome = worker.outcome("k", &job).await;
            assert_eq!(outcome.disposition(), idempotent_core::Disposition::Ack, "{outcome:?}");
        }
        assert_eq!((ends(), crate::support::runs::raw(&server, "k")), (first, written.clone()));
    }
    assert_eq!(job.runs(), 1);
}

/// At every instant the key is either held or claimable.
#[tokio::test]
async fn a_lease_holds_until_its_end_and_not_longer() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    for round in 0..20_u64 {
        let part = format!("k{round}");
        let lease = ms(40 + round);
        let ask = idempotent_core::ClaimRequest { lease, ..crate::support::ask(&part, 1) };
        crate::support::granted(store.claim(&ask).await.unwrap());
        let end = lease_end(&store, &part).await;
        let next = loop {
            match store.claim(&idempotent_core::ClaimRequest { lease, ..crate::support::ask(&part, 2) }).await.unwrap()
            {
                idempotent_core::Claim::Acquired(grant) => break grant,
                idempotent_core::Claim::InFlight(_) => assert!(record(&store, &part).await.is_some()),
                other => panic!("{other:?}"),
            }
        };
        // The fencing number is the time of the grant.
        assert!(next.fencing.0 >= end, "{} µs early", end - next.fencing.0);
        until_time(&server, end).await;
    }
}
