//! Values left on the server, and notifications sent to others. A correct reply alone is not enough.
use std::time::Duration;

use idempotent_core::{
    Admin, Claim, ClaimHandle, FencingToken, Purge, ReleaseKind, Settled, Store, StoreErrorKind, Watch,
};
use idempotent_harness::servers::Value;
use idempotent_redis::{CacheOptions, RedisStore};

use crate::support::{calls, until_within};

use super::planted_records::{
    ATTEMPT, HELD, HOUR, Shape, VERDICTS, World, ask, call_together, done, down, held, key, plant_forty,
};

/// A value of another type, and a denied write: neither is taken for a reply.
pub(crate) async fn refused_writes_are_reported_and_not_applied(w: &World) {
    let list = key(1);
    w.server.command(&["LPUSH", list.as_str(), "somebody else's"]);
    all_fail(&w.store, &list, StoreErrorKind::Foreign).await;
    assert_eq!(w.server.command(&["LLEN", list.as_str()]), Value::Integer(1));

    // The user has all permissions until connected, and then may only run scripts and read.
    let reader = w.reader(&["-set", "-del"]).await;
    let locked = key(2);
    w.plant(&locked, &HELD.bytes());
    let before = w.look(&locked);
    settling_fails(&reader, &locked, StoreErrorKind::Denied).await;
    assert_eq!(w.look(&locked), before);
    let claimed = reader.claim(&ask(&key(3), 1)).await;
    assert_eq!(claimed.err().map(|error| error.kind()), Some(StoreErrorKind::Denied));
    let over = key(4);
    w.plant(&over, &HELD.over().bytes());
    let claimed = reader.claim(&ask(&over, 2)).await;
    assert_eq!(claimed.err().map(|error| error.kind()), Some(StoreErrorKind::Denied));
}

async fn all_fail(store: &RedisStore, key: &idempotent_core::Key, kind: StoreErrorKind) {
    assert_eq!(store.claim(&ask(key, 1)).await.err().map(|error| error.kind()), Some(kind));
    settling_fails(store, key, kind).await;
    assert_eq!(store.peek(key).await.err().map(|error| error.kind()), Some(kind));
    // The value belongs to another program; a purge skips it and continues.
    assert_eq!(store.purge(100).await.ok(), Some(0));
}

async fn settling_fails(store: &RedisStore, key: &idempotent_core::Key, kind: StoreErrorKind) {
    let failed = |settled: Result<Settled, idempotent_core::StoreError>| {
        assert_eq!(settled.err().map(|error| error.kind()), Some(kind));
    };
    failed(store.renew(&held(key, 1), HOUR).await);
    failed(store.complete(&held(key, 1), &done(None)).await);
    for verdict in VERDICTS {
        failed(store.release(&held(key, 1), &down(verdict)).await);
    }
    failed(store.forget(key, FencingToken(7), true, HOUR).await);
}

/// Checks that a record contains no unnecessary byte.
pub(crate) async fn a_record_is_as_short_as_it_can_be(w: &World) {
    let known = |name| ClaimHandle { fencing: Some(FencingToken(7)), ..held(&key(name), 1) };
    w.plant(&key(1), &HELD.bytes());
    assert_eq!(w.store.complete(&known(1), &done(None)).await.unwrap(), Settled::Done);
    assert_eq!(w.look(&key(1)), Value::Bytes(b"0000000000000007001".to_vec()));
    w.plant(&key(2), &HELD.bytes());
    assert_eq!(w.store.complete(&known(2), &done(Some(b"v"))).await.unwrap(), Settled::Done);
    assert_eq!(w.look(&key(2)), Value::Bytes(b"\x81\x64\0\0\0\0\0\0\x07\0\x01v".to_vec()));
    w.plant(&key(3), &HELD.bytes());
    assert_eq!(w.store.release(&known(3), &down(ReleaseKind::Delete)).await.unwrap(), Settled::Done);
    assert_eq!(w.look(&key(3)), Value::Nil);
    assert_eq!(ATTEMPT, b"0000000001");
}

/// Records written together do not expire in the same second; short retentions are exact.
pub(crate) async fn long_retentions_are_spread_and_short_ones_are_not(w: &World) {
    let ends = |retain: Duration| async move {
        let mut ends = Vec::new();
        for name in 0..40 {
            w.plant(&key(name), &HELD.bytes());
            let completion = idempotent_core::Completion { value: None, retain };
            assert_eq!(w.store.complete(&held(&key(name), 1), &completion).await.unwrap(), Settled::Done);
            let rest = w.server.command(&["PTTL", key(name).as_str()]).integer().unwrap();
            ends.push(rest - i64::try_from(retain.as_millis()).unwrap());
        }
        ends
    };
    let day = 24 * HOUR;
    let spread = ends(day).await;
    assert!(spread.iter().max().unwrap() - spread.iter().min().unwrap() > 10_000, "{spread:?}");
    let short = ends(HOUR).await;
    assert!(short.iter().all(|rest| *rest <= 0), "{short:?}");
}

