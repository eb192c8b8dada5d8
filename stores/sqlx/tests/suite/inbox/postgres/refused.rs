//! Commits that the database rejects or rolls back.
use std::time::Duration;

use idempotent_core::{Outcome, Rejection, Store};
use idempotent_harness::proxy::Fault;
use sqlx::Row;

use super::commits::{proxied, run};
use super::fixture::server;
use super::world::{Own, World};
use crate::inbox::{Failure, call, key, released};

#[tokio::test]
async fn a_commit_that_is_refused_is_a_failure_of_the_run_and_worth_a_retry() {
    for leased in [false, true] {
        let world = World::new().await;
        let mut tx = world.begin().await;
        world.effect(&mut tx, "a").await.unwrap();
        tx.commit().await.unwrap();
        // Its row is a second one, which is looked for at the commit only.
        let (answer, outcome) = run(&world, leased, "a").await;
        let Err(Failure::Rejected(rejection @ Rejection::RolledBack { .. })) = answer else { panic!("{answer:?}") };
        assert!(rejection.to_string().contains("23505"), "{rejection}");
        released(outcome);
        assert_eq!(world.effects("a").await, 1);
        assert!(world.store.peek(&key("a")).await.unwrap().is_none(), "nothing is left of it");
        sqlx::query(sqlx::AssertSqlSafe(format!("DELETE FROM effects_{}", world.place.table)))
            .execute(&world.other)
            .await
            .unwrap();
        assert_eq!(run(&world, leased, "a").await.1, Some(Outcome::Ran));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_dropped_while_it_begins_leaves_no_connection_in_a_transaction() {
    let (proxy, mut place) = proxied().await;
    place.url = format!("{}?application_name={}", place.url, place.table);
    let world = World::at(place, 2).await;
    for (met, leased) in [(1, false), (2, true)] {
        let inbox = if leased { &world.leased } else { &world.inbox };
        proxy.fail_next_with("BEGIN", Fault::Delay(Duration::from_millis(200)));
        let name = leased.to_string();
        let mut dropped = Box::pin(inbox.run(call(&name), async |_: Own| Ok::<_, Failure>(())));
        tokio::select! {
            _ = &mut dropped => panic!("it has begun"),
            () = proxy.until_met(met) => drop(dropped),
        }
        while world.pool.num_idle() != world.pool.size() as usize {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let open = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}' AND state LIKE 'idle in transaction%'",
            world.place.table
        );
        assert_eq!(server().psql("postgres", &open), "0", "leased: {leased}");
    }
}

/// The server ends the session before the COMMIT arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_after_a_timeout_of_the_server_is_looked_up_and_the_connection_is_not_used_again() {
    let world = World::new().await;
    for leased in [false, true] {
        let inbox = if leased { &world.leased } else { &world.inbox };
        let name = leased.to_string();
        let ended = inbox.run(call(&name), async |mut tx: Own| {
            world.effect(&mut tx, &name).await?;
            let end = "SET LOCAL idle_in_transaction_session_timeout = 1; SELECT pg_backend_pid()";
            let pid: i32 = sqlx::raw_sql(end).fetch_one(&mut **tx).await?.get(0);
            let left = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
            while server().psql("postgres", &left) != "0" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok::<_, Failure>(())
        });
        let (answer, outcome) = Outcome::capture(ended).await;
        let Err(Failure::Rejected(rejection @ Rejection::RolledBack { .. })) = answer else { panic!("{answer:?}") };
        assert!(rejection.to_string().contains("rolled back"), "{rejection}");
        released(outcome);
        assert_eq!(world.effects(&name).await, 0);
        assert_eq!(run(&world, leased, &name).await.1, Some(Outcome::Ran));
    }
}
