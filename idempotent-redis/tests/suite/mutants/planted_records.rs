//! Records of every form, planted as bytes, which the store-independent laws cannot test.
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use idempotent_core::{
    Admin, Claim, ClaimHandle, ClaimRequest, FencingToken, Fingerprint, Key, OnExpiry, OwnerToken, Purge, Release,
    ReleaseKind, Settled, StateKind, Store, StoreErrorKind,
};
use idempotent_harness::servers::{RedisServer, Value};
use idempotent_redis::{RedisStore, RedisStoreBuilder};

use crate::support::ask_for;
pub(crate) use crate::support::{HOUR, done};

const FENCING: [u8; 16] = *b"0000000000000007";
pub(crate) const ATTEMPT: &[u8; 10] = b"0000000001";
pub(crate) const VERDICTS: [ReleaseKind; 5] =
    [ReleaseKind::Delete, ReleaseKind::Vacate, ReleaseKind::Refund, ReleaseKind::MarkFailed, ReleaseKind::MarkDead];

pub(crate) struct World {
    pub(crate) server: Arc<RedisServer>,
    pub(crate) store: RedisStore,
    /// Edit of the scripts of further connections.
    pub(crate) edit: Arc<dyn Fn(&str) -> String + Send + Sync>,
}

/// A record of the long form by its fields: µs from now, or bytes.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) state: u8,
    pub(crate) owner: u128,
    pub(crate) until: i64,
    pub(crate) kept: u64,
    /// Number of the owner whose lease expired before.
    pub(crate) over: u64,
    pub(crate) fencing: [u8; 16],
    pub(crate) attempt: &'static [u8; 10],
}

pub(crate) const HELD: Shape =
    Shape { state: b'P', owner: 1, until: 30_000_000, kept: 60_000_000, over: 0, fencing: FENCING, attempt: ATTEMPT };

impl Shape {
    pub(crate) fn bytes(self) -> Vec<u8> {
        self.bytes_at(now())
    }

    /// Encodes a record whose times count from `now`, in µs.
    pub(crate) fn bytes_at(self, now: u64) -> Vec<u8> {
        let mut out = vec![0x81, self.state];
        out.extend(self.fencing);
        out.extend(&self.attempt[7..]);
        out.extend(self.owner.to_be_bytes());
        out.push(0);
        out.extend(self.tail(i64::try_from(now).unwrap()));
        out
    }

    /// Makes the lease expired, with the record still retained.
    pub(crate) fn over(self) -> Self {
        Self { until: -10_000_000, ..self }
    }

    fn tail(self, now: i64) -> Vec<u8> {
        let until = u64::try_from(now + self.until).unwrap();
        let now = u64::try_from(now + self.until.min(0)).unwrap();
        let mut out = Vec::new();
        for time in [now, now, until, self.kept, self.over] {
            out.extend(&time.to_be_bytes()[1..]);
        }
        out.extend(&self.attempt[..7]);
        out
    }
}

/// Returns the local time in µs.
pub(crate) fn now() -> u64 {
    u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap()
}

pub(crate) fn digits(fencing: u64) -> [u8; 16] {
    format!("{fencing:016}").into_bytes().try_into().unwrap()
}

impl World {
    /// Connects as a user that loses the permissions for these commands once connected.
    pub(crate) async fn reader(&self, denied: &[&str]) -> RedisStore {
        self.server.command(&["ACL", "SETUSER", "reader", "reset", "on", ">secret", "~*", "&*", "+@all"]);
        let reader = self.open(format!("redis://reader:secret@{}", self.server.address())).connect().await.unwrap();
        self.server.command(&[&["ACL", "SETUSER", "reader"], denied].concat());
        reader
    }

    /// Returns a builder with the edited scripts.
    pub(crate) fn open(&self, url: String) -> RedisStoreBuilder {
        let edit = self.edit.clone();
        RedisStore::builder(url).cache(None).edit_scripts(move |text| edit(text))
    }

    pub(crate) fn plant(&self, key: &Key, value: &[u8]) {
        self.server.command(&[b"SET", key.as_str().as_bytes(), value]);
    }

    pub(crate) fn look(&self, key: &Key) -> Value {
        self.server.command(&["GET", key.as_str()])
    }
}

pub(crate) fn key(name: u128) -> Key {
    Key::from_parts("own", name)
}

pub(crate) fn ask(key: &Key, owner: u128) -> ClaimRequest {
    ClaimRequest { lease: HOUR, ..ask_for(key.clone(), owner) }
}

pub(crate) fn held(key: &Key, owner: u128) -> ClaimHandle {
    ClaimHandle { key: key.clone(), owner: OwnerToken(owner), fencing: None, terms: None }
}

pub(crate) fn down(verdict: ReleaseKind) -> Release {
    Release { kind: verdict, delay: Duration::ZERO, retention: HOUR, error: Arc::from("") }
}

