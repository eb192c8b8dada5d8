//! Removal of expired records while claims continue.
use std::time::{Duration, Instant};

use idempotent_core::{Claim, ClaimRequest, InFlight, Settled, Store};
use idempotent_sqlx::PostgresStore;
use sqlx::AssertSqlSafe;

use crate::postgres::fixture::{Place, sql};
use crate::support::{done, held, key, request};

/// Past their time, all of them.
fn fill(place: &Place, rows: usize) {
    sql(&format!(
        "INSERT INTO {} SELECT decode(md5(i::text),'hex'),1,'a',2,decode(md5(i::text),'hex'),1,1,0,NULL,NULL,1,1,1,NULL,\
         NULL,NULL FROM generate_series(1,{rows}) AS i",
        place.table
    ));
}

/// Makes each step of a purge do this before it ends.
fn delay_each_step(place: &Place, by: &str) {
    sql(&format!(
        "CREATE FUNCTION delay_{0}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM {by}; RETURN NULL; END'; \
         CREATE TRIGGER delay AFTER DELETE ON {0} FOR EACH STATEMENT EXECUTE FUNCTION delay_{0}()",
        place.table
    ));
}

async fn purge(store: &PostgresStore, at_most: usize) -> usize {
    store.capabilities().purge.unwrap().purge(at_most).await.unwrap()
}

/// Held in the middle of a step by a trigger that waits for a lock of the test's: what it has locked by then is what it
/// ever locks.
#[tokio::test]
async fn claims_continue_while_a_purge_hangs_in_a_step() {
    let place = Place::new();
    let store = place.builder().timeout(Duration::from_secs(60)).connect().await.unwrap();
    fill(&place, 100_000);
    // Among the first few hundred, and so in the step's way.
    let kept = (0..).map(|n| key(&format!("kept {n}"))).find(|key| key.hash() >> 120 == 0).unwrap();
    store.claim(&request(&kept, 1)).await.unwrap();
    delay_each_step(&place, "pg_advisory_xact_lock(4711)");
    let other = place.other();
    let mut holding = other.begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock(4711)").execute(&mut *holding).await.unwrap();
    let purging = tokio::spawn({
        let store = store.clone();
        async move { purge(&store, usize::MAX).await }
    });
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype='advisory' AND objid=4711 AND NOT granted";
    while sql(waiting) != "1" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for n in 0..200 {
        let key = key(&n.to_string());
        assert!(matches!(store.claim(&request(&key, 1)).await.unwrap(), Claim::Acquired(_)));
        assert_eq!(store.complete(&held(&key, 1), &done(b"paid")).await.unwrap(), Settled::Done);
    }
    let asks: Vec<ClaimRequest> = (0..64).map(|n| request(&key(&format!("many {n}")), 1)).collect();
    let claims = store.capabilities().batch.unwrap().claim_all(&asks).await;
    assert!(claims.iter().all(|claim| matches!(claim, Ok(Claim::Acquired(_)))), "{claims:?}");
    let claim = store.claim(&request(&kept, 2)).await.unwrap();
    assert!(matches!(claim, Claim::InFlight(InFlight::Leased { .. })), "{claim:?}");
    assert_eq!(store.renew(&held(&kept, 1), Duration::from_secs(60)).await.unwrap(), Settled::Done);
    assert!(!purging.is_finished());
    holding.rollback().await.unwrap();
    assert_eq!(purging.await.unwrap(), 100_000);
    assert_eq!(sql(&format!("SELECT count(*) FROM {}", place.table)), "265");
}

#[tokio::test]
async fn a_purge_passes_over_what_somebody_has_in_hand() {
    let place = Place::new();
    let store = place.open().await;
    fill(&place, 3_000);
    let other = place.other();
    let mut open = other.begin().await.unwrap();
    let some = format!("SELECT 1 FROM {} ORDER BY id LIMIT 700 FOR UPDATE", place.table);
    sqlx::query(AssertSqlSafe(some)).execute(&mut *open).await.unwrap();
    assert_eq!(purge(&store, usize::MAX).await, 2_300);
    open.rollback().await.unwrap();
    assert_eq!(purge(&store, 600).await, 600);
    assert_eq!(purge(&store, usize::MAX).await, 100);
}

/// A trigger makes each step last for 200 ms: two of them, and a rest between them.
#[tokio::test]
async fn a_purge_rests_between_its_steps_as_long_as_one_took() {
    let place = Place::new();
    let store = place.open().await;
    fill(&place, 150);
    delay_each_step(&place, "pg_sleep(0.2)");
    let began = Instant::now();
    assert_eq!(purge(&store, usize::MAX).await, 150);
    assert!(began.elapsed() >= Duration::from_millis(600), "{:?}", began.elapsed());
}
