//! Errors of opening a store, and their texts.
use std::sync::Arc;

use idempotent_core::store::{Health, Severity};
use idempotent_core::{Batch, CacheTier, Claim, ClaimMode, Store, StoreError, StoreErrorKind, TransactionSource};
use idempotent_sqlx::{SchemaStep, SqliteStore, SqliteTier};
use sqlx::Transaction;

use crate::support::{Place, done, held, key, request};
use crate::tables::open_on_printed_migrations;

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, StoreError>, kind: StoreErrorKind, words: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
    }
}

#[tokio::test]
async fn a_missing_table_is_named_with_the_remedy() {
    let place = Place::new();
    let open = place.builder().create(false).open().await;
    refused(open, StoreErrorKind::Schema, &["records.db", "missing", "open it once with `create(true)`"]);
    assert!(!place.path.exists(), "a look leaves no file behind");
    place.sql("CREATE TABLE mine (a)").await;
    let open = place.builder().create(false).table("shop").open().await;
    refused(open, StoreErrorKind::Schema, &["table `shop` is missing", "open it once with `create(true)`"]);
    assert_eq!(place.count("SELECT count(*) FROM sqlite_schema").await, 1);
}

#[tokio::test]
async fn a_table_that_goes_while_the_store_is_open_is_named_too() {
    let place = Place::new();
    let store = place.open().await;
    place.sql("DROP TABLE idempotent_record").await;
    let claim = store.claim(&request(&key("a"), 1)).await;
    refused(claim, StoreErrorKind::Schema, &["`idempotent_record` is missing", "`create(true)`"]);
}

#[tokio::test]
async fn a_store_opens_on_tables_that_an_administrator_created() {
    let place = Place::new();
    place.sql("CREATE TABLE mine (a)").await;
    let steps = place.builder().schema_steps().unwrap();
    assert_eq!(steps.iter().map(SchemaStep::version).collect::<Vec<_>>(), [1, 2, 3]);
    let open = async |create| place.builder().create(create).open().await;
    open_on_printed_migrations(&steps, async |text: String| place.sql(&text).await, open).await;
    assert_eq!(place.count("SELECT count(*) FROM idempotent_record_migrations").await, 3);
}

#[tokio::test]
async fn openers_at_once_migrate_once() {
    let place = Place::new();
    let open = (0..8).map(|_| tokio::spawn(place.builder().open()));
    for store in futures_util::future::join_all(open).await {
        store.unwrap().unwrap();
    }
    assert_eq!(place.count("SELECT count(*) FROM idempotent_record_migrations").await, 3);
}

#[tokio::test]
async fn an_open_that_is_dropped_on_the_way_can_be_repeated() {
    let place = Place::new();
    for turns in 0..40 {
        let yields = async {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = place.builder().open() => {}
            () = yields => {}
        }
    }
    let store = place.open().await;
    assert!(matches!(store.claim(&request(&key("a"), 1)).await, Ok(Claim::Acquired(_))));
    assert_eq!(place.count("SELECT count(*) FROM idempotent_record_migrations").await, 3);
}

#[tokio::test]
async fn a_table_name_that_is_a_statement_is_refused() {
    let place = Place::new();
    for name in ["x\"; drop table r; --", "", "Records", "1st", "a.b", "a b", "é", "x'y", "a\0b", "a-b"] {
        let open = place.builder().table(name).open().await;
        refused(open, StoreErrorKind::Schema, &["table name", "a-z", "1 to 63 bytes", "idempotent_record"]);
    }
    assert!(!place.path.exists());
    // A name that is a word of SQL is only a name.
    let store = place.builder().table("select").open().await.unwrap();
    assert!(matches!(store.claim(&request(&key("a"), 1)).await, Ok(Claim::Acquired(_))));
}

#[tokio::test]
async fn a_table_name_of_more_than_63_bytes_is_refused() {
    let place = Place::new();
    let open = place.builder().table("x".repeat(70)).open().await;
    refused(open, StoreErrorKind::Schema, &["has 70 bytes", "1 to 63"]);
    place.builder().table("x".repeat(63)).open().await.unwrap();
}

#[tokio::test]
async fn a_place_that_is_not_a_path_is_refused_without_its_password() {
    for (place, word) in [
        ("", "empty"),
        ("sqlite:", "empty"),
        ("postgres://me:secret@host/db", "scheme `postgres`"),
        ("sqlite:x.db?mode=ro", "setting `mode`"),
        ("x.db?mode=ro", "setting `mode`"),
        ("file::memory:?cache=shared", "setting `cache`"),
        ("file:x.db", "is a `file:` URI of SQLite: this store takes a path"),
        ("sqlite:FILE:x.db", "is a `file:` URI of SQLite: this store takes a path"),
        ("sqlite:memory", "did you mean `sqlite::memory:`?"),
        ("sqlite:memory:", "did you mean `sqlite::memory:`?"),
        (":memory", "did you mean `sqlite::memory:`? A file of this name is `./:memory`"),
        ("a\0b", "NUL"),
    ] {
        let open = SqliteStore::open(place).await;
        assert!(!open.as_ref().unwrap_err().to_string().contains("secret"));
        refused(open, StoreErrorKind::Schema, &[word]);
    }
    for name in ["file::memory:?cache=shared", "file:x.db", "FILE:x.db", "memory", "memory:", ":memory", "x.db?mode=ro"]
    {
        assert!(!std::path::Path::new(name).exists(), "{name}");
    }
}