/// Plants 40 held records. Every second one has another number than the handles of [`call_together`].
pub(crate) fn plant_forty(w: &World) {
    for name in 0..40 {
        let shape = if name % 2 == 0 { HELD } else { Shape { fencing: digits(8), ..HELD } };
        w.plant(&key(name), &shape.bytes());
    }
}

/// Makes a call for each planted record at once, in batches. Checks that exactly the calls by the right number are done.
pub(crate) async fn call_together(is_done: impl AsyncFn(&ClaimHandle, &str) -> bool) {
    let calls = (0..40).map(async |name| {
        let held = ClaimHandle { fencing: Some(FencingToken(7)), ..held(&key(name), 1) };
        assert_eq!(is_done(&held, &name.to_string()).await, name % 2 == 0, "{name}");
    });
    join_all(calls).await;
}

/// Each step must reject these as corrupt and leave them unchanged: live or expired, held or not.
pub(crate) async fn invalid_numbers_are_rejected_at_any_time(w: &World) {
    let wrong = [
        Shape { fencing: *b"9999999999999999", ..HELD },
        Shape { fencing: *b"number sixteen!!", ..HELD },
        Shape { attempt: b"number ten", ..HELD },
        Shape { attempt: b"number 001", ..HELD },
    ];
    let mut number = 0;
    for shape in wrong {
        for state in *b"PVFD" {
            for (until, kept) in [(30_000_000, 60_000_000), (-10_000_000, 60_000_000), (-10_000_000, 0)] {
                number += 1;
                let key = key(number);
                let owner = if state == b'P' { 1 } else { 0 };
                w.plant(&key, &Shape { state, owner, until, kept, ..shape }.bytes());
                refused_by_all(w, &key).await;
            }
        }
    }
}

async fn refused_by_all(w: &World, key: &Key) {
    let before = w.look(key);
    let corrupt = |kind: Option<StoreErrorKind>| assert_eq!(kind, Some(StoreErrorKind::Corrupt), "{before:?}");
    let park = ClaimRequest { on_expiry: OnExpiry::Park, max_attempts: 1, ..ask(key, 2) };
    for request in [ask(key, 1), ask(key, 2), park] {
        corrupt(w.store.claim(&request).await.err().map(|error| error.kind()));
    }
    for fencing in [None, Some(FencingToken(7)), Some(FencingToken(9_999_999_999_999_999))] {
        let held = ClaimHandle { fencing, ..held(key, 1) };
        corrupt(w.store.renew(&held, HOUR).await.err().map(|error| error.kind()));
        corrupt(w.store.complete(&held, &done(None)).await.err().map(|error| error.kind()));
    }
    for verdict in VERDICTS {
        corrupt(w.store.release(&held(key, 1), &down(verdict)).await.err().map(|error| error.kind()));
    }
    for force in [false, true] {
        let forgotten = w.store.forget(key, FencingToken(7), force, HOUR).await;
        corrupt(forgotten.err().map(|error| error.kind()));
    }
    assert_eq!(w.store.purge(100).await.ok(), Some(0));
    assert_eq!(w.look(key), before);
}

