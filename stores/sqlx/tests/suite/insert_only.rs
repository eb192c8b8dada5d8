//! The insert-only inbox on SQLite; on servers in `tests/server`.

use std::time::Duration;

use idempotent_sqlx::UniqueKeys;

use crate::support::{Place, key};

#[tokio::test]
async fn a_key_is_noted_once_and_a_rollback_takes_the_note_with_it() {
    let (place, keys) = (Place::new(), UniqueKeys::new("seen").unwrap());
    let mut connection = place.other().await;
    keys.create(&mut connection).await.unwrap();
    keys.create(&mut connection).await.unwrap();
    for (commits, first) in [(false, true), (true, true), (true, false)] {
        let mut tx = sqlx::Connection::begin_with(&mut connection, "BEGIN IMMEDIATE").await.unwrap();
        assert_eq!(keys.first_time(&mut *tx, &key("a")).await.unwrap(), first);
        if commits { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }
    assert!(keys.first_time(&mut connection, &key("b")).await.unwrap(), "another key");
    place.sql("UPDATE seen SET noted_at = noted_at - 100").await;
    let mut purged = Vec::new();
    for (age, at_most) in [(200, 9), (99, 1), (99, 9)] {
        purged.push(keys.purge(&mut connection, Duration::from_secs(age), at_most).await.unwrap());
    }
    assert_eq!(purged, [0, 1, 1]);
    assert!(keys.first_time(&mut connection, &key("a")).await.unwrap());
}

/// SQLite has one writer: the second transaction begins when the first has ended.
#[tokio::test]
async fn a_second_transaction_waits_for_the_first_and_its_end_decides() {
    let (place, keys) = (Place::new(), UniqueKeys::new("seen").unwrap());
    let (mut one, mut two) = (place.other().await, place.other().await);
    keys.create(&mut one).await.unwrap();
    for (commits, name) in [(true, "a"), (false, "b")] {
        let mut first = sqlx::Connection::begin_with(&mut one, "BEGIN IMMEDIATE").await.unwrap();
        assert!(keys.first_time(&mut *first, &key(name)).await.unwrap());
        let second = async {
            let mut second = sqlx::Connection::begin_with(&mut two, "BEGIN IMMEDIATE").await.unwrap();
            let first_time = keys.first_time(&mut *second, &key(name)).await.unwrap();
            second.commit().await.unwrap();
            first_time
        };
        let ends = async move { if commits { first.commit().await.unwrap() } else { first.rollback().await.unwrap() } };
        // The second is sent before the first ends.
        let (first_time, ()) = futures_util::future::join(second, ends).await;
        assert_eq!(first_time, !commits);
    }
}

#[test]
fn a_name_that_is_none_is_refused() {
    let said = UniqueKeys::new("x; DROP TABLE mark").unwrap_err().to_string();
    assert!(said.contains("table name"), "{said}");
}
