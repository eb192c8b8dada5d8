//! How long what is kept is kept.
use std::time::Duration;

use idempotent_core::{Outcome, Policy, StateKind, Store};
use idempotent_testkit::servers::{Connection, RedisServer};

use crate::support::runs::{End, Job, Worker, lease_end, ms, record, secs, time_of, ttl, until_time};
use crate::support::{HOUR, done, hold, key, open, open_without_cache, until};

#[tokio::test]
async fn b1_k45_a_consumed_key_is_remembered_for_its_retention() {
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

    // All but a second, or what a slow test has used up of it.
    let passed = (time_of(&server) / 1_000 - before) as f64 / 1e3;
    server.shift_clock(3_599.0 - passed);
    assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!(job.runs(), 1);
    server.shift_clock(3_601.0);
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
    assert_eq!(job.runs(), 2);
}

#[tokio::test]
async fn b1_s0_5_m13_a_key_retained_for_ever_has_no_end() {
    let server = RedisServer::builder().faketime().start();
    let store = open_without_cache(&server).await;
    let (worker, job) = (Worker::new(store, Policy::new().retain(Policy::FOREVER)), Job::quick());
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
    assert_eq!(ttl(&server, "k"), -1);
    server.shift_clock(30.0 * 24.0 * 3600.0);
    assert_eq!(worker.outcome("k", &job).await, Outcome::Replayed);
    assert_eq!(job.runs(), 1);
}

/// M13: a `SET` alone would take the marker's end away, `KEEPTTL` would keep it: the policy says which.
#[tokio::test]
async fn m13_each_step_sets_the_end_that_its_policy_says() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    for (part, retain) in [("shorter", secs(60)), ("longer", HOUR * 2)] {
        let held = hold(&store, part, 1).await;
        // The lease of 30 s, and an hour of memory.
        assert!((3_600_001..=3_630_000).contains(&ttl(&server, part)), "{}", ttl(&server, part));
        store.renew(&held, secs(100)).await.unwrap();
        assert!((3_630_001..=3_700_000).contains(&ttl(&server, part)), "{}", ttl(&server, part));
        store.complete(&held, &idempotent_core::Completion { retain, ..done(None) }).await.unwrap();
        let most = i64::try_from(retain.as_millis()).unwrap();
        // A long retention is spread over up to 1/128 more.
        let (most, least) = if retain > HOUR { (most + most / 128, most - 29_000) } else { (most, most - 29_000) };
        assert!((least..=most).contains(&ttl(&server, part)), "{part}: {}", ttl(&server, part));
    }
}

/// M3, K40, K43: not a part of a ms is cut off, and nothing becomes zero.
#[tokio::test]
async fn m3_spans_below_a_second_and_below_a_ms_are_not_cut_off() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    for (part, retain) in [("half a second", ms(500)), ("a µs", Duration::from_micros(1))] {
        let held = hold(&store, part, 1).await;
        let done = idempotent_core::Completion { retain, ..done(None) };
        assert_eq!(store.complete(&held, &done).await.unwrap(), idempotent_core::Settled::Done);
        until("the end of the retention", async || ttl(&server, part) == -2).await;
        assert_eq!(record(&store, part).await, None);
    }
    // A lease of a part of a ms is one, too.
    let ask = idempotent_core::ClaimRequest { lease: Duration::from_nanos(1), ..crate::support::ask("short", 1) };
    let grant = crate::support::granted(store.claim(&ask).await.unwrap());
    assert!(lease_end(&store, "short").await > grant.fencing.0);
    let policy = Policy::new().lease(ms(900)).retain(ms(950));
    let (worker, job) = (Worker::new(store, policy), Job::quick());
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
    assert!(ttl(&server, "k") <= 950);
}

/// K30, K58, K65: one command for each step, and whoever looks never finds a key without an end.
#[tokio::test]
async fn b2_s0_2_each_step_is_one_script_call_and_no_key_is_ever_without_an_end() {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    let worker = Worker::new(store.clone(), Policy::new().lease(secs(3)));
    // The scripts are known afterwards.
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
    // Besides those of the claim, the completion and one renewal or a few there are the looks of this test.
    assert!(calls.iter().all(|call| call.contains("\"EVALSHA\"")), "{calls:#?}");
    assert!((3..=20).contains(&writes.len()), "{writes:#?}");
    for write in &writes {
        assert!(write.contains("\"SET\"") && write.contains("\"PX\""), "{write}");
    }
    let claims = writes.iter().filter(|write| write.contains("\"NX\"")).count();
    assert_eq!(claims, 1, "the marker is written by one command, and by a claim");
}

/// Of what a monitor has seen: the clients' commands that name the key, and the scripts' own that write it.
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

/// K55, K60: whenever the first ack got lost, a finished duplicate is acked, and that changes nothing.
#[tokio::test]
async fn b41_k55_k60_a_finished_duplicate_is_always_acked_and_its_record_stays() {
    let server = RedisServer::builder().faketime().start();
    let (worker, job) = (Worker::new(open(&server).await, Policy::new()), Job::quick());
    assert_eq!(worker.outcome("k", &job).await, Outcome::Ran);
    let ends = || server.command(&["PEXPIRETIME", key("k").as_str()]).integer().unwrap();
    let (first, written) = (ends(), crate::support::runs::raw(&server, "k"));
    for later in [1.0, 5.0, 60.0, 3_600.0] {
        server.shift_clock(later);
        // Another process, which has nothing in mind.
        for worker in [&worker, &Worker::new(open(&server).await, Policy::new())] {
            let outcome = worker.outcome("k", &job).await;
            assert_eq!(outcome.disposition(), idempotent_core::Disposition::Ack, "{outcome:?}");
        }
        assert_eq!((ends(), crate::support::runs::raw(&server, "k")), (first, written.clone()));
    }
    assert_eq!(job.runs(), 1);
}

/// No instant in which a key is neither held nor claimable.
#[tokio::test]
async fn k14_up_to_its_end_a_lease_holds_and_from_then_on_it_does_not() {
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
        // The number is the time of the grant.
        assert!(next.fencing.0 >= end, "{} µs early", end - next.fencing.0);
        until_time(&server, end).await;
    }
}