/// No step reads a result as the times and numbers of a record, whatever its bytes are.
pub(crate) async fn a_result_that_ends_like_a_record_is_a_result(w: &World) {
    for (number, tail) in [(1, Shape { until: -10_000_000, kept: 0, ..HELD }), (2, HELD)] {
        let key = key(number);
        let value = [&[b'x'; 40][..], &tail.bytes()].concat();
        assert!(matches!(w.store.claim(&ask(&key, 1)).await, Ok(Claim::Acquired(_))));
        assert_eq!(w.store.complete(&held(&key, 1), &done(Some(&value))).await.unwrap(), Settled::Done);
        let stored = w.look(&key);
        for owner in [1, 2] {
            match w.store.claim(&ask(&key, owner)).await.unwrap() {
                Claim::Consumed(told) => assert_eq!(told.value.as_deref(), Some(&value[..])),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(w.store.renew(&held(&key, 1), HOUR).await.unwrap(), Settled::Lost { now: StateKind::Consumed });
        let released = w.store.release(&held(&key, 1), &down(ReleaseKind::Delete)).await.unwrap();
        assert_eq!(released, Settled::Lost { now: StateKind::Consumed });
        // The number inside the result is not the grant's.
        assert!(matches!(w.store.forget(&key, FencingToken(7), true, HOUR).await, Ok(Settled::Lost { .. })));
        let _ = w.store.purge(100).await;
        assert_eq!(w.look(&key), stored);
    }
}

/// A server may expire keys later than the record says; the record decides.
pub(crate) async fn an_expired_record_that_still_exists_counts_as_absent(w: &World) {
    for (number, state) in (1..).zip(*b"PVFD") {
        let (key, owner) = (key(number), u128::from(state == b'P'));
        let shape = Shape { state, owner, until: -10_000_000, kept: 1_000_000, ..HELD };
        let put = || w.plant(&key, &shape.bytes());
        put();
        let lost = Settled::Lost { now: StateKind::Absent };
        assert_eq!(w.store.renew(&held(&key, 1), HOUR).await.unwrap(), lost);
        assert_eq!(w.store.complete(&held(&key, 1), &done(None)).await.unwrap(), lost);
        for verdict in VERDICTS {
            assert_eq!(w.store.release(&held(&key, 1), &down(verdict)).await.unwrap(), lost);
        }
        assert_eq!(w.store.forget(&key, FencingToken(7), true, HOUR).await.unwrap(), lost);
        match w.store.claim(&ask(&key, 2)).await.unwrap() {
            Claim::Acquired(grant) => assert_eq!((grant.attempt, grant.taken_over), (1, None)),
            other => panic!("{other:?}"),
        }
        put();
        let _ = w.store.purge(100).await;
        assert_eq!(w.look(&key), Value::Nil);
    }
}

/// A number ahead of the clock must not be granted again, so its record is not removed.
pub(crate) async fn a_purge_keeps_a_record_with_a_number_in_the_future(w: &World) {
    let ahead = Shape { until: -10_000_000, kept: 0, fencing: *b"8000000000000000", ..HELD };
    w.plant(&key(1), &ahead.bytes());
    assert_eq!(w.store.purge(100).await.unwrap(), 0);
    assert_ne!(w.look(&key(1)), Value::Nil);
}

/// An invalid state and a truncated record, both expired.
pub(crate) async fn a_purge_keeps_unreadable_values(w: &World) {
    let past = Shape { until: -10_000_000, kept: 0, ..HELD };
    let mut short = past.bytes();
    short.remove(25);
    for (name, value) in (1..).zip([Shape { state: b'Z', ..past }.bytes(), short]) {
        w.plant(&key(name), &value);
        assert_eq!(w.store.purge(100).await.unwrap(), 0);
        assert_eq!(w.look(&key(name)), Value::Bytes(value));
    }
}

pub(crate) async fn every_attempt_number_is_preserved(w: &World) {
    let many: [(&[u8; 10], u32); 5] = [
        (b"0000000999", 999),
        (b"0000001000", 1_000),
        (b"0000001001", 1_001),
        (b"0000065536", 65_536),
        (b"4294967295", u32::MAX),
    ];
    for (number, (attempt, count)) in (1..).zip(many) {
        for value in [None, Some(&b"v"[..])] {
            let key = key(number);
            w.plant(&key, &Shape { attempt, ..HELD }.bytes());
            let held = ClaimHandle { fencing: Some(FencingToken(7)), ..held(&key, 1) };
            assert_eq!(w.store.complete(&held, &done(value)).await.unwrap(), Settled::Done);
            assert_eq!(w.store.peek(&key).await.unwrap().unwrap().attempt, count);
        }
    }
}

/// The stored form of a completion without a value depends on the other known fields.
pub(crate) async fn a_completion_without_a_value_keeps_its_payload_and_its_owner(w: &World) {
    let print = |text: &str| Some(Fingerprint::of_bytes(text));
    for (number, known) in [(1, true), (2, false)] {
        let key = key(number);
        let claimed = w.store.claim(&ClaimRequest { fingerprint: print("a"), ..ask(&key, 1) }).await;
        let Ok(Claim::Acquired(grant)) = claimed else { panic!("{claimed:?}") };
        let held = ClaimHandle { fencing: known.then_some(grant.fencing), ..held(&key, 1) };
        for _ in 0..2 {
            assert_eq!(w.store.complete(&held, &done(None)).await.unwrap(), Settled::Done);
        }
        let other = w.store.claim(&ClaimRequest { fingerprint: print("b"), ..ask(&key, 2) }).await.unwrap();
        assert_eq!(other, Claim::Mismatch);
    }
    let key = key(3);
    assert!(matches!(w.store.claim(&ask(&key, 1)).await, Ok(Claim::Acquired(_))));
    for _ in 0..2 {
        assert_eq!(w.store.complete(&held(&key, 1), &done(None)).await.unwrap(), Settled::Done);
    }
    let stranger = w.store.complete(&held(&key, 2), &done(None)).await.unwrap();
    assert_eq!(stranger, Settled::Lost { now: StateKind::Consumed });
}

/// A long delay is not damage.
pub(crate) async fn a_delay_of_months_ends(w: &World) {
    let month = 31 * 24 * 3_600_000_000_i64;
    let mut shape = Shape { state: b'V', owner: 0, until: -1_000_000, kept: 3_600_000_000, ..HELD }.bytes();
    // Written two months ago.
    let written = 38 + 7;
    let then = now() - u64::try_from(2 * month).unwrap();
    shape[written..written + 7].copy_from_slice(&then.to_be_bytes()[1..]);
    w.plant(&key(1), &shape);
    assert!(matches!(w.store.claim(&ask(&key(1), 1)).await, Ok(Claim::Acquired(_))));
}
