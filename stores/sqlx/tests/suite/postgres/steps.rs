//! Steps in the records' transaction, as other connections see them.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimRequest, Clock, Purge, Settled, StepRecord, StepState, StepStore, Store, StoredSteps,
};
use idempotent_testkit::VirtualClock;
use sqlx::{AssertSqlSafe, Connection};

use crate::postgres::fixture::{Place, sql};
use crate::support::{held, key, request};

const HOUR: Duration = Duration::from_secs(3_600);

/// Claims a key that is forgotten a minute after its lease.
fn ask(part: &str) -> ClaimRequest {
    ClaimRequest { retention: Duration::from_secs(60), ..request(&key(part), 1) }
}

fn done(name: &str, place: u32) -> StepRecord {
    StepRecord { name: name.into(), place, state: StepState::Done, value: Some(Arc::from(&b"v"[..])) }
}

fn rows(place: &Place) -> String {
    sql(&format!("SELECT count(*) FROM {}_steps", place.table))
}

#[tokio::test]
async fn steps_go_when_their_record_is_purged_and_no_sooner() {
    let (place, clock) = (Place::new(), VirtualClock::new());
    let store = place.builder().clock(Arc::new(clock.clone()) as Arc<dyn Clock>).connect().await.unwrap();
    for part in ["stays", "goes"] {
        assert!(matches!(store.claim(&ask(part)).await.unwrap(), Claim::Acquired(_)));
        for at in 0..3 {
            assert_eq!(
                store.note(&held(&key(part), 1), &done(&at.to_string(), at), HOUR).await.unwrap(),
                Settled::Done
            );
        }
    }
    let held = held(&key("stays"), 1);
    store.renew(&held, 10 * HOUR).await.unwrap();
    store.purge(100).await.unwrap();
    assert_eq!(rows(&place), "6");
    clock.advance(HOUR).await;
    assert_eq!(store.purge(100).await.unwrap(), 1);
    assert_eq!(rows(&place), "3");
    let StoredSteps::Steps(steps) = store.steps(&held, HOUR).await.unwrap() else { panic!("lost") };
    assert_eq!(steps.len(), 3);
}

/// The note locks its record. Without that a takeover could come between the look at the owner and the note, and the new
/// owner would not find what was noted.
#[tokio::test]
async fn a_note_waits_for_a_takeover_under_way_and_is_then_lost() {
    let place = Place::new();
    let store = place.open().await;
    assert!(matches!(store.claim(&ask("k")).await.unwrap(), Claim::Acquired(_)));
    // A takeover that is not committed yet.
    let mut other = sqlx::PgConnection::connect(&place.url).await.unwrap();
    let mut tx = other.begin().await.unwrap();
    let takes = format!("UPDATE {} SET owner = decode(repeat('22', 16), 'hex')", place.table);
    sqlx::raw_sql(AssertSqlSafe(takes)).execute(&mut *tx).await.unwrap();
    let note = tokio::spawn({
        let store = store.clone();
        let held = held(&key("k"), 1);
        async move { store.note(&held, &done("late", 0), HOUR).await.unwrap() }
    });
    // Either it waits, or it is over, and should not be.
    while !note.is_finished() && !place.waits(&format!("{}_steps", place.table)) {
        tokio::task::yield_now().await;
    }
    tx.commit().await.unwrap();
    assert!(matches!(note.await.unwrap(), Settled::Lost { .. }));
    assert_eq!(rows(&place), "0");
}
