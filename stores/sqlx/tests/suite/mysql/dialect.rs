//! Behavior of MariaDB and MySQL only.
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::{Claim, InFlight, Purge, ReleaseKind, Settled, Store, StoreErrorKind, Timestamp};
use idempotent_harness::servers::MariaDbServer;
use idempotent_mq::{OutboundMessage, Scheduled};
use idempotent_sqlx::{DelayTable, Enqueued, MySqlStore, Outbox, UniqueKeys};
use idempotent_testkit::{Subject, conformance};
use sqlx::mysql::{MySqlConnection, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Executor};
use tokio::sync::Barrier;

use crate::mysql::fixture::{Place, sql};
use crate::mysql::setup::refused;
use crate::support::{done, held, key, release, request, stopped_clock};

/// Creates stores with the statements for MySQL, which MariaDB also accepts.
async fn as_on_mysql() -> Subject {
    let place = Place::new();
    let open = async || place.builder().__as_on_mysql().connect().await.unwrap();
    Subject::new(open().await).second(open().await).planting(place.rows()).rounds(10)
}

mod extras {
    use super::*;

    conformance!(as_on_mysql_by_its_own_clock, as_on_mysql(), without: [clock, clients, losing, foreign, watch]);
}

/// A statement reads its clock when it begins, so a look may see a release that began later: by its own clock the key would
/// be vacant from a moment to come.
#[tokio::test]
async fn a_key_that_was_released_after_the_look_began_is_acquired() {
    for open in [Place::builder, |place: &Place| place.builder().__as_on_mysql()] {
        let (place, key) = (Place::new(), key("released"));
        let store = open(&place).connect().await.unwrap();
        store.claim(&request(&key, 1)).await.unwrap();
        store.release(&held(&key, 1), &release(ReleaseKind::Vacate)).await.unwrap();
        let later = "updated_at = updated_at + 60000000, until_at = updated_at, expires_at = expires_at + 60000000";
        sql(&format!("UPDATE {} SET {later} WHERE id = x'{:032x}'", place.table, key.hash()));
        let claim = store.claim(&request(&key, 2)).await.unwrap();
        assert!(matches!(claim, Claim::Acquired(_)), "{claim:?}");
    }
}

#[tokio::test]
async fn a_concurrent_migration_is_waited_for() {
    let place = Place::new();
    let mut other = place.other().acquire().await.unwrap().detach();
    other.execute("DO get_lock('idempotent migrations', 10)").await.unwrap();
    let opening = tokio::spawn(place.builder().connect());
    while !place.waits("get_lock") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!opening.is_finished());
    sqlx::Connection::close(other).await.unwrap();
    opening.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_migration_that_was_killed_between_its_steps_is_gone_on_with() {
    let place = Place::new();
    place.open().await;
    // As after the table was made and before that was noted.
    sql(&format!("DELETE FROM {}_migrations", place.table));
    refused(
        place.builder().create(false).connect().await,
        StoreErrorKind::Schema,
        &["schema version 0", "needed is 3"],
    );
    place.open().await;
    assert_eq!(sql(&format!("SELECT count(*) FROM {}_migrations", place.table)), "3");
}

#[tokio::test]
async fn a_missing_permission_is_reported_with_the_grant() {
    let place = Place::new();
    place.open().await;
    let user = format!("reader_{}@'127.0.0.1'", place.table);
    sql(&format!(
        "CREATE USER {user}; GRANT SELECT ON {0} TO {user}; GRANT SELECT ON {0}_migrations TO {user}",
        place.table
    ));
    let url = place.url_by(&format!("reader_{}", place.table));
    let store = MySqlStore::builder(url).table(&place.table).connect().await.unwrap();
    let claim = store.claim(&request(&key("a"), 1)).await;
    let grants = ["GRANT SELECT, INSERT, UPDATE, DELETE", &place.table, "CREATE on the database", "error 1142"];
    refused(claim, StoreErrorKind::Denied, &grants);
}

