//! A server whose clock is changed: only the documented effects occur, and they are counted.
use std::time::Duration;

use idempotent_core::{
    Admin, Claim, ClaimHandle, FencingToken, InFlight, OnLeaseLost, Outcome, OwnerToken, Policy, Record, ReleaseKind,
    Settled, State, StateKind, Store, Timestamp, protocol,
};
use idempotent_harness::servers::RedisServer;

use crate::support::runs::{End, Job, Worker, assert_in_flight, record, secs, ttl};
use crate::support::{HOUR, ask, ask_number, consume, hold, key, open_without_cache, put_down};

const KEYS: u32 = 20;

/// Every current lease ends at once, so two runs overlap. Numbers still rise, and one of the two runs is recorded.
#[tokio::test]
async fn a_clock_set_forward_by_60_s_only_ends_leases() {
    let server = RedisServer::builder().faketime().start();
    let store = open_without_cache(&server).await;
    let policy = Policy::new().on_lease_lost(OnLeaseLost::Finish);
    let (a, b) = (Worker::new(store.clone(), policy), Worker::new(open_without_cache(&server).await, policy));
    consume(&store, "consumed", Some(b"v")).await;
    let (first, second) = (Job::held(), Job::held());
    let mut runs = Vec::new();
    for number in 0..KEYS {
        runs.push(a.begin(&format!("k{number}"), &first).await);
    }
    server.shift_clock(60.0);
    let mut overlapping = Vec::new();
    for number in 0..KEYS {
        overlapping.push(b.begin(&format!("k{number}"), &second).await);
    }
    let overlaps = overlapping.len() as u32;
    assert_eq!(overlaps, KEYS, "a lease of 30 s does not outlast 60 s");
    for (before, after) in first.fencing().iter().zip(second.fencing()) {
        assert!(after > *before);
    }
    // The overtaken run is rejected, whichever ends first.
    for number in 0..KEYS {
        if number % 2 == 0 {
            assert_in_flight(&a.outcome(&format!("k{number}"), &first).await);
        }
    }
    first.end(End::Ok);
    for run in runs {
        assert_eq!(run.await.unwrap().0, Outcome::LeaseLost);
    }
    second.end(End::Ok);
    let mut completed = 0;
    for run in overlapping {
        completed += u32::from(run.await.unwrap().0 == Outcome::Ran);
    }
    assert_eq!(completed, KEYS, "each is completed, and by one");
    for number in 0..KEYS {
        let found = record(&store, &format!("k{number}")).await.unwrap();
        assert_eq!((found.state.kind(), found.attempt), (StateKind::Consumed, 2));
        assert!(second.fencing().contains(&found.fencing));
    }
    assert_eq!(record(&store, "consumed").await.unwrap().state.kind(), StateKind::Consumed, "its hour is not over");
    let told = store.claim(&ask("consumed", 9)).await.unwrap();
    assert!(matches!(told, Claim::Consumed(consumed) if consumed.value.as_deref() == Some(b"v")));
}

/// Every current lease lasts longer by the same time: a dead worker is taken over late, and live ones continue.
#[tokio::test]
async fn a_clock_set_back_by_an_hour_only_prolongs_leases() {
    let server = RedisServer::builder().faketime().start();
    let store = open_without_cache(&server).await;
    let policy = Policy::new().lease(secs(3));
    let worker = Worker::new(store.clone(), policy);
    let orphan = worker.begin("orphan", &Job::held()).await;
    orphan.abort();
    orphan.await.unwrap_err();
    let (lives, before) = (Job::held(), consume(&store, "consumed", None).await);
    let run = worker.begin("lives", &lives).await;
    server.shift_clock(-3_600.0);

    let told = store.claim(&ask("orphan", 9)).await.unwrap();
    let Claim::InFlight(InFlight::Leased { rest }) = told else { panic!("{told:?}") };
    assert!((secs(3_590)..=secs(3_603)).contains(&rest), "an hour of delay: {rest:?}");
    let duplicate = worker.outcome("orphan", &Job::quick()).await;
    let Outcome::InFlight { retry_after } = duplicate else { panic!("{duplicate:?}") };
    assert!(retry_after <= secs(10), "the hint to the broker is not an hour: {retry_after:?}");
    assert!(ttl(&server, "orphan") > 3_600_000);
    // An operator who knows that the worker is dead need not wait.
    let found = record(&store, "orphan").await.unwrap();
    assert_eq!(store.forget(&key("orphan"), found.fencing, true, HOUR).await.unwrap(), Settled::Done);
    let again = Job::quick();
    assert_eq!(worker.outcome("orphan", &again).await, Outcome::Ran);
    assert!(again.fencing()[0] > found.fencing, "though the clock is behind the number");

    lives.end(End::Ok);
    assert_eq!(run.await.unwrap().0, Outcome::Ran);
    for part in ["lives", "consumed", "orphan"] {
        assert_eq!(record(&store, part).await.unwrap().state.kind(), StateKind::Consumed, "{part}");
    }
    assert_eq!(record(&store, "consumed").await.unwrap().fencing, before);
}

/// The limit: a key without a record gets its number from the clock, which may repeat numbers after it was set back. A
/// retry limit, the default of the consumer, keeps a record.
#[tokio::test]
async fn a_number_may_repeat_if_the_clock_is_set_back_after_its_record_is_gone() {
    let server = RedisServer::builder().faketime().start();
    let store = open_without_cache(&server).await;
    for (part, verdict) in [("deleted", ReleaseKind::Delete), ("remembered", ReleaseKind::Vacate)] {
        let held = hold(&store, part, 1).await;
        assert_eq!(store.release(&held, &put_down(verdict)).await.unwrap(), Settled::Done);
        server.shift_clock(-3_600.0);
        match store.claim(&ask(part, 2)).await.unwrap() {
            Claim::Acquired(grant) => assert!(part == "deleted" && grant.fencing < held.fencing.unwrap()),
            // The key was to be free at once by the old clock; this delay is documented.
            Claim::Delayed { rest } => assert!(part == "remembered" && rest > secs(3_590), "{rest:?}"),
            other => panic!("{other:?}"),
        }
        server.shift_clock(0.0);
    }
}

/// The expiry is never shortened, and the write is now: more than 31 days apart.
#[test]
fn a_lease_renewed_after_the_clock_was_set_back_by_months_can_be_completed() {
    const DAY: u64 = 24 * 3_600_000_000;
    let now = Timestamp(1_795_187_175_068_457);
    let record = Record {
        fencing: FencingToken(now.0),
        attempt: 1,
        fingerprint: None,
        state: State::Consuming { owner: OwnerToken(1), until: Timestamp(now.0 + 30_000_000), taken_over: None },
        expires_at: Timestamp(now.0 + DAY),
        first_seen: now,
        updated_at: now,
        display: None,
    };
    let held =
        ClaimHandle { key: ask_number(1, 1).key, owner: OwnerToken(1), fencing: Some(record.fencing), terms: None };
    let back = Timestamp(now.0 - 40 * DAY);
    let (settled, write) = protocol::renew(Some(&record), &held, Duration::from_secs(30), back);
    assert_eq!(settled, Settled::Done);
    let protocol::Write::Put(renewed) = write else { panic!("not written") };
    renewed.check().unwrap();
}
