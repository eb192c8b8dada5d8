//! Claims by `SET … NX GET`, with fencing numbers that the client has estimated.
use std::time::Duration;

use idempotent_core::{
    Batch, Claim, ClaimHandle, ClaimRequest, Dead, InFlight, ReleaseKind, Settled, State, StateKind, Store,
};
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;

use crate::support::runs::{ms, record, secs, time_of, ttl};
use crate::support::{HOUR, ask, calls, consume, done, granted, hold, key, open_without_cache, put_down, until};

/// Opens a store that has read the server's clock, so that its claims are commands.
async fn open_with_reading(server: &RedisServer) -> RedisStore {
    let store = RedisStore::builder(server.url()).cache(None).native_claims().connect().await.unwrap();
    refresh(&store).await;
    store
}

/// Reads the server's clock.
async fn refresh(store: &RedisStore) {
    store.peek(&key("reading")).await.unwrap();
}

async fn open_with_scripts(server: &RedisServer) -> RedisStore {
    open_without_cache(server).await
}

/// Claims by a command, even if the machine is so slow that a number is late.
async fn hold_natively(server: &RedisServer, store: &RedisStore, part: &str, owner: u128) -> ClaimHandle {
    for _ in 0..200 {
        refresh(store).await;
        let before = calls(server, "evalsha");
        let held = hold(store, part, owner).await;
        if calls(server, "evalsha") == before {
            return held;
        }
        assert_eq!(store.release(&held, &put_down(ReleaseKind::Delete)).await.unwrap(), Settled::Done);
        until("the record to expire", async || record(store, part).await.is_none()).await;
    }
    panic!("no claim of 200 was a command");
}

#[tokio::test]
async fn a_claim_of_an_absent_key_is_a_command_with_a_number_ahead_of_the_clock() {
    let server = RedisServer::start();
    let store = open_with_reading(&server).await;
    let held = hold_natively(&server, &store, "k", 7).await;
    let (number, now) = (held.fencing.unwrap().0, time_of(&server));
    let found = record(&store, "k").await.unwrap();
    assert_eq!((found.fencing.0, found.attempt, found.first_seen.0, found.updated_at.0), (number, 1, number, number));
    assert!(number < now + 20_000, "{number} at {now}");
    let State::Consuming { until, .. } = found.state else { panic!("{found:?}") };
    assert_eq!(until.0, number + 30_000_000);
    assert_eq!(found.expires_at.0, number + 30_000_000 + 3_600_000_000);
    let left = ttl(&server, "k");
    assert!((3_600_000..3_631_000).contains(&left), "{left}");
    assert_eq!(store.complete(&held, &done(None)).await.unwrap(), Settled::Done);
    let repeated = store.claim(&ask("k", 8)).await.unwrap();
    assert!(matches!(repeated, Claim::Consumed(consumed) if consumed.fencing.0 == number));
}

#[tokio::test]
async fn a_batch_of_claims_is_commands_except_for_those_that_need_the_script() {
    let server = RedisServer::start();
    let store = open_with_reading(&server).await;
    let held = hold(&store, "vacant", 1).await;
    assert_eq!(store.release(&held, &put_down(ReleaseKind::Vacate)).await.unwrap(), Settled::Done);
    consume(&store, "consumed", None).await;
    hold(&store, "held", 1).await;
    refresh(&store).await;
    let requests: Vec<_> = ["a", "vacant", "consumed", "b", "held"].map(|part| ask(part, 9)).into();
    let claims: Vec<_> = store.claim_all(&requests).await.into_iter().map(Result::unwrap).collect();
    let attempts: Vec<_> = [0, 1, 3].map(|at| granted(claims[at].clone()).attempt).into();
    assert_eq!(attempts, [1, 2, 1]);
    assert!(matches!((&claims[2], &claims[4]), (Claim::Consumed(_), Claim::InFlight(InFlight::Leased { .. }))));
    for (request, at) in [(&requests[0], 0), (&requests[1], 1), (&requests[3], 3)] {
        let held = ClaimHandle::granted(request, &granted(claims[at].clone()));
        assert_eq!(store.complete(&held, &done(None)).await.unwrap(), Settled::Done);
    }
}