#[tokio::test]
async fn a_server_that_is_read_only_is_one_to_leave() {
    let server = MariaDbServer::start();
    MySqlStore::builder(server.url()).create(true).connect().await.unwrap();
    server.sql("test", "CREATE USER app@'127.0.0.1'; GRANT ALL ON test.* TO app@'127.0.0.1'; SET GLOBAL read_only = 1");
    let store = MySqlStore::connect(server.url().replace("root@", "app@")).await.unwrap();
    let claim = store.claim(&request(&key("a"), 1)).await;
    refused(claim, StoreErrorKind::NotApplied, &["read-only", "name the primary", "error 1290"]);
    server.sql("test", "SET GLOBAL read_only = 0, GLOBAL max_allowed_packet = 1048576");

    // The same server, whose packets are small now: what does not fit is never sent.
    let store = MySqlStore::connect(server.url()).await.unwrap();
    store.claim(&request(&key("a"), 1)).await.unwrap();
    let large = done(&vec![7; 1 << 20]);
    let complete = store.complete(&held(&key("a"), 1), &large).await;
    refused(complete, StoreErrorKind::Denied, &["1048576 bytes", "max_allowed_packet", "store a smaller result"]);
    let batch = store.capabilities().batch.unwrap().complete_all(&[(held(&key("a"), 1), large)]).await.remove(0);
    refused(batch, StoreErrorKind::Denied, &["max_allowed_packet"]);
    assert_eq!(store.complete(&held(&key("a"), 1), &done(b"small")).await.unwrap(), Settled::Done);
}

#[tokio::test]
async fn a_result_of_some_megabytes_is_replayed_whole() {
    let store = Place::new().open().await;
    let value: Vec<u8> = (0..5 << 20).map(|at: u32| at.to_le_bytes()[at as usize % 3]).collect();
    store.claim(&request(&key("a"), 1)).await.unwrap();
    store.complete(&held(&key("a"), 1), &done(&value)).await.unwrap();
    let Claim::Consumed(consumed) = store.claim(&request(&key("a"), 2)).await.unwrap() else { panic!("not consumed") };
    assert!(consumed.value.as_deref() == Some(&value[..]));
}

/// Takes the locks that a claim of another transaction has.
async fn hold(open: &mut MySqlConnection, place: &Place, key: &idempotent_core::Key) {
    let id = hex(key);
    let lock = format!("BEGIN; SELECT id FROM {} WHERE id = x'{id}' FOR UPDATE", place.table);
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut *open).await.unwrap();
}

fn hex(key: &idempotent_core::Key) -> String {
    format!("{:032x}", key.hash())
}

#[tokio::test]
async fn a_claim_never_waits_for_somebody_who_has_the_key_in_an_open_transaction() {
    let place = Place::new();
    // With the settings of the server: locks are waited for 50 s, in REPEATABLE READ.
    let pool = MySqlPoolOptions::new().max_connections(4).connect_lazy(&place.url).unwrap();
    let theirs = MySqlStore::on_pool(pool).table(&place.table).create(true).connect().await.unwrap();
    let ours = place.open().await;
    for (store, a, b) in [(ours, key("a"), key("b")), (theirs, key("c"), key("d"))] {
        let claim = request(&a, 1);
        store.claim(&claim).await.unwrap();
        store.release(&held(&a, 1), &release(ReleaseKind::Vacate)).await.unwrap();
        let mut other = place.other().acquire().await.unwrap().detach();
        hold(&mut other, &place, &a).await;
        assert_eq!(store.claim(&claim).await.unwrap(), Claim::InFlight(InFlight::Busy));
        other.execute("ROLLBACK").await.unwrap();
        assert!(matches!(store.claim(&claim).await.unwrap(), Claim::Acquired(_)));

        // A key of which nothing is committed yet.
        let insert = format!(
            "BEGIN; INSERT INTO {0} SELECT x'{1}',v,name,state,owner,fencing,attempt,until_at,taken_over,fingerprint,\
             expires_at,first_seen,updated_at,value,error,display FROM {0} WHERE id = x'{2}'",
            place.table,
            hex(&b),
            hex(&a)
        );
        sqlx::raw_sql(AssertSqlSafe(insert)).execute(&mut other).await.unwrap();
        let claim = request(&b, 1);
        assert_eq!(store.claim(&claim).await.unwrap(), Claim::InFlight(InFlight::Busy));
        other.execute("ROLLBACK").await.unwrap();
        assert!(matches!(store.claim(&claim).await.unwrap(), Claim::Acquired(_)));
    }
}