#[tokio::test]
async fn a_path_that_cannot_be_a_database_is_named_with_rule_and_remedy() {
    let place = Place::new();
    let folder = place.folder.path().to_str().unwrap().to_owned();
    refused(
        SqliteStore::open(&folder).await,
        StoreErrorKind::Denied,
        &[&folder, "is a directory", "name a file in the directory"],
    );
    let missing = format!("{folder}/no/such/records.db");
    refused(
        SqliteStore::open(&missing).await,
        StoreErrorKind::Denied,
        &[&missing, "is not a directory", "create the directory"],
    );
    let text = format!("{folder}/text");
    std::fs::write(&text, "not a database, but long enough to be looked at ".repeat(100)).unwrap();
    refused(
        SqliteStore::open(&text).await,
        StoreErrorKind::Foreign,
        &[&text, "not an SQLite database", "another path"],
    );
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("not a database"), "the file is unchanged");
    let below = format!("{text}/records.db");
    refused(SqliteStore::open(&below).await, StoreErrorKind::Denied, &[&below]);
}

#[tokio::test]
async fn every_way_to_write_a_path_leads_to_the_same_file() {
    let place = Place::new();
    let path = place.path.to_str().unwrap();
    let first = SqliteStore::open(path).await.unwrap();
    assert!(matches!(first.claim(&request(&key("a"), 1)).await, Ok(Claim::Acquired(_))));
    for url in [format!("sqlite:{path}"), format!("sqlite://{path}")] {
        let store = SqliteStore::open(url).await.unwrap();
        assert!(matches!(store.claim(&request(&key("a"), 2)).await, Ok(Claim::InFlight(_))));
    }
    // What SQLite would take for a URI, a path with a blank, a percent sign, and a path like the database in memory.
    for name in ["file:x.db", "a b.db", "100%25.db", "memory"] {
        let path = place.folder.path().join(name);
        SqliteStore::open(path.to_str().unwrap()).await.unwrap();
        assert!(path.is_file(), "{name}");
    }
}

#[tokio::test]
async fn a_database_in_memory_is_shared_only_by_clones() {
    for place in [":memory:", "sqlite::memory:", "sqlite://:memory:"] {
        let store = SqliteStore::open(place).await.unwrap();
        let clone = store.clone();
        assert!(matches!(store.claim(&request(&key("a"), 1)).await, Ok(Claim::Acquired(_))));
        assert!(matches!(clone.claim(&request(&key("a"), 2)).await, Ok(Claim::InFlight(_))));
        assert!(clone.peek(&key("a")).await.unwrap().is_some());
        assert!(SqliteStore::open(place).await.unwrap().peek(&key("a")).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn two_tables_of_one_file_do_not_meet() {
    let place = Place::new();
    let (one, two) = (place.open().await, place.builder().table("two").open().await.unwrap());
    assert!(matches!(one.claim(&request(&key("a"), 1)).await, Ok(Claim::Acquired(_))));
    assert!(matches!(two.claim(&request(&key("a"), 2)).await, Ok(Claim::Acquired(_))));
}

#[tokio::test]
async fn a_mistyped_url_that_is_taken_for_a_path_shows_no_password() {
    for place in ["redis//user:s3cr3t@host/0", "redis:user:s3cr3t@host/x"] {
        let error = SqliteStore::open(place).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error}");
    }
}

/// SQLite goes on in such a file without an error, so each write would be lost.
#[tokio::test]
async fn a_file_that_is_removed_or_replaced_while_it_is_open_is_refused_until_it_is_back() {
    for word in ["removed", "replaced"] {
        let place = Place::new();
        let (store, shown) = (place.open().await, place.path.to_str().unwrap());
        let tier = SqliteTier::open(place.folder.path().join("tier.db").to_str().unwrap()).await.unwrap();
        assert!(matches!(store.claim(&request(&key("a"), 1)).await, Ok(Claim::Acquired(_))));
        let away =
            ["records.db", "tier.db"].map(|name| (place.folder.path().join(name), place.folder.path().join("away")));
        for (path, folder) in &away {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::rename(path, folder.join(path.file_name().unwrap())).unwrap();
            if word == "replaced" {
                std::fs::copy(folder.join(path.file_name().unwrap()), path).unwrap();
            }
        }
        let words = [shown, word, "stop every process that uses a file", "start this one again"];
        refused(store.claim(&request(&key("b"), 1)).await, StoreErrorKind::Denied, &words);
        refused(store.peek(&key("a")).await, StoreErrorKind::Denied, &words);
        refused(store.complete(&held(&key("a"), 1), &done(b"")).await, StoreErrorKind::Denied, &words);
        refused(store.claim_all(&[request(&key("b"), 1)]).await.remove(0), StoreErrorKind::Denied, &words);
        let run = store.capabilities().transact.unwrap().transactional_run(ClaimMode::Inside);
        let run = run.downcast::<Arc<dyn TransactionSource<Transaction<'static, sqlx::Sqlite>>>>().unwrap();
        refused(run.claim(&request(&key("b"), 1)).await, StoreErrorKind::Denied, &words);
        refused(tier.recall(&key("a")).await, StoreErrorKind::Denied, &["tier.db", word]);
        let report = store.check().await.unwrap();
        assert!(report.severity() == Severity::Refuse && report.to_string().contains(word), "{report}");

        for (path, folder) in &away {
            std::fs::rename(folder.join(path.file_name().unwrap()), path).unwrap();
        }
        assert!(matches!(store.claim(&request(&key("a"), 2)).await, Ok(Claim::InFlight(_))));
        assert_eq!(tier.recall(&key("a")).await.unwrap(), None);
    }
}