/// Between the estimate and the write, another client may have claimed the key and released it.
#[tokio::test]
async fn a_number_that_the_clock_has_passed_is_raised_before_it_is_granted() {
    let server = RedisServer::builder().faketime().start();
    let (store, other) = (open_with_reading(&server).await, open_with_scripts(&server).await);
    for (part, is_batch) in [("single", false), ("batch", true)] {
        refresh(&store).await;
        server.shift_clock(3_600.0);
        let higher = hold(&other, part, 1).await;
        assert_eq!(other.release(&higher, &put_down(ReleaseKind::Delete)).await.unwrap(), Settled::Done);
        assert_eq!(record(&other, part).await, None);
        let request = ask(part, 2);
        let claim = if is_batch {
            store.claim_all(std::slice::from_ref(&request)).await.remove(0)
        } else {
            store.claim(&request).await
        };
        let grant = granted(claim.unwrap());
        assert!(grant.fencing > higher.fencing.unwrap(), "{part}: {:?} after {higher:?}", grant.fencing);
        assert_eq!((grant.attempt, grant.taken_over), (1, None), "{part}");
        assert_eq!(record(&store, part).await.unwrap().fencing, grant.fencing, "{part}");
        let held = ClaimHandle::granted(&request, &grant);
        assert_eq!(store.complete(&held, &done(None)).await.unwrap(), Settled::Done, "{part}");
    }
}

/// Otherwise the record could expire before the clock has passed its number.
#[tokio::test]
async fn a_number_far_ahead_of_the_clock_is_kept_until_the_clock_has_passed_it() {
    let server = RedisServer::builder().faketime().start();
    let store = open_with_reading(&server).await;
    server.shift_clock(-7_200.0);
    let request = ClaimRequest { retention: Duration::ZERO, ..ask("k", 1) };
    let grant = granted(store.claim(&request).await.unwrap());
    assert!(grant.fencing.0 > time_of(&server) + 7_000_000_000);
    assert!(ttl(&server, "k") > 7_000_000, "{}", ttl(&server, "k"));
}

#[tokio::test]
async fn a_claim_without_an_answer_is_raised_when_its_owner_repeats_it() {
    let server = RedisServer::builder().faketime().start();
    let proxy = Proxy::start(&server.address()).await;
    let store = RedisStore::builder(proxy.url()).cache(None).native_claims().connect().await.unwrap();
    refresh(&store).await;
    proxy.fail_next_with(key("k").as_str(), Fault::CutAfterApply);
    // The clock passes the number that the claim is going to write.
    server.shift_clock(3_600.0);
    let before = calls(&server, "evalsha");
    let failed = store.claim(&ask("k", 1)).await.unwrap_err();
    assert_eq!((failed.kind(), calls(&server, "evalsha")), (idempotent_core::StoreErrorKind::Ambiguous, before));
    let late = record(&store, "k").await.unwrap().fencing;
    let now = time_of(&server);
    assert!(late.0 < now, "{late:?} at {now}");
    let grant = granted(store.claim(&ask("k", 1)).await.unwrap());
    assert!(grant.fencing.0 >= now && grant.attempt == 1, "{grant:?} at {now}");
}

#[tokio::test]
async fn a_dropped_claim_is_raised_when_its_owner_repeats_it() {
    let server = RedisServer::start();
    let store = open_with_reading(&server).await;
    server.pause();
    assert!(tokio::time::timeout(ms(20), store.claim(&ask("k", 1))).await.is_err());
    server.resume();
    until("the dropped claim to arrive", async || record(&store, "k").await.is_some()).await;
    let first = record(&store, "k").await.unwrap().fencing;
    let grant = granted(store.claim(&ask("k", 1)).await.unwrap());
    assert!(grant.fencing > first, "{grant:?} after {first:?}");
}

#[tokio::test]
async fn an_answered_claim_that_is_repeated_has_the_same_answer() {
    let server = RedisServer::start();
    let store = open_with_reading(&server).await;
    let held = hold_natively(&server, &store, "k", 1).await;
    refresh(&store).await;
    let again = granted(store.claim(&ask("k", 1)).await.unwrap());
    assert_eq!((Some(again.fencing), again.attempt), (held.fencing, 1));
}

#[tokio::test]
async fn a_release_right_after_a_claim_leaves_no_record_once_the_clock_has_passed_the_number() {
    let server = RedisServer::start();
    let store = open_with_reading(&server).await;
    let held = hold_natively(&server, &store, "k", 1).await;
    assert_eq!(store.release(&held, &put_down(ReleaseKind::Delete)).await.unwrap(), Settled::Done);
    // The next claim does not wait for that.
    let next = hold(&store, "k", 2).await;
    assert!(next.fencing > held.fencing);
    assert_eq!(record(&store, "k").await.unwrap().attempt, 1);
    assert_eq!(store.release(&next, &put_down(ReleaseKind::Delete)).await.unwrap(), Settled::Done);
    until("the key to expire", async || ttl(&server, "k") == -2).await;
}

