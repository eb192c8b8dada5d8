//! Immediate answers for callers that meet an open transaction.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Claim, ClaimHandle, ClaimRequest, InFlight, Outcome, Rejection, Settled, Store};
use tokio::sync::oneshot;

use super::backend::begin;
use super::fixture::Db;
use super::world::{Own, Tx, World};
use crate::inbox::{Failure, call, key, request};
use crate::support::done;

#[tokio::test]
async fn a_second_claim_is_busy_at_once_at_every_isolation_level_and_its_transaction_goes_on() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let world = World::new().await;
        let pool = sqlx::Pool::<Db>::connect(&world.place.url).await.unwrap();
        let begin = || pool.begin_with(sqlx::AssertSqlSafe(begin(level)));
        let mut first = begin().await.unwrap();
        let held = claimed(&world, &mut first, "a").await;

        // A claim that waited here would wait forever.
        let mut second = begin().await.unwrap();
        let claim = world.store.claim_in(&mut second, &request("a")).await.unwrap();
        assert_eq!(claim, Claim::InFlight(InFlight::Busy), "{level}");
        world.effect(&mut second, "b").await.unwrap();
        second.commit().await.unwrap();
        assert_eq!(world.effects("b").await, 1);
        // By a lease, too.
        assert_eq!(world.store.claim(&request("a")).await.unwrap(), Claim::InFlight(InFlight::Busy));
        assert_eq!(world.store.complete_in(&mut first, &held, &done(b"1")).await.unwrap(), Settled::Done);
        first.commit().await.unwrap();
        assert!(matches!(world.store.claim(&request("a")).await.unwrap(), Claim::Consumed(_)));
    }
}

async fn claimed(world: &World, tx: &mut Tx, name: &str) -> ClaimHandle {
    let request = request(name);
    let claim = world.store.claim_in(tx, &request).await.unwrap();
    let Claim::Acquired(grant) = claim else { panic!("{claim:?}") };
    ClaimHandle { key: key(name), owner: request.owner, fencing: Some(grant.fencing), terms: None }
}

#[tokio::test]
async fn a_savepoint_that_is_rolled_back_lets_go_of_the_key() {
    let world = World::new().await;
    let pool = sqlx::Pool::<Db>::connect(&world.place.url).await.unwrap();
    let mut outer = pool.begin().await.unwrap();
    let mut inner = sqlx::Acquire::begin(&mut *outer).await.unwrap();
    let claim = world.store.claim_in(&mut inner, &request("a")).await.unwrap();
    assert!(matches!(claim, Claim::Acquired(_)));
    inner.rollback().await.unwrap();
    assert!(matches!(world.store.claim(&request("a")).await.unwrap(), Claim::Acquired(_)));
    outer.commit().await.unwrap();
}

#[tokio::test]
async fn a_duplicate_of_a_leased_run_learns_at_once_that_it_is_in_flight() {
    let world = World::new().await;
    let run = world.leased.run(call("a"), async |mut tx: Own| {
        world.effect(&mut tx, "a").await?;
        let claim = world.store.claim(&request("a")).await.unwrap();
        assert!(matches!(claim, Claim::InFlight(InFlight::Leased { .. })), "{claim:?}");
        let (_, outcome) = Outcome::capture(world.executor.scope(async { copy(&world).await })).await;
        assert!(matches!(outcome, Some(Outcome::InFlight { .. } | Outcome::Nested)), "{outcome:?}");
        Ok::<_, Failure>(())
    });
    run.await.unwrap();
    assert_eq!(world.effects("a").await, 1);
}

async fn copy(world: &World) {
    let run = world.leased.run(call("a"), async |_: Own| Ok::<_, Failure>(()));
    assert!(matches!(run.await, Err(Failure::Rejected(Rejection::InFlight { .. } | Rejection::Nested { .. }))));
}

#[tokio::test]
async fn a_key_that_is_being_completed_is_busy_for_a_takeover() {
    let world = World::new().await;
    let short = ClaimRequest { lease: Duration::from_millis(1), ..request("a") };
    let Claim::Acquired(grant) = world.store.claim(&short).await.unwrap() else { panic!("it is new") };
    let held = ClaimHandle { key: key("a"), owner: short.owner, fencing: Some(grant.fencing), terms: None };
    let pool = sqlx::Pool::<Db>::connect(&world.place.url).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(world.store.complete_in(&mut tx, &held, &done(b"1")).await.unwrap(), Settled::Done);
    tokio::time::sleep(Duration::from_millis(5)).await;
    // The lease has expired, and the claim does not wait for the row.
    assert_eq!(world.store.claim(&request("a")).await.unwrap(), Claim::InFlight(InFlight::Busy));
    tx.commit().await.unwrap();
    assert!(matches!(world.store.claim(&request("a")).await.unwrap(), Claim::Consumed(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leased_run_whose_lease_was_taken_over_is_rolled_back() {
    let world = Arc::new(World::new().await);
    let (begun, begins) = oneshot::channel();
    let (go_on, goes_on) = oneshot::channel::<()>();
    let slow = world.clone();
    let run = tokio::spawn(async move {
        let run = slow.leased.run(call("a"), async |mut tx: Own| {
            begun.send(()).unwrap();
            goes_on.await.unwrap();
            Ok::<_, Failure>(slow.effect(&mut tx, "a").await?)
        });
        Outcome::capture(run).await
    });
    begins.await.unwrap();
    // An operator has released the key, and another worker has claimed it.
    world.steal(&key("a")).await;
    go_on.send(()).unwrap();
    let (answer, outcome) = run.await.unwrap();
    assert!(matches!(answer, Err(Failure::Rejected(Rejection::LeaseLost))), "{answer:?}");
    assert_eq!((outcome, world.effects("a").await), (Some(Outcome::LeaseLost), 0));
}
