//! Values that are no records, or records of another version. Every step rejects them with a reason and a remedy, and
//! leaves them unchanged.
use idempotent_core::{
    Batch, ClaimHandle, FencingToken, KeyFilter, Outcome, OwnerToken, PageLimits, Policy, Rejection, Store, StoreError,
    StoreErrorKind,
};
use idempotent_harness::servers::{RedisServer, Value};
use idempotent_redis::RedisStore;

use crate::mutants::planted_records::{HELD, Shape, VERDICTS, digits};
use crate::support::runs::{AppError, Job, Worker, raw, secs, time_of};
use crate::support::{HOUR, ask, done, key, open_without_cache, put_down, start_without_cache};

use StoreErrorKind::{Corrupt, Foreign, UnknownVersion};

/// A record with one defect: name, value, error kind, and the field or remedy that the error must name.
type Case = (&'static str, Vec<u8>, StoreErrorKind, &'static str);

fn changed(record: &[u8], at: usize, by: &[u8]) -> Vec<u8> {
    let mut out = record.to_vec();
    out.splice(at..at + by.len(), by.iter().copied());
    out
}

fn cases(now: u64) -> Vec<Case> {
    let whole = Shape { kept: 3_600_000_000, fencing: digits(now), ..HELD }.bytes_at(now);
    let end = whole.len();
    let cut = |length: usize| whole[..length].to_vec();
    let without_owner = [&whole[..21], &whole[37..]].concat();
    let year_9999 = &253_370_764_800_000_000_u64.to_be_bytes()[1..];
    let newer = changed(&whole, 0, b"\x8f");
    let noise: Vec<u8> = whole.iter().map(|byte| byte.wrapping_mul(151).wrapping_add(89) & 0x7f).collect();
    let long = |flags: u8, rest: &[u8]| [&[0x81, 0x60 + flags][..], &now.to_be_bytes()[1..], &[0, 1], rest].concat();
    vec![
        ("n100 cut off", cut(40), Corrupt, "field `attempt`"),
        ("n100 cut off behind the version", cut(1), Corrupt, "field `state`"),
        ("n100 empty", Vec::new(), Foreign, "does not begin as a record does"),
        ("n101 noise", noise, Foreign, "does not begin as a record does"),
        ("n101 noise behind the state", [&whole[..2], &[0xa5; 90]].concat(), Corrupt, "field `fencing`"),
        ("n102 of a later version", newer, UnknownVersion, "found version 15, supported is 1"),
        ("n103 nobody's", without_owner, Corrupt, "field `"),
        ("n104 number abc", changed(&whole, 2, b"abcdefghijklmnop"), Corrupt, "field `fencing`"),
        ("n104 number 2^53", changed(&whole, 2, b"9007199254740992"), Corrupt, "field `fencing`"),
        ("n105 a lease into 9999", changed(&whole, end - 28, year_9999), Corrupt, "field `until`"),
        ("n106 state Z", changed(&whole, 1, b"Z"), Corrupt, "field `state`"),
        ("n107 somebody else's marker", b"consuming".to_vec(), Foreign, "does not begin as a record does"),
        ("n107 another one", b"CONSUMED".to_vec(), Foreign, "does not begin as a record does"),
        ("attempt", changed(&whole, end - 1, b"x"), Corrupt, "field `attempt`"),
        ("attempt, its end", changed(&whole, 20, b"x"), Corrupt, "field `attempt`"),
        ("a byte less", cut(end - 1), Corrupt, "field `attempt`"),
        ("attempt above 2^32", changed(&whole, end - 7, b"9999999"), Corrupt, "field `attempt`"),
        ("flags", changed(&whole, 37, &[0x40]), Corrupt, "field `flags`"),
        ("error where none can be", [&whole[..38], b"oops", &whole[38..]].concat(), Corrupt, "field `error`"),
        ("consumed: a digit less", format!("{now:016}00").into_bytes(), Foreign, "does not begin"),
        ("consumed: a digit that is none", format!("{now:016}0x1").into_bytes(), Foreign, "does not begin"),
        ("consumed: number 2^53", b"9007199254740992001".to_vec(), Corrupt, "field `fencing`"),
        ("consumed, long: cut off", long(0, b"")[..8].to_vec(), Corrupt, "field `fencing`"),
        ("consumed, long: half an attempt", long(0, b"")[..10].to_vec(), Corrupt, "field `attempt`"),
        ("consumed, long: half a fingerprint", long(1, b"12345678"), Corrupt, "field `fingerprint`"),
        ("consumed, long: half an owner", long(2, b"12345678"), Corrupt, "field `owner`"),
        ("consumed, long: more than it says", long(0, b"{}"), Corrupt, "field `end`"),
    ]
}