/// No notification is sent without a waiter.
pub(crate) async fn notifications_are_sent_only_for_watched_keys(w: &World) {
    for (round, waited) in [(0, true), (10, false)] {
        let before = calls(&w.server, "publish");
        for name in round..round + 3 {
            let Ok(Claim::Acquired(_)) = w.store.claim(&ask(&key(name), 1)).await else { panic!("not granted") };
            if waited {
                let waits = w.store.watch(&key(name));
                tokio::spawn(waits);
                flagged(w, name).await;
            }
        }
        let told = |name| held(&key(name), 1);
        assert_eq!(w.store.complete(&told(round), &done(None)).await.unwrap(), Settled::Done);
        assert_eq!(w.store.release(&told(round + 1), &down(ReleaseKind::Vacate)).await.unwrap(), Settled::Done);
        let record = w.store.peek(&key(round + 2)).await.unwrap().unwrap();
        let forgotten = w.store.forget(&key(round + 2), record.fencing, true, HOUR).await.unwrap();
        assert_eq!(forgotten, Settled::Done);
        // A forgotten key is announced to caches, with or without waiters.
        assert_eq!(calls(&w.server, "publish") - before, if waited { 4 } else { 1 });
    }
}

/// Waits until the server has recorded the waiter.
async fn flagged(w: &World, name: u128) {
    let is_flagged = || {
        let flags = w.server.command(&["GETRANGE", key(name).as_str(), "37", "37"]);
        matches!(flags, Value::Bytes(bytes) if bytes.first().is_some_and(|flags| *flags >= 4))
    };
    until_within(Duration::from_secs(20), "a waiter on the server", async || is_flagged()).await;
}

pub(crate) async fn each_batched_call_has_its_own_reply(w: &World) {
    plant_forty(w);
    call_together(async |held, _| w.store.release(held, &down(ReleaseKind::Vacate)).await.unwrap() == Settled::Done)
        .await;
    plant_forty(w);
    call_together(async |held, _| {
        w.store.forget(&held.key, FencingToken(7), true, HOUR).await.unwrap() == Settled::Done
    })
    .await;
}

/// A value with only the beginning or the length of a record is foreign or damaged.
pub(crate) async fn a_value_that_resembles_a_consumed_record_is_not_forgotten(w: &World) {
    let lookalikes: [(&[u8], StoreErrorKind); 4] = [
        (b"0000000000000007abc", StoreErrorKind::Foreign),
        (b"00000000000000070", StoreErrorKind::Foreign),
        (b"zz\0\0\0\0\0\0\x07\0\x01", StoreErrorKind::Foreign),
        (b"\x81\x60\0\0\0\0\0\0\x07", StoreErrorKind::Corrupt),
    ];
    for (name, (value, kind)) in (1..).zip(lookalikes) {
        w.plant(&key(name), value);
        let forgotten = w.store.forget(&key(name), FencingToken(7), true, HOUR).await;
        assert_eq!(forgotten.err().map(|error| error.kind()), Some(kind), "{value:?}");
        assert_eq!(w.look(&key(name)), Value::Bytes(value.to_vec()));
    }
}

/// The run after a refund learns whose effects may exist, whatever is counted.
pub(crate) async fn a_refunded_takeover_stays_recorded_without_attempts(w: &World) {
    w.plant(&key(1), &Shape { over: 5, ..HELD }.bytes());
    assert_eq!(w.store.release(&held(&key(1), 1), &down(ReleaseKind::Refund)).await.unwrap(), Settled::Done);
    let claimed = w.store.claim(&ask(&key(1), 2)).await.unwrap();
    let Claim::Acquired(grant) = claimed else { panic!("{claimed:?}") };
    assert_eq!(grant.taken_over, Some(FencingToken(5)));
}

/// A number ahead of the clock is not granted again: its record stays until the clock has passed it.
pub(crate) async fn a_number_ahead_of_the_clock_is_kept_until_the_clock_has_passed_it(w: &World) {
    let ahead = Shape { fencing: *b"4000000000000000", ..HELD };
    let years = i64::try_from(24 * 365 * HOUR.as_millis()).unwrap();
    for name in 1..5 {
        w.plant(&key(name), &ahead.bytes());
        let held =
            ClaimHandle { fencing: (name > 2).then_some(FencingToken(4_000_000_000_000_000)), ..held(&key(name), 1) };
        let settled = match name % 2 {
            1 => w.store.complete(&held, &done(None)).await,
            _ => w.store.renew(&held, HOUR).await,
        };
        assert_eq!(settled.unwrap(), Settled::Done);
        assert!(w.server.command(&["PTTL", key(name).as_str()]).integer() > Some(years));
    }
}

/// A cached key costs no call, and damage is not cached.
pub(crate) async fn a_caching_store_asks_once(w: &World) {
    let keeps = w.open(w.server.url()).cache(CacheOptions::default()).connect().await.unwrap();
    let cut_off = &HELD.bytes()[..40];
    w.plant(&key(1), cut_off);
    let claimed = keeps.claim(&ask(&key(1), 1)).await;
    assert_eq!(claimed.err().map(|error| error.kind()), Some(StoreErrorKind::Corrupt));
    assert_eq!(w.look(&key(1)), Value::Bytes(cut_off.to_vec()));

    assert!(matches!(w.store.claim(&ask(&key(2), 1)).await, Ok(Claim::Acquired(_))));
    assert_eq!(w.store.complete(&held(&key(2), 1), &done(None)).await.unwrap(), Settled::Done);
    assert!(matches!(keeps.claim(&ask(&key(2), 2)).await, Ok(Claim::Consumed(_))));
    let before = calls(&w.server, "evalsha");
    assert!(matches!(keeps.claim(&ask(&key(2), 3)).await, Ok(Claim::Consumed(_))));
    assert_eq!(calls(&w.server, "evalsha"), before);
}