/// Prints how long 64 callers wait for the first claim of a key. `--nocapture` shows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_racers_for_a_new_key_one_is_granted_and_the_others_are_busy() {
    let place = Place::new();
    let pool = MySqlPoolOptions::new().max_connections(64).min_connections(64).connect(&place.url).await.unwrap();
    let store = MySqlStore::on_pool(pool).table(&place.table).create(true).connect().await.unwrap();
    let mut waits = Vec::new();
    for round in 0..20 {
        let key = key(&format!("race-{round}"));
        let start = Arc::new(Barrier::new(64));
        let racers: Vec<_> = (0..64)
            .map(|racer| {
                let (store, start, claim) = (store.clone(), start.clone(), request(&key, racer + 1));
                tokio::spawn(async move {
                    start.wait().await;
                    let begin = Instant::now();
                    (store.claim(&claim).await.unwrap(), begin.elapsed())
                })
            })
            .collect();
        let mut granted = 0;
        for racer in racers {
            let (claim, waited) = racer.await.unwrap();
            match claim {
                Claim::Acquired(_) => granted += 1,
                Claim::InFlight(_) => {}
                other => panic!("{other:?}"),
            }
            waits.push(waited);
        }
        assert_eq!(granted, 1);
    }
    waits.sort_unstable();
    let at = |share: usize| waits[(waits.len() - 1) * share / 100];
    println!("64 racers, 20 keys: median {:?}, p90 {:?}, p99 {:?}, longest {:?}", at(50), at(90), at(99), at(100));
}

#[tokio::test]
async fn a_url_without_a_database_is_refused() {
    refused(MySqlStore::connect("mariadb://me@127.0.0.1").await, StoreErrorKind::Schema, &["names no database"]);
}

#[tokio::test]
async fn a_deleted_key_keeps_its_row_for_a_minute() {
    let (place, clock) = (Place::new(), stopped_clock());
    let store = place.builder().clock(clock.clone()).connect().await.unwrap();
    store.claim(&request(&key("a"), 1)).await.unwrap();
    clock.jump(Duration::from_secs(1));
    store.release(&held(&key("a"), 1), &release(ReleaseKind::Delete)).await.unwrap();
    assert_eq!(store.peek(&key("a")).await.unwrap(), None);
    clock.jump(Duration::from_secs(59));
    assert_eq!(store.purge(10).await.unwrap(), 0, "a statement that began before may still be on its way");
    clock.jump(Duration::from_secs(1));
    assert_eq!(store.purge(10).await.unwrap(), 1);
}

/// Error 1020 of MariaDB 11.6.2 and later would roll back the transaction.
#[tokio::test]
async fn what_was_committed_after_the_snapshot_of_a_transaction_is_already_there() {
    let place = Place::new();
    let pool = sqlx::MySqlPool::connect(&place.url).await.unwrap();
    let keys = UniqueKeys::new(&format!("{}_seen", place.table)).unwrap();
    keys.create(&mut *pool.acquire().await.unwrap()).await.unwrap();
    let outbox =
        Outbox::builder(pool.clone()).table(format!("{}_sent", place.table)).create(true).open().await.unwrap();
    let delay =
        DelayTable::builder(pool.clone()).table(format!("{}_due", place.table)).create(true).open().await.unwrap();
    let begin = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT";
    let mut late = pool.begin_with(begin).await.unwrap();
    let (message, at) = (OutboundMessage::new("orders", "a", ""), Timestamp(1));
    {
        let mut other = pool.acquire().await.unwrap();
        assert!(keys.first_time(&mut *other, &key("a")).await.unwrap());
        assert_eq!(outbox.enqueue(&mut other, &message).await.unwrap(), Enqueued::New);
        assert_eq!(delay.schedule_in(&mut other, "a", at, b"").await.unwrap(), Scheduled::New);
    }
    assert!(!keys.first_time(&mut *late, &key("a")).await.unwrap());
    assert_eq!(outbox.enqueue(&mut late, &message).await.unwrap(), Enqueued::Already);
    assert_eq!(delay.schedule_in(&mut late, "a", at, b"").await.unwrap(), Scheduled::Already { at });
    // The transaction goes on.
    assert!(keys.first_time(&mut *late, &key("b")).await.unwrap());
    late.commit().await.unwrap();
}
