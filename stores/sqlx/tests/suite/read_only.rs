//! Stores that only read, on SQLite.
use std::collections::BTreeMap;
use std::time::Duration;

use idempotent_core::store::{Health, Severity};
use idempotent_core::{
    Admin, Batch, KeyFilter, OrderStore, PageLimits, Purge, ReleaseKind, Search, StepRecord, StepState, StepStore,
    Store, StoreError, StoreErrorKind,
};
use idempotent_sqlx::SqliteStore;

use crate::support::{Place, done, held, key, release, request};

const HOUR: Duration = Duration::from_secs(3_600);

/// Calls each method that writes, and returns the results.
pub(crate) async fn write(
    store: &(impl Store + Admin + Batch + OrderStore + Purge + StepStore),
) -> Vec<(&'static str, Result<(), StoreError>)> {
    let (owned, done) = (held(&key("held"), 1), done(b"paid"));
    let expected = store.peek(&owned.key).await.unwrap().unwrap().fencing;
    let step = StepRecord { name: "pay".into(), place: 0, state: StepState::Done, value: None };
    let mut all = vec![
        ("claim", store.claim(&request(&key("new"), 1)).await.map(drop)),
        ("renew", store.renew(&owned, HOUR).await.map(drop)),
        ("complete", store.complete(&owned, &done).await.map(drop)),
        ("release", store.release(&owned, &release(ReleaseKind::Delete)).await.map(drop)),
        ("forget", store.forget(&owned.key, expected, true, HOUR).await.map(drop)),
        ("note", store.note(&owned, &step, HOUR).await.map(drop)),
        ("compare_and_swap", store.compare_and_swap(&key("stream"), None, b"next", HOUR).await.map(drop)),
    ];
    let batch = store.claim_all(&[request(&key("new"), 1), request(&key("newer"), 1)]).await;
    all.extend(batch.into_iter().map(|claim| ("claim_all", claim.map(drop))));
    let batch = store.renew_all(&[(owned.clone(), HOUR)]).await;
    all.extend(batch.into_iter().map(|renewed| ("renew_all", renewed.map(drop))));
    let batch = store.complete_all(&[(owned.clone(), done)]).await;
    all.extend(batch.into_iter().map(|completed| ("complete_all", completed.map(drop))));
    let renewing = store.capabilities().renewal.unwrap().renewal_store().await.unwrap();
    all.push(("renewal_store", renewing.renew(&owned, HOUR).await.map(drop)));
    all
}

/// Checks that the store refused each of these calls, and names the setting and the remedy.
#[track_caller]
pub(crate) fn all_are_refused(results: Vec<(&'static str, Result<(), StoreError>)>) {
    assert_eq!(results.len(), 12);
    for (method, result) in results {
        let error = result.expect_err(method);
        assert_eq!(error.kind(), StoreErrorKind::Denied, "{method}: {error}");
        for word in ["`read_only(true)`", "open it without `read_only`"] {
            assert!(error.to_string().contains(word), "{method}: {error}");
        }
    }
}

/// Returns the bytes of the database and of its write-ahead log.
fn bytes(place: &Place) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(place.folder.path()).unwrap().map(|file| file.unwrap());
    let named = files.map(|file| (file.file_name().into_string().unwrap(), file.path()));
    named.filter(|(name, _)| !name.ends_with("-shm")).map(|(name, path)| (name, std::fs::read(path).unwrap())).collect()
}

async fn reader(place: &Place) -> SqliteStore {
    place.builder().read_only(true).open().await.unwrap()
}

#[tokio::test]
async fn a_read_only_store_reads_a_file_and_leaves_it_as_it_is() {
    let place = Place::new();
    let writer = place.open().await;
    for name in ["consumed", "held"] {
        writer.claim(&request(&key(name), 1)).await.unwrap();
    }
    writer.complete(&held(&key("consumed"), 1), &done(b"paid")).await.unwrap();
    let before = bytes(&place);
    let store = reader(&place).await;
    assert_eq!(store.peek(&key("consumed")).await.unwrap(), writer.peek(&key("consumed")).await.unwrap());
    assert_eq!(store.search(&KeyFilter::all(), None, PageLimits::default()).await.unwrap().entries.len(), 2);
    store.load(&key("stream")).await.unwrap();
    store.steps(&held(&key("held"), 1), HOUR).await.unwrap();
    assert!(place.builder().read_only(true).schema_status().await.unwrap().is_current());
    all_are_refused(write(&store).await);
    assert!(bytes(&place) == before, "no byte is written");
    drop(writer);
}

#[tokio::test]
async fn a_read_only_store_never_creates_a_file_or_a_table() {
    let place = Place::new();
    let open = || place.builder().create(true).read_only(true).open();
    let error = open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Schema);
    assert!(error.to_string().contains("records.db` is missing: check the path"), "{error}");
    assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 0);
    place.sql("CREATE TABLE mine (a)").await;
    let before = bytes(&place);
    let error = open().await.unwrap_err();
    assert!(error.to_string().contains("table `idempotent_record` is missing"), "{error}");
    assert!(bytes(&place) == before);
    let error = SqliteStore::builder("sqlite::memory:").read_only(true).open().await.unwrap_err();
    assert!(error.to_string().contains("name a file to read"), "{error}");
}

#[tokio::test]
async fn a_check_warns_of_a_file_with_a_rollback_journal() {
    let place = Place::new();
    let journal = async |store: &SqliteStore| {
        let report = store.check().await.unwrap();
        (report.severity(), report.findings()[0].text().to_owned())
    };
    let writer = place.open().await;
    assert_eq!(journal(&writer).await, (Severity::Ok, "journal mode `wal`".to_owned()));
    drop(writer);
    place.leave_wal().await;
    let (severity, text) = journal(&reader(&place).await).await;
    assert!(severity == Severity::Warn && text.contains("block each other: open the file once"), "{text}");
    let memory = SqliteStore::open("sqlite::memory:").await.unwrap();
    assert_eq!(journal(&memory).await.0, Severity::Ok);
}
