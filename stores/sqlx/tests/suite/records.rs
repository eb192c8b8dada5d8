//! Records that cannot be read, times at their edges, what is removed and what is listed.

use std::time::Duration;

use idempotent_core::{
    Admin, Batch, Claim, Clock, FencingToken, InFlight, KeyFilter, PageLimits, Purge, ReleaseKind, Search, Settled,
    State, StateKind, Store, StoreErrorKind,
};
use idempotent_sqlx::SqliteStore;

use crate::support::{Manual, Place, done, held, key, release, request};

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
async fn a_truncated_field_is_named_and_left() {
    left_alone(ReleaseKind::Refund, "owner = substr(owner, 1, 3)", StoreErrorKind::Corrupt, "owner").await;
    left_alone(ReleaseKind::Refund, "fingerprint = x'0102'", StoreErrorKind::Corrupt, "fingerprint").await;
}

#[tokio::test]
async fn random_bytes_are_named_and_left() {
    left_alone(ReleaseKind::MarkFailed, "owner = randomblob(16)", StoreErrorKind::Corrupt, "owner").await;
    left_alone(ReleaseKind::Vacate, "attempt = 1 << 40", StoreErrorKind::Corrupt, "attempt").await;
    left_alone(ReleaseKind::Refund, "attempt = -1", StoreErrorKind::Corrupt, "attempt").await;
    left_alone(ReleaseKind::Refund, "first_seen = -1", StoreErrorKind::Corrupt, "first_seen").await;
    left_alone(ReleaseKind::Refund, "taken_over = -7", StoreErrorKind::Corrupt, "taken_over").await;
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
async fn a_row_of_a_newer_version_is_left() {
    left_alone(ReleaseKind::Refund, "v = 999", StoreErrorKind::UnknownVersion, "v").await;
    left_alone(ReleaseKind::Vacate, "v = 2", StoreErrorKind::UnknownVersion, "v").await;
}

#[tokio::test]
async fn a_missing_owner_is_named_and_left() {
    left_alone(ReleaseKind::Refund, "owner = NULL", StoreErrorKind::Corrupt, "owner").await;
    left_alone(ReleaseKind::Vacate, "error = NULL", StoreErrorKind::Corrupt, "error").await;
}

#[tokio::test]
async fn a_fencing_number_that_is_none_is_named_and_left() {
    left_alone(ReleaseKind::Refund, "fencing = -5", StoreErrorKind::Corrupt, "fencing").await;
    left_alone(ReleaseKind::Vacate, "fencing = 9223372036854775807", StoreErrorKind::Corrupt, "fencing").await;
    // A column holds what it says: the table is STRICT.
    let place = Place::new();
    place.open().await.claim(&request(&key("a"), 1)).await.unwrap();
    let refused = sqlx::raw_sql("UPDATE idempotent_record SET fencing = 'abc'").execute(&mut place.other().await).await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn a_lease_until_the_year_9999_was_never_given() {
    for until in ["253402300799000000", "9223372036854775807"] {
        let change = format!("until_at = {until}, expires_at = {until}");
        left_alone(ReleaseKind::Refund, &change, StoreErrorKind::Corrupt, "until").await;
    }
    left_alone(ReleaseKind::Refund, "until_at = -1", StoreErrorKind::Corrupt, "until_at").await;
    left_alone(ReleaseKind::Refund, "expires_at = -1", StoreErrorKind::Corrupt, "expires_at").await;
}

#[tokio::test]
async fn an_unknown_state_is_named_and_not_changed() {
    left_alone(ReleaseKind::Refund, "state = 9", StoreErrorKind::Corrupt, "state").await;
    left_alone(ReleaseKind::Vacate, "state = -1", StoreErrorKind::Corrupt, "state").await;
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
async fn a_lease_at_its_end_is_taken_over_and_a_moment_before_it_is_not() {
    let (place, clock, a) = (Place::new(), Manual::new(), key("a"));
    let store = place.builder().clock(clock.clone()).open().await.unwrap();
    let lease = Duration::from_secs(30);
    let Claim::Acquired(first) = store.claim(&request(&a, 1)).await.unwrap() else { panic!("not acquired") };
    clock.advance(lease - MS);
    let before = store.claim(&request(&a, 2)).await.unwrap();
    assert_eq!(before, Claim::InFlight(InFlight::Leased { rest: MS }));
    clock.advance(MS);
    let Claim::Acquired(second) = store.claim(&request(&a, 2)).await.unwrap() else { panic!("not taken over") };
    assert_eq!((second.taken_over, second.attempt), (Some(first.fencing), 2));
    assert!(second.fencing > first.fencing);
    assert_eq!(
        store.complete(&held(&a, 1), &done(b"late")).await.unwrap(),
        Settled::Lost { now: StateKind::Consuming }
    );
}

#[tokio::test]
async fn a_renewed_lease_keeps_its_retention() {
    let (place, clock, a) = (Place::new(), Manual::new(), key("a"));
    let store = place.builder().clock(clock.clone()).open().await.unwrap();
    store.claim(&request(&a, 1)).await.unwrap();
    clock.advance(Duration::from_secs(20));
    assert_eq!(store.renew(&held(&a, 1), Duration::from_secs(30)).await.unwrap(), Settled::Done);
    let record = store.peek(&a).await.unwrap().unwrap();
    let State::Consuming { until, .. } = record.state else { panic!("{record:?}") };
    assert_eq!(until, clock.wall() + Duration::from_secs(30));
    assert_eq!(record.expires_at, until + Duration::from_secs(3_600));
}

#[tokio::test]
async fn fencing_numbers_rise_over_delete_and_purge_in_one_millisecond() {
    let (place, a) = (Place::new(), key("a"));
    let store = place.open().await;
    let mut last = FencingToken(0);
    for owner in 1..300 {
        let Claim::Acquired(grant) = store.claim(&request(&a, owner)).await.unwrap() else { panic!("not acquired") };
        assert!(grant.fencing > last, "{} after {last}", grant.fencing);
        assert_eq!(grant.attempt, 1, "deleted without a trace");
        last = grant.fencing;
        store.release(&held(&a, owner), &release(ReleaseKind::Delete)).await.unwrap();
        assert!(store.peek(&a).await.unwrap().is_none());
        store.purge(10).await.unwrap();
    }
}

#[tokio::test]
async fn a_purge_is_bounded_and_never_takes_what_counts() {
    let (place, clock) = (Place::new(), Manual::new());
    let store = place.builder().clock(clock.clone()).open().await.unwrap();
    let expired: Vec<_> = (0..700).map(|index| request(&key(&format!("old {index}")), 1)).collect();
    for answer in store.claim_all(&expired).await {
        assert!(matches!(answer, Ok(Claim::Acquired(_))));
    }
    clock.advance(Duration::from_secs(4_000));
    let live: Vec<_> = (0..700).map(|index| request(&key(&format!("new {index}")), 1)).collect();
    store.claim_all(&live).await;
    assert_eq!(store.purge(0).await.unwrap(), 0);
    assert_eq!(store.purge(10).await.unwrap(), 10);
    assert_eq!(store.purge(600).await.unwrap(), 600);
    assert_eq!(store.purge(600).await.unwrap(), 90);
    assert_eq!(store.purge(600).await.unwrap(), 0);
    assert_eq!(place.count("SELECT count(*) FROM idempotent_record").await, 700);
    clock.advance(Duration::from_secs(3_630) - MS);
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 0, "a moment before its time a record counts");
}

#[tokio::test]
async fn a_listing_has_each_key_once_and_nothing_past_its_time() {
    let (place, clock) = (Place::new(), Manual::new());
    let store = place.builder().clock(clock.clone()).open().await.unwrap();
    store.claim(&request(&key("old"), 1)).await.unwrap();
    clock.advance(Duration::from_secs(4_000));
    let keys: Vec<_> = (0..50).map(|index| key(&format!("{index}"))).collect();
    let requests: Vec<_> = keys.iter().map(|key| request(key, 1)).collect();
    store.claim_all(&requests).await;
    let (mut after, mut listed, mut pages) = (None, Vec::new(), 0);
    loop {
        let page =
            store.search(&KeyFilter::all(), after, PageLimits { keys: 7, ..PageLimits::default() }).await.unwrap();
        assert!(page.entries.len() <= 7);
        listed.extend(page.entries.into_iter().map(|entry| entry.key));
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((listed.len(), pages), (50, 8));
    listed.sort_by_key(idempotent_core::Key::hash);
    listed.dedup();
    assert_eq!(listed.len(), 50);
    assert!(keys.iter().all(|key| listed.contains(key)));
    assert_eq!(store.search(&KeyFilter::all(), None, PageLimits::default()).await.unwrap().entries.len(), 50);
}

#[tokio::test]
async fn a_batch_is_decided_as_if_each_came_alone_with_duplicates_in_it() {
    let place = Place::new();
    let (store, a, b) = (place.open().await, key("a"), key("b"));
    let answers = store.claim_all(&[request(&a, 1), request(&b, 2), request(&a, 3), request(&a, 1)]).await;
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert!(matches!(&answers[0], Claim::Acquired(grant) if grant.attempt == 1));
    assert!(matches!(&answers[1], Claim::Acquired(_)));
    assert!(matches!(&answers[2], Claim::InFlight(_)));
    assert_eq!(answers[3], answers[0], "the same owner asking again gets the same grant");
    let all = [(held(&a, 1), done(b"1")), (held(&a, 3), done(b"3")), (held(&a, 1), done(b"again"))];
    let settled: Vec<_> = store.complete_all(&all).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(settled, [Settled::Done, Settled::Lost { now: StateKind::Consumed }, Settled::Done]);
    let Claim::Consumed(consumed) = store.claim(&request(&a, 9)).await.unwrap() else { panic!("not consumed") };
    assert_eq!(consumed.value.as_deref(), Some(&b"1"[..]), "the first result stands");
    assert!(store.claim_all(&[]).await.is_empty());
}

#[tokio::test]
async fn a_record_that_cannot_be_read_fails_alone_in_a_batch() {
    let place = Place::new();
    let (store, a, b) = (place.open().await, key("a"), key("b"));
    store.claim(&request(&a, 1)).await.unwrap();
    place.sql("UPDATE idempotent_record SET state = 9").await;
    let answers = store.claim_all(&[request(&a, 2), request(&b, 2), request(&a, 3)]).await;
    assert_eq!(answers[0].as_ref().unwrap_err().kind(), StoreErrorKind::Corrupt);
    assert!(matches!(answers[1], Ok(Claim::Acquired(_))));
    assert_eq!(answers[2].as_ref().unwrap_err().kind(), StoreErrorKind::Corrupt);
}
