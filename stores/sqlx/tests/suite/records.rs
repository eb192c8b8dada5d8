//! Records and tables that cannot be read, and the removal of more records than one step takes.
use std::time::Duration;

use idempotent_core::{
    Admin, Batch, Claim, FencingToken, KeyFilter, PageLimits, Purge, ReleaseKind, Search, Settled, Store,
    StoreErrorKind,
};
use idempotent_sqlx::SqliteStore;

use crate::support::{Place, done, held, key, pages_are_bounded, release, request, stopped_clock};

const MS: Duration = Duration::from_millis(1);

/// Creates a record, changes its row with SQL, and calls each method of the store. Each call reports the defect, and
/// the row stays unchanged, also after its expiry.
async fn left_alone(from: ReleaseKind, change: &str, kind: StoreErrorKind, field: &str) {
    let place = Place::new();
    let (store, a) = (place.open().await, key("a"));
    store.claim(&request(&a, 1)).await.unwrap();
    match from {
        // Stays consuming.
        ReleaseKind::Refund => {}
        verdict => assert_eq!(store.release(&held(&a, 1), &release(verdict)).await.unwrap(), Settled::Done),
    }
    for past in [false, true] {
        if past {
            place.sql("UPDATE idempotent_record SET expires_at = 1, until_at = min(until_at, 1)").await;
        }
        place.sql(&format!("UPDATE idempotent_record SET {change}")).await;
        let before = place.row().await;
        every_verb(&store, kind, field).await;
        assert_eq!(place.row().await, before, "{change}");
    }
}

async fn every_verb(store: &SqliteStore, kind: StoreErrorKind, field: &str) {
    let a = key("a");
    let held = held(&a, 1);
    let errors = [
        store.claim(&request(&a, 1)).await.unwrap_err(),
        store.claim(&request(&a, 2)).await.unwrap_err(),
        store.renew(&held, MS).await.unwrap_err(),
        store.complete(&held, &done(b"x")).await.unwrap_err(),
        store.release(&held, &release(ReleaseKind::Delete)).await.unwrap_err(),
        store.release(&held, &release(ReleaseKind::MarkDead)).await.unwrap_err(),
        store.forget(&a, FencingToken(1), true, MS).await.unwrap_err(),
        store.peek(&a).await.unwrap_err(),
        store.claim_all(&[request(&a, 3)]).await.remove(0).unwrap_err(),
        store.complete_all(&[(held.clone(), done(b"x"))]).await.remove(0).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(&format!("`{field}`")), "{field:?} is not in: {error}");
    }
    assert_eq!(store.purge(100).await.unwrap(), 0);
}

#[tokio::test]
async fn a_damaged_row_is_named_and_left() {
    use ReleaseKind::{MarkFailed, Refund, Vacate};
    use StoreErrorKind::{Corrupt, UnknownVersion};
    for (from, change, kind, field) in [
        (Refund, "owner = substr(owner, 1, 3)", Corrupt, "owner"),
        (Refund, "fingerprint = x'0102'", Corrupt, "fingerprint"),
        (MarkFailed, "owner = randomblob(16)", Corrupt, "owner"),
        (Vacate, "attempt = 1 << 40", Corrupt, "attempt"),
        (Refund, "attempt = -1", Corrupt, "attempt"),
        (Refund, "first_seen = -1", Corrupt, "first_seen"),
        (Refund, "taken_over = -7", Corrupt, "taken_over"),
        (Refund, "v = 999", UnknownVersion, "v"),
        (Vacate, "v = 2", UnknownVersion, "v"),
        (Refund, "owner = NULL", Corrupt, "owner"),
        (Vacate, "error = NULL", Corrupt, "error"),
        (Refund, "fencing = -5", Corrupt, "fencing"),
        (Vacate, "fencing = 9223372036854775807", Corrupt, "fencing"),
        // A lease until the year 9999 was never granted.
        (Refund, "until_at = 253402300799000000, expires_at = 253402300799000000", Corrupt, "until"),
        (Refund, "until_at = 9223372036854775807, expires_at = 9223372036854775807", Corrupt, "until"),
        (Refund, "until_at = -1", Corrupt, "until_at"),
        (Refund, "expires_at = -1", Corrupt, "expires_at"),
        (Refund, "state = 9", Corrupt, "state"),
        (Vacate, "state = -1", Corrupt, "state"),
    ] {
        left_alone(from, change, kind, field).await;
    }
}

