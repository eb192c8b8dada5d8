//! Every form that a script writes, and its decoding.
use std::sync::Arc;

use idempotent_core::{
    Admin, ClaimHandle, ClaimRequest, Completion, FencingToken, Fingerprint, OwnerToken, Record, Release, ReleaseKind,
    Settled, State, StateKind, Store, Timestamp,
};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;

use crate::support::runs::{raw, record, secs};
use crate::support::{HOUR, ask, calls, done, granted, hold, key, put_down, start_without_cache};

const OWNER: u128 = 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10;

/// Opens a store on a server whose clock shows 2026-01-01 00:00:00.000005, or 5 µs later after `later`.
async fn at_a_fixed_time(server: &RedisServer) -> RedisStore {
    let fixed = |script: &str| script.replace("redis.call('TIME')", "{'1767225600', '5'}");
    RedisStore::builder(server.url()).cache(None).edit_scripts(fixed).connect().await.unwrap()
}

/// Opens a store that completes by scripts on each server.
async fn by_scripts(server: &RedisServer) -> RedisStore {
    RedisStore::builder(server.url()).cache(None).native_comparison(false).connect().await.unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const NOBODY: &str = "00000000000000000000000000000000";
const TOKEN: &str = "0102030405060708090a0b0c0d0e0f10";
const PAYLOAD: &str = "01239f59ed55e737c77147cf55ad0c1b03";
/// The time, and 30 s later.
const NOW: &str = "06474846204005";
const LEASED: &str = "06474847ea0385";
const HOUR_KEPT: &str = "000000d693a400";
const NONE: &str = "00000000000000";
/// The number in 16 digits, and the last three digits of a first attempt.
const NUMBER: &str = "31373637323235363030303030303035303031";

fn full(part: &str) -> ClaimRequest {
    let fingerprint = Some(Fingerprint::of_bytes("payload"));
    ClaimRequest { owner: OwnerToken(OWNER), fingerprint, display: Some("o-17".into()), ..ask(part, 1) }
}

/// Fixed bytes: a later version may write other forms, but must read these.
#[tokio::test]
async fn records_have_the_documented_bytes() {
    let server = RedisServer::start();
    let store = at_a_fixed_time(&server).await;
    let written = |part: &str| hex(&raw(&server, part));
    let first = "30303030303030";

    granted(store.claim(&ClaimRequest { owner: OwnerToken(OWNER), ..ask("bare", 1) }).await.unwrap());
    assert_eq!(written("bare"), format!("8150{NUMBER}{TOKEN}00{NOW}{NOW}{LEASED}{HOUR_KEPT}{NONE}{first}"));
    granted(store.claim(&full("full")).await.unwrap());
    let shown = "000000046f2d3137";
    assert_eq!(
        written("full"),
        format!("8150{NUMBER}{TOKEN}03{PAYLOAD}{shown}{NOW}{NOW}{LEASED}{HOUR_KEPT}{NONE}{first}")
    );

    let held = |part| ClaimHandle {
        key: key(part),
        owner: OwnerToken(OWNER),
        fencing: Some(FencingToken(1_767_225_600_000_005)),
        terms: None,
    };
    store.renew(&held("full"), secs(31)).await.unwrap();
    let renewed = "06474847f945c5";
    assert_eq!(
        written("full"),
        format!("8150{NUMBER}{TOKEN}03{PAYLOAD}{shown}{NOW}{NOW}{renewed}{HOUR_KEPT}{NONE}{first}")
    );

    for (part, verdict, state, kept) in [
        ("vacant", ReleaseKind::Vacate, "56", format!("01{PAYLOAD}")),
        ("failed", ReleaseKind::MarkFailed, "46", format!("03{PAYLOAD}{shown}")),
        ("dead", ReleaseKind::MarkDead, "44", format!("03{PAYLOAD}{shown}")),
    ] {
        granted(store.claim(&full(part)).await.unwrap());
        let release = Release { error: "no stöck".into(), ..put_down(verdict) };
        assert_eq!(store.release(&held(part), &release).await.unwrap(), Settled::Done);
        let error = "6e6f207374c3b6636b";
        let expected = format!("81{state}{NUMBER}{NOBODY}{kept}{error}{NOW}{NOW}{NOW}{HOUR_KEPT}{NONE}{first}");
        assert_eq!(written(part), expected, "{part}");
    }

    // Consumed records have the short form if digits suffice, and the long form otherwise.
    assert_eq!(store.complete(&held("bare"), &done(None)).await.unwrap(), Settled::Done);
    assert_eq!(written("bare"), NUMBER);
    assert_eq!(store.complete(&held("full"), &done(Some(b"{}"))).await.unwrap(), Settled::Done);
    assert_eq!(written("full"), format!("8165{NOW}0001{PAYLOAD}7b7d"));
    granted(store.claim(&ClaimRequest { owner: OwnerToken(OWNER), ..ask("unheard", 1) }).await.unwrap());
    let unheard = ClaimHandle { fencing: None, ..held("unheard") };
    assert_eq!(store.complete(&unheard, &done(None)).await.unwrap(), Settled::Done);
    assert_eq!(written("unheard"), format!("8162{NOW}0001{TOKEN}"), "whose grant was never heard of asks again");
    assert_eq!(
        store.forget(&key("unheard"), FencingToken(1_767_225_600_000_005), false, HOUR).await.unwrap(),
        Settled::Done
    );
    let error = hex(b"made claimable by an operator");
    let none = NUMBER.replace("303031", "303030");
    assert_eq!(written("unheard"), format!("8156{none}{NOBODY}00{error}{NOW}{NOW}{NOW}{HOUR_KEPT}{NONE}{first}"));
}

/// `peek` returns a record with all fields that were given.
#[tokio::test]
async fn every_state_decodes_as_stored_with_and_without_optional_fields() {
    let server = RedisServer::start();
    let store = by_scripts(&server).await;
    for bits in 0..32_u32 {
        let has = |bit: u32| bits & 1 << bit != 0;
        let request = |part: &str| ClaimRequest {
            fingerprint: has(0).then(|| Fingerprint::of_bytes("payload")),
            display: has(1).then(|| "o-17".into()),
            ..ask(part, 7)
        };
        let look = async |state: &str| record(&store, &format!("{state} {bits}")).await.unwrap();
        let take = async |state: &str| {
            let request = request(&format!("{state} {bits}"));
            let grant = granted(store.claim(&request).await.unwrap());
            // With the terms, without them, or without the number.
            let held = ClaimHandle::granted(&request, &grant);
            let terms = held.terms.clone().filter(|_| has(4));
            ClaimHandle { fencing: has(2).then_some(grant.fencing), terms, ..held }
        };
        let check = |found: &Record, display: bool| {
            assert_eq!(found.fingerprint, request("any").fingerprint);
            assert_eq!(found.display, request("any").display.filter(|_| display));
            assert_eq!(found.attempt, 1);
        };

        take("consuming").await;
        let found = look("consuming").await;
        let State::Consuming { owner: OwnerToken(7), until, taken_over: None } = found.state else {
            panic!("{found:?}")
        };
        assert_eq!(until, found.updated_at + secs(30));
        assert_eq!((found.first_seen, found.expires_at), (found.updated_at, until + HOUR));
        assert_eq!(found.fencing.0, found.first_seen.0);
        check(&found, true);

        let value = has(3).then(|| Arc::<[u8]>::from(&b"\0\xff{}"[..]));
        let held = take("consumed").await;
        let done = Completion { value: value.clone(), retain: HOUR };
        let before = calls(&server, "evalsha");
        assert_eq!(store.complete(&held, &done).await.unwrap(), Settled::Done);
        assert_eq!(calls(&server, "evalsha"), before + 1);
        let found = look("consumed").await;
        let owner = if has(2) { OwnerToken::NOT_KEPT } else { OwnerToken(7) };
        assert_eq!(found.state, State::Consumed { owner, value });
        // To the ms, counted from the completion. The record keeps only that the completion came after the grant.
        assert!(found.expires_at.0 + 1_000 > found.fencing.0 + 3_600_000_000 && found.expires_at < Timestamp::FOREVER);
        check(&found, false);

        for (state, verdict) in
            [("vacant", ReleaseKind::Vacate), ("failed", ReleaseKind::MarkFailed), ("dead", ReleaseKind::MarkDead)]
        {
            let held = take(state).await;
            let error: Arc<str> = if has(3) { "no stöck\0\r\n".into() } else { "".into() };
            let release = Release { error: error.clone(), delay: secs(5), ..put_down(verdict) };
            assert_eq!(store.release(&held, &release).await.unwrap(), Settled::Done);
            let found = look(state).await;
            match &found.state {
                State::Vacant { not_before, error: told, taken_over: None } => {
                    assert_eq!((*not_before, told), (found.updated_at + secs(5), &error));
                    assert_eq!(found.expires_at, *not_before + HOUR);
                }
                State::Failed { error: told } | State::Dead { error: told } => {
                    assert_eq!((told, found.expires_at), (&error, found.updated_at + HOUR));
                }
                other => panic!("{other:?}"),
            }
            check(&found, state != "vacant");
        }
    }
}

/// A completion by the terms of the grant compares the whole record. A record that differs is completed by its owner and
/// number.
#[tokio::test]
async fn a_record_that_is_not_as_granted_is_completed_by_a_second_call() {
    let server = RedisServer::start();
    let store = by_scripts(&server).await;
    for (part, is_changed) in [("as granted", false), ("renewed", true), ("watched", true)] {
        let held = hold(&store, part, 1).await;
        assert!(held.terms.is_some());
        match part {
            "renewed" => drop(store.renew(&held, secs(31)).await.unwrap()),
            "watched" => {
                let mut record = raw(&server, part);
                record[37] |= 4;
                server.command(&[b"SET", key(part).as_str().as_bytes(), &record]);
            }
            _ => {}
        }
        let before = calls(&server, "evalsha");
        assert_eq!(store.complete(&held, &done(Some(b"{}"))).await.unwrap(), Settled::Done);
        assert_eq!(calls(&server, "evalsha") - before, 1 + u64::from(is_changed), "{part}");
        let State::Consumed { value, .. } = record(&store, part).await.unwrap().state else { panic!("{part}") };
        assert_eq!(value.as_deref(), Some(&b"{}"[..]));
    }
}

/// More than the short form holds, and more than two bytes hold.
#[tokio::test]
async fn attempts_are_counted_beyond_the_range_of_the_short_forms() {
    let (server, store) = start_without_cache().await;
    for (attempts, length) in [(998, 19), (999, 11), (65_534, 11), (65_535, 13), (4_294_967_294, 13)] {
        let part = format!("after {attempts}");
        let held = hold(&store, &part, 1).await;
        store.release(&held, &put_down(ReleaseKind::Vacate)).await.unwrap();
        // As if the key had failed this often before.
        let mut vacant = raw(&server, &part);
        let (digits, end) = (format!("{attempts:010}"), vacant.len());
        vacant[end - 7..].copy_from_slice(&digits.as_bytes()[..7]);
        vacant[18..21].copy_from_slice(&digits.as_bytes()[7..]);
        server.command(&[b"SET", key(&part).as_str().as_bytes(), &vacant]);
        let request = ask(&part, 2);
        let grant = granted(store.claim(&request).await.unwrap());
        assert_eq!(u64::from(grant.attempt), attempts + 1);
        let held = ClaimHandle::granted(&request, &grant);
        assert_eq!(store.complete(&held, &done(None)).await.unwrap(), Settled::Done);
        let found = record(&store, &part).await.unwrap();
        assert_eq!((u64::from(found.attempt), found.state.kind()), (attempts + 1, StateKind::Consumed));
        assert_eq!(raw(&server, &part).len(), length, "{attempts}");
    }
}