/// Damage that only readers detect. To keep runs cheap, the scripts skip these parts of a record when its owner
/// continues or an operator forgets it by its number. The record is then continued or settled as it is.
const SEEN_BY_READERS_ONLY: [&str; 6] = [
    "attempt above 2^32",
    "flags",
    "error where none can be",
    "consumed, long: half a fingerprint",
    "consumed, long: half an owner",
    "consumed, long: more than it says",
];

/// Returns the error of each step for the value of a key, including the owner's steps and an operator's.
async fn said(store: &RedisStore, part: &str, number: u64) -> Vec<(&'static str, StoreError)> {
    let admin = store.capabilities().admin.unwrap();
    let mut said = vec![
        refused(part, "claim", store.claim(&ask(part, 2)).await),
        refused(part, "claim, its owner", store.claim(&ask(part, 1)).await),
        refused(part, "peek", store.peek(&key(part)).await),
        refused(part, "batch", store.claim_all(&[ask(part, 2)]).await.remove(0)),
        refused(part, "forget", admin.forget(&key(part), FencingToken(1), true, HOUR).await),
    ];
    if SEEN_BY_READERS_ONLY.contains(&part) {
        return said;
    }
    said.push(refused(part, "forget, its number", admin.forget(&key(part), FencingToken(number), true, HOUR).await));
    for fencing in [None, Some(FencingToken(1)), Some(FencingToken(number))] {
        let held = ClaimHandle { key: key(part), owner: OwnerToken(1), fencing, terms: None };
        said.push(refused(part, "renew", store.renew(&held, secs(60)).await));
        said.push(refused(part, "complete", store.complete(&held, &done(None)).await));
        for verdict in VERDICTS {
            said.push(refused(part, "release", store.release(&held, &put_down(verdict)).await));
        }
    }
    said
}

#[track_caller]
fn refused<T: std::fmt::Debug>(
    part: &str,
    step: &'static str,
    said: Result<T, StoreError>,
) -> (&'static str, StoreError) {
    (step, said.err().unwrap_or_else(|| panic!("{part}: {step} was carried out")))
}

#[tokio::test]
async fn unreadable_values_are_rejected_with_the_field_and_left_unchanged() {
    let (server, store) = start_without_cache().await;
    let now = time_of(&server);
    for (name, value, kind, text) in cases(now) {
        server.command(&[b"SET", key(name).as_str().as_bytes(), &value, b"PX", b"3600000"]);
        let ends = || server.command(&["PEXPIRETIME", key(name).as_str()]);
        let before = ends();
        for (step, error) in said(&store, name, now).await {
            assert_eq!(error.kind(), kind, "{name}, {step}: {error}");
            assert!(error.to_string().contains(text), "{name}, {step}: {error}");
            assert!(!error.is_worth_a_retry(), "{name}, {step}");
        }
        assert_eq!((raw(&server, name), ends()), (value, before), "{name}");
    }
    // A purge or a listing leaves them unchanged, too.
    let number = server.command(&["DBSIZE"]).integer();
    assert_eq!(store.capabilities().purge.unwrap().purge(1_000).await.unwrap(), 0);
    let limits = PageLimits { keys: 1_000, ..PageLimits::default() };
    let page = store.capabilities().search.unwrap().search(&KeyFilter::all(), None, limits).await.unwrap();
    assert!(page.entries.is_empty() && server.command(&["DBSIZE"]).integer() == number);
    // The key of the epoch is no record.
    assert_eq!(Some(page.unreadable.len() as i64 + 1), number, "{:?}", page.unreadable);
}

/// The value is not a string.
#[tokio::test]
async fn a_value_of_another_type_is_foreign_and_left_unchanged() {
    let (server, store) = start_without_cache().await;
    let name = key("k");
    server.command(&["HSET", name.as_str(), "field", "theirs"]);
    for (step, error) in said(&store, "k", 1).await {
        assert_eq!(error.kind(), Foreign, "{step}: {error}");
        assert!(error.to_string().contains("not written by this library"), "{step}: {error}");
    }
    assert_eq!(server.command(&["HGET", name.as_str(), "field"]), Value::Bytes(b"theirs".to_vec()));
}

/// The message is redelivered until an operator intervenes. No handler runs, and nothing counts as done.
#[tokio::test]
async fn a_run_does_not_start_on_an_unreadable_record() {
    let server = RedisServer::start();
    let (worker, job) = (Worker::new(open_without_cache(&server).await, Policy::new()), Job::quick());
    server.command(&["SET", key("k").as_str(), "consuming"]);
    let (outcome, answer) = worker.deliver("k", &job).await;
    assert_eq!((outcome, job.runs()), (Outcome::StoreDown(Foreign), 0));
    let Err(AppError::Idempotent(Rejection::Store(error))) = answer else { panic!("{answer:?}") };
    assert!(error.to_string().contains("left unchanged"), "{error}");
}
