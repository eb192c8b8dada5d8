//! Steps in an SQLite file: what is purged, and what a file of an older version lacks.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Purge, Settled, StepRecord, StepState, StepStore, Store, StoreErrorKind,
    StoredSteps,
};
use idempotent_testkit::VirtualClock;

use crate::support::{Place, key, purges_steps_as_asked, request, stopped_clock};

const HOUR: Duration = Duration::from_secs(3_600);

/// Claims a key that is forgotten a minute after its lease.
fn ask(part: &str) -> ClaimRequest {
    ClaimRequest { retention: Duration::from_secs(60), ..request(&key(part), 1) }
}

fn held(part: &str) -> ClaimHandle {
    crate::support::held(&key(part), 1)
}

fn done(name: &str, place: u32) -> StepRecord {
    StepRecord { name: name.into(), place, state: StepState::Done, value: Some(Arc::from(&b"v"[..])) }
}

#[tokio::test]
async fn steps_go_when_their_record_is_purged_and_no_sooner() {
    let place = Place::new();
    let clock = VirtualClock::new();
    let store = place.builder().clock(Arc::new(clock.clone())).open().await.unwrap();
    // More than one stride of the purge.
    for part in ["stays", "goes"] {
        assert!(matches!(store.claim(&ask(part)).await.unwrap(), Claim::Acquired(_)));
        for at in 0..700 {
            assert_eq!(store.note(&held(part), &done(&at.to_string(), at), HOUR).await.unwrap(), Settled::Done);
        }
    }
    store.renew(&held("stays"), 10 * HOUR).await.unwrap();
    clock.advance(HOUR).await;
    assert_eq!(store.purge(100).await.unwrap(), 1);
    assert_eq!(place.count("SELECT count(*) FROM idempotent_record_steps").await, 700);
    let StoredSteps::Steps(steps) = store.steps(&held("stays"), HOUR).await.unwrap() else { panic!("lost") };
    assert!(steps.len() == 700 && steps.iter().enumerate().all(|(at, step)| step.place as usize == at));
}

#[tokio::test]
async fn a_purge_takes_steps_of_no_more_records_than_it_was_asked_for() {
    let (place, clock) = (Place::new(), stopped_clock());
    let store = place.builder().clock(clock.clone()).open().await.unwrap();
    let delete = async || place.sql("DELETE FROM idempotent_record").await;
    let count = async || place.count("SELECT count(*) FROM idempotent_record_steps").await;
    purges_steps_as_asked(&store, &clock, delete, count, [15, 9, 6, 0]).await;
}

#[tokio::test]
async fn a_step_that_cannot_be_read_is_corrupt_and_left_alone() {
    let place = Place::new();
    let store = place.open().await;
    assert!(matches!(store.claim(&ask("k")).await.unwrap(), Claim::Acquired(_)));
    store.note(&held("k"), &done("a", 0), HOUR).await.unwrap();
    for (damage, field) in [("state = 9", "state"), ("place = -1", "place"), ("name = x'ff'", "name")] {
        place.sql(&format!("UPDATE idempotent_record_steps SET {damage}")).await;
        let error = store.steps(&held("k"), HOUR).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Corrupt);
        assert!(error.to_string().contains(&format!("field `{field}` of a step")), "{error}");
        place.sql("UPDATE idempotent_record_steps SET state = 1, place = 0, name = x'61'").await;
    }
}