#[tokio::test]
async fn a_text_in_a_column_of_numbers_is_refused_by_the_table() {
    let place = Place::new();
    place.open().await.claim(&request(&key("a"), 1)).await.unwrap();
    let refused = sqlx::raw_sql("UPDATE idempotent_record SET fencing = 'abc'").execute(&mut place.other().await).await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn a_text_that_is_not_utf8_is_named() {
    let place = Place::new();
    let (store, a) = (place.open().await, key("a"));
    store.claim(&request(&a, 1)).await.unwrap();
    store.release(&held(&a, 1), &release(ReleaseKind::MarkDead)).await.unwrap();
    place.sql("UPDATE idempotent_record SET error = CAST(x'ff' AS TEXT)").await;
    let error = store.claim(&request(&a, 2)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt);
    assert!(error.to_string().contains("`error` is not UTF-8"), "{error}");
    let page = store.search(&KeyFilter::all(), None, PageLimits::default()).await.unwrap();
    assert!(page.entries.is_empty() && page.unreadable[0].reason.contains("`error` is not UTF-8"), "{page:?}");
}

#[tokio::test]
async fn a_foreign_table_is_named_and_not_changed() {
    for foreign in ["(key TEXT PRIMARY KEY, value TEXT)", "(id, v, name, state)"] {
        let place = Place::new();
        place.sql(&format!("CREATE TABLE idempotent_record {foreign}")).await;
        let schema = "SELECT count(*) FROM sqlite_schema";
        let before = place.count(schema).await;
        let error = place.builder().open().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Foreign, "{error}");
        assert!(error.to_string().contains("`idempotent_record`"), "{error}");
        assert_eq!(place.count(schema).await, before);
    }
}

#[tokio::test]
async fn a_table_that_lost_a_column_is_foreign() {
    let place = Place::new();
    place.open().await;
    place.sql("ALTER TABLE idempotent_record RENAME COLUMN fencing TO fence").await;
    assert_eq!(place.builder().open().await.unwrap_err().kind(), StoreErrorKind::Foreign);
}

#[tokio::test]
async fn a_purge_is_bounded_and_never_takes_what_counts() {
    let (place, clock) = (Place::new(), stopped_clock());
    let store = place.builder().clock(clock.clone()).open().await.unwrap();
    let expired: Vec<_> = (0..700).map(|index| request(&key(&format!("old {index}")), 1)).collect();
    for answer in store.claim_all(&expired).await {
        assert!(matches!(answer, Ok(Claim::Acquired(_))));
    }
    clock.jump(Duration::from_secs(4_000));
    let live: Vec<_> = (0..700).map(|index| request(&key(&format!("new {index}")), 1)).collect();
    store.claim_all(&live).await;
    assert_eq!(store.purge(0).await.unwrap(), 0);
    assert_eq!(store.purge(10).await.unwrap(), 10);
    assert_eq!(store.purge(600).await.unwrap(), 600);
    assert_eq!(store.purge(600).await.unwrap(), 90);
    assert_eq!(store.purge(600).await.unwrap(), 0);
    assert_eq!(place.count("SELECT count(*) FROM idempotent_record").await, 700);
    clock.jump(Duration::from_secs(3_630) - MS);
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 0, "a moment before its time a record counts");
}

#[tokio::test]
async fn a_page_of_a_billion_records_is_one_of_10_000() {
    pages_are_bounded(&Place::new().open().await).await;
}
