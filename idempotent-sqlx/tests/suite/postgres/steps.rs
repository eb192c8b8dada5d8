//! Steps beside the records, as other connections see them.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimRequest, Clock, Held, Identity, Journal, Key, OnExpiry, OwnerToken, Purge, Scene, Settled, StepRecord,
    StepState, Store,
};
use idempotent_testkit::VirtualClock;
use sqlx::{AssertSqlSafe, Connection};

use crate::postgres::place::Place;

const HOUR: Duration = Duration::from_secs(3_600);

fn ask(part: &str, owner: u128) -> ClaimRequest {
    ClaimRequest {
        key: key(part),
        owner: OwnerToken(owner),
        lease: Duration::from_secs(30),
        fingerprint: None,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        memory: Duration::from_secs(60),
        display: None,
    }
}

fn key(part: &str) -> Key {
    Identity::new(Scene::Mq, "steps", part).key("tests").unwrap()
}

fn done(name: &str, place: u32) -> StepRecord {
    StepRecord { name: name.into(), place, state: StepState::Done, value: Some(Arc::from(&b"v"[..])) }
}

async fn rows(place: &Place) -> i64 {
    let count = format!("SELECT count(*) FROM {}_steps", place.table);
    sqlx::query_scalar(AssertSqlSafe(count)).fetch_one(&place.other()).await.unwrap()
}

#[tokio::test]
async fn steps_go_when_their_record_is_purged_and_no_sooner() {
    let (place, clock) = (Place::new(), VirtualClock::new());
    let store = place.builder().clock(Arc::new(clock.clone()) as Arc<dyn Clock>).open().await.unwrap();
    for part in ["stays", "goes"] {
        assert!(matches!(store.claim(&ask(part, 1)).await.unwrap(), Claim::Acquired(_)));
        for at in 0..3 {
            let held = Held::unanswered(key(part), OwnerToken(1));
            assert_eq!(store.note(&held, &done(&at.to_string(), at), HOUR).await.unwrap(), Settled::Done);
        }
    }
    let held = Held::unanswered(key("stays"), OwnerToken(1));
    store.renew(&held, 10 * HOUR).await.unwrap();
    store.purge(100).await.unwrap();
    assert_eq!(rows(&place).await, 6);
    clock.advance(HOUR).await;
    assert_eq!(store.purge(100).await.unwrap(), 1);
    assert_eq!(rows(&place).await, 3);
    let idempotent_core::Journaled::Steps(steps) = store.steps(&held, HOUR).await.unwrap() else { panic!("lost") };
    assert_eq!(steps.len(), 3);
}

/// The note locks its record. Without that a takeover could come between the look at the owner and the note, and the new
/// owner would not find what was noted.
#[tokio::test]
async fn a_note_waits_for_a_takeover_under_way_and_is_then_lost() {
    let place = Place::new();
    let store = place.open().await;
    assert!(matches!(store.claim(&ask("k", 1)).await.unwrap(), Claim::Acquired(_)));
    // A takeover that is not committed yet.
    let mut other = sqlx::PgConnection::connect(&place.url).await.unwrap();
    let mut tx = other.begin().await.unwrap();
    let takes = format!("UPDATE {} SET owner = decode(repeat('22', 16), 'hex')", place.table);
    sqlx::raw_sql(AssertSqlSafe(takes)).execute(&mut *tx).await.unwrap();
    let note = tokio::spawn({
        let store = store.clone();
        let held = Held::unanswered(key("k"), OwnerToken(1));
        async move { store.note(&held, &done("late", 0), HOUR).await.unwrap() }
    });
    let waits =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO%_steps%'";
    let watch = place.other();
    // Either it waits, or it is over, and should not be.
    while !note.is_finished() && sqlx::query_scalar::<_, i64>(waits).fetch_one(&watch).await.unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    tx.commit().await.unwrap();
    assert!(matches!(note.await.unwrap(), Settled::Lost { .. }));
    assert_eq!(rows(&place).await, 0);
}