#[tokio::test]
async fn keys_in_other_states_have_the_answers_of_the_script() {
    let server = RedisServer::start();
    let (store, scripts) = (open_with_reading(&server).await, open_with_scripts(&server).await);
    let release = async |part: &str, kind| {
        let held = hold(&scripts, part, 1).await;
        assert_eq!(scripts.release(&held, &put_down(kind)).await.unwrap(), Settled::Done);
        held.fencing.unwrap()
    };
    release("dead", ReleaseKind::MarkDead).await;
    release("failed", ReleaseKind::MarkFailed).await;
    let vacant = release("vacant", ReleaseKind::Vacate).await;
    let expired = ClaimRequest { lease: ms(1), ..ask("expired", 1) };
    let expired = granted(scripts.claim(&expired).await.unwrap()).fencing;
    until("the lease to end", async || time_of(&server) > expired.0 + 1_000).await;
    refresh(&store).await;
    assert!(matches!(store.claim(&ask("dead", 2)).await.unwrap(), Claim::Dead(Dead { attempts: 1, .. })));
    assert!(matches!(store.claim(&ask("failed", 2)).await.unwrap(), Claim::Failed { .. }));
    let grant = granted(store.claim(&ask("vacant", 2)).await.unwrap());
    assert!(grant.fencing > vacant && grant.attempt == 2);
    let grant = granted(store.claim(&ask("expired", 2)).await.unwrap());
    assert_eq!((grant.attempt, grant.taken_over), (2, Some(expired)));
    server.command(&["LPUSH", key("list").as_str(), "x"]);
    for store in [&store, &scripts] {
        refresh(store).await;
        let error = store.claim(&ask("list", 2)).await.unwrap_err();
        assert_eq!(error.kind(), idempotent_core::StoreErrorKind::Foreign, "{error}");
    }
}

/// The cache needs the remaining retention, which only the script returns.
#[tokio::test]
async fn a_cold_duplicate_is_cached_and_then_costs_no_command() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).native_claims().connect().await.unwrap();
    let scripts = open_with_scripts(&server).await;
    let fencing = consume(&scripts, "k", Some(b"{}")).await;
    refresh(&store).await;
    for _ in 0..2 {
        let claim = store.claim(&ask("k", 2)).await.unwrap();
        assert!(
            matches!(&claim, Claim::Consumed(found) if found.fencing == fencing && found.value.is_some()),
            "{claim:?}"
        );
    }
    let before = (calls(&server, "evalsha"), calls(&server, "set"));
    assert!(matches!(store.claim(&ask("k", 2)).await.unwrap(), Claim::Consumed(_)));
    assert_eq!((calls(&server, "evalsha"), calls(&server, "set")), before);
}

/// Versions before 0070 complete what this version has claimed, and the other way round.
#[tokio::test]
async fn records_of_commands_and_of_scripts_are_read_and_ended_by_either() {
    let server = RedisServer::start();
    let (store, scripts) = (open_with_reading(&server).await, open_with_scripts(&server).await);
    let native = hold_natively(&server, &store, "native", 1).await;
    let scripted = hold(&scripts, "scripted", 1).await;
    // Handles without the terms of the grant are those of an older version.
    for (store, held) in [(&scripts, native), (&store, scripted)] {
        let plain = ClaimHandle { terms: None, ..held };
        assert_eq!(store.renew(&plain, secs(60)).await.unwrap(), Settled::Done);
        assert_eq!(store.complete(&plain, &done(Some(b"1"))).await.unwrap(), Settled::Done);
    }
    for part in ["native", "scripted"] {
        assert_eq!(record(&scripts, part).await.unwrap().state.kind(), StateKind::Consumed, "{part}");
    }
    let admin = store.capabilities().admin.unwrap();
    let seen = record(&store, "native").await.unwrap().fencing;
    assert_eq!(admin.forget(&key("native"), seen, false, HOUR).await.unwrap(), Settled::Done);
}

#[tokio::test]
async fn a_load_of_takeovers_makes_claims_scripts() {
    let server = RedisServer::start();
    let store = RedisStore::builder(server.url()).cache(None).adaptive_claims().connect().await.unwrap();
    refresh(&store).await;
    for part in 0..40 {
        let part = format!("vacant-{part}");
        let held = hold(&store, &part, 1).await;
        assert_eq!(store.release(&held, &put_down(ReleaseKind::Vacate)).await.unwrap(), Settled::Done);
        hold(&store, &part, 2).await;
    }
    refresh(&store).await;
    let before = calls(&server, "evalsha");
    hold(&store, "one", 1).await;
    assert_eq!(calls(&server, "evalsha"), before + 1);
}
