//! Steps with records of every form, and with other values in their place.
use std::sync::Arc;

use idempotent_core::{
    ClaimHandle, FencingToken, Key, Settled, StateKind, StepRecord, StepState, StepStore, StoreErrorKind, StoredSteps,
};
use idempotent_harness::servers::Value;
use idempotent_redis::RedisStore;

use super::planted_records::{HELD, HOUR, Shape, World, call_together, held, key, plant_forty};

fn done(name: &str) -> StepRecord {
    StepRecord { name: name.into(), place: 0, state: StepState::Done, value: Some(Arc::from(&b"v"[..])) }
}

/// Returns the key of a record's steps.
fn beside(key: &Key) -> String {
    format!("{}:steps", key.as_str())
}

fn look(w: &World, key: &Key) -> Value {
    w.server.command(&["GET", &beside(key)])
}

/// Checks that a step can be neither read nor written.
async fn has_no_steps(w: &World, held: &ClaimHandle, what: &str) {
    let before = look(w, &held.key);
    assert_ne!(w.store.note(held, &done("a"), HOUR).await.ok(), Some(Settled::Done), "{what}");
    let read = w.store.steps(held, HOUR).await;
    assert!(!matches!(read, Ok(StoredSteps::Steps(_))), "{what}: {read:?}");
    assert_eq!(look(w, &held.key), before, "{what}");
}

pub(crate) async fn steps_belong_to_a_held_record(w: &World) {
    let (month, second) = (31 * 24 * 3_600_000_000_i64, 1_000_000);
    let mut short = HELD.bytes();
    short.remove(37);
    let shapes = [
        ("failed, with an owner", Shape { state: b'F', ..HELD }.bytes()),
        ("another's", Shape { owner: 2, ..HELD }.bytes()),
        ("another grant's", Shape { fencing: *b"0000000000000008", ..HELD }.bytes()),
        ("past its memory", Shape { until: -10 * second, kept: 1_000_000, ..HELD }.bytes()),
        ("held for longer than can be", Shape { until: 2 * month, ..HELD }.bytes()),
        ("a byte short", short),
    ];
    for (name, (what, value)) in (1..).zip(shapes) {
        w.plant(&key(name), &value);
        has_no_steps(w, &ClaimHandle { fencing: Some(FencingToken(7)), ..held(&key(name), 1) }, what).await;
        assert_eq!(w.look(&key(name)), Value::Bytes(value), "{what}");
    }
    let nothing = held(&key(99), 1);
    assert_eq!(w.store.note(&nothing, &done("a"), HOUR).await.unwrap(), Settled::Lost { now: StateKind::Absent });
    assert_eq!(w.store.steps(&nothing, HOUR).await.unwrap(), StoredSteps::Lost { now: StateKind::Absent });
}

/// A value of another type in either place, a foreign value in place of the steps, and a server that rejects writes.
pub(crate) async fn values_in_the_place_of_steps_are_reported_and_left_unchanged(w: &World) {
    let kinds = async |store: &RedisStore, name| {
        let held = held(&key(name), 1);
        let note = store.note(&held, &done("a"), HOUR).await.err().map(|error| error.kind());
        (note, store.steps(&held, HOUR).await.err().map(|error| error.kind()))
    };
    let foreign = (Some(StoreErrorKind::Foreign), Some(StoreErrorKind::Foreign));
    w.server.command(&["LPUSH", key(1).as_str(), "somebody else's"]);
    assert_eq!(kinds(&w.store, 1).await, foreign);
    for name in [2, 3] {
        w.plant(&key(name), &HELD.bytes());
    }
    w.server.command(&["LPUSH", &beside(&key(2)), "somebody else's"]);
    w.server.command(&["SET", &beside(&key(3)), "somebody else's"]);
    for name in [2, 3] {
        assert_eq!(kinds(&w.store, name).await, foreign);
    }
    assert_eq!(look(w, &key(3)), Value::Bytes(b"somebody else's".to_vec()));

    w.plant(&key(4), &HELD.bytes());
    assert_eq!(w.store.note(&held(&key(4), 1), &done("a"), HOUR).await.unwrap(), Settled::Done);
    let reader = w.reader(&["-set"]).await;
    assert_eq!(kinds(&reader, 4).await, (Some(StoreErrorKind::Denied), Some(StoreErrorKind::Denied)));
}

/// Steps recorded under another record of the key belong to an earlier run.
pub(crate) async fn steps_of_an_earlier_record_are_ignored_and_removed_by_the_first_note(w: &World) {
    w.plant(&key(1), &HELD.bytes());
    let held = held(&key(1), 1);
    assert_eq!(w.store.steps(&held, HOUR).await.unwrap(), StoredSteps::Steps(Vec::new()), "nothing was noted");
    assert_eq!(w.store.note(&held, &done("old"), HOUR).await.unwrap(), Settled::Done);
    w.plant(&key(1), &HELD.bytes());
    assert_eq!(w.store.steps(&held, HOUR).await.unwrap(), StoredSteps::Steps(Vec::new()));
    assert_eq!(w.store.note(&held, &done("new"), HOUR).await.unwrap(), Settled::Done);
    assert_eq!(w.store.steps(&held, HOUR).await.unwrap(), StoredSteps::Steps(vec![done("new")]));
}

pub(crate) async fn each_batched_step_call_has_its_own_reply(w: &World) {
    plant_forty(w);
    call_together(async |held, name| w.store.note(held, &done(name), HOUR).await.unwrap() == Settled::Done).await;
    call_together(async |held, name| w.store.steps(held, HOUR).await.unwrap() == StoredSteps::Steps(vec![done(name)]))
        .await;
}
