//! The version guard on PostgreSQL, where transactions run side by side.
use std::collections::BTreeSet;

use idempotent_sqlx::{VersionCheck, VersionGuard};
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use crate::postgres::fixture::Place;

/// A table of its own.
async fn guard(place: &Place) -> VersionGuard {
    let guard = VersionGuard::new(&format!("{}_versions", place.table)).unwrap();
    guard.create(&mut *place.other().acquire().await.unwrap()).await.unwrap();
    guard
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_transactions_accept_each_version_once_and_in_order() {
    let place = Place::new();
    let guard = guard(&place).await;
    let workers = (0..4).map(|_| {
        let (guard, url) = (guard.clone(), place.url.clone());
        tokio::spawn(async move {
            let mut connection = PgConnection::connect(&url).await.unwrap();
            let mut accepted = Vec::new();
            let mut version = 1;
            while version <= 20 {
                let mut tx = connection.begin().await.unwrap();
                let answer = guard.next(&mut *tx, "customer/17", "balance", version).await.unwrap();
                tx.commit().await.unwrap();
                match answer {
                    VersionCheck::Accepted => accepted.push(version),
                    VersionCheck::Same => version += 1,
                    VersionCheck::Older { current } => version = current,
                    VersionCheck::Ahead { .. } => panic!("it was {current}", current = version - 1),
                }
            }
            accepted
        })
    });
    let mut all = Vec::new();
    for worker in workers.collect::<Vec<_>>() {
        all.extend(worker.await.unwrap());
    }
    assert_eq!(all.len(), 20, "each once");
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), (1..=20).collect());
}

/// A second transaction waits for the first one, and uses its result.
#[tokio::test]
async fn an_update_under_way_is_waited_for_and_its_end_decides() {
    let place = Place::new();
    let guard = guard(&place).await;
    for (ends_well, later) in [(true, VersionCheck::Older { current: 5 }), (false, VersionCheck::Accepted)] {
        let mut first = PgConnection::connect(&place.url).await.unwrap();
        let mut tx = first.begin().await.unwrap();
        assert_eq!(guard.newer(&mut *tx, "customer/17", "address", 5).await.unwrap(), VersionCheck::Accepted);
        let mut second = PgConnection::connect(&place.url).await.unwrap();
        let id: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut second).await.unwrap();
        let waiting = tokio::spawn({
            let guard = guard.clone();
            async move { guard.newer(&mut second, "customer/17", "address", 4).await.unwrap() }
        });
        let other = place.other();
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'";
        while sqlx::query_scalar::<_, i64>(waits).bind(id).fetch_one(&other).await.unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        if ends_well {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(waiting.await.unwrap(), later);
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("DELETE FROM {}_versions", place.table)))
            .execute(&other)
            .await
            .unwrap();
    }
}
