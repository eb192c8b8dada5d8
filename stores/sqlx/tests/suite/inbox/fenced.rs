//! A table that rejects the writes of earlier runs by their fencing token.
use std::time::Duration;

use idempotent_core::{Claim, ClaimHandle, ClaimRequest, FencingToken, Lease, Outcome, ReleaseKind, Settled, Store};

use super::steps::run;
use super::world::World;
use crate::inbox::{key, request};
use crate::support::release;

#[derive(Clone, Copy, Debug)]
enum Ending {
    Expiry,
    Vacate,
    Delete,
}

/// Returns the number of changed rows. The statement is that of the documentation.
async fn write(world: &World, balance: u64, FencingToken(fencing): FencingToken) -> u64 {
    let update = format!(
        "UPDATE effects_account SET balance = {balance}, fencing = {fencing} WHERE id = 1 AND fencing <= {fencing}"
    );
    let mut tx = world.begin().await;
    let changed = sqlx::raw_sql(world.sql(&update)).execute(&mut *tx).await.unwrap().rows_affected();
    tx.commit().await.unwrap();
    changed
}

async fn balance(world: &World) -> i64 {
    let mut tx = world.begin().await;
    let row = sqlx::query_scalar(world.sql("SELECT balance FROM effects_account WHERE id = 1"));
    let balance = row.fetch_one(&mut *tx).await.unwrap();
    tx.rollback().await.unwrap();
    balance
}

/// Claims the key for a worker that stops before its write, and ends the worker's ownership.
async fn stopped_worker(world: &World, name: &str, ending: Ending) -> FencingToken {
    let lease = if matches!(ending, Ending::Expiry) { Duration::from_millis(1) } else { Duration::from_secs(60) };
    let claim = ClaimRequest { lease, ..request(name) };
    let Claim::Acquired(grant) = world.store.claim(&claim).await.unwrap() else { panic!("the key is free") };
    let held = ClaimHandle { key: key(name), owner: claim.owner, fencing: Some(grant.fencing), terms: None };
    let kind = match ending {
        Ending::Expiry => return grant.fencing,
        Ending::Vacate => ReleaseKind::Vacate,
        Ending::Delete => ReleaseKind::Delete,
    };
    assert_eq!(world.store.release(&held, &release(kind)).await.unwrap(), Settled::Done);
    grant.fencing
}

/// Runs the successor, which writes with its own token and may do so twice.
async fn successor(world: &World, name: &str, amount: u64) -> FencingToken {
    loop {
        let written = run(world, name, async || {
            let fencing = Lease::current().unwrap().fencing();
            assert_eq!((write(world, amount, fencing).await, write(world, amount, fencing).await), (1, 1));
            Ok(fencing.0)
        });
        match written.await {
            (Ok(fencing), Some(Outcome::Ran)) => return FencingToken(fencing),
            // The lease of a millisecond has not ended yet.
            (Err(_), Some(Outcome::InFlight { .. })) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_guarded_write_with_the_token_of_an_earlier_run_changes_no_row() {
    let world = World::new().await;
    let table = "CREATE TABLE effects_account(id int NOT NULL, balance bigint NOT NULL, fencing bigint NOT NULL)";
    let mut tx = world.begin().await;
    for statement in [table, "INSERT INTO effects_account(id, balance, fencing) VALUES (1, 0, 0)"] {
        sqlx::raw_sql(world.sql(statement)).execute(&mut *tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    for (ending, amount) in [(Ending::Expiry, 7), (Ending::Vacate, 8), (Ending::Delete, 9)] {
        let name = format!("{ending:?}");
        let earlier = stopped_worker(&world, &name, ending).await;
        let later = successor(&world, &name, amount).await;
        assert!(earlier < later, "{name}");
        assert_eq!(write(&world, 5, earlier).await, 0, "{name}: the write of the stopped worker arrives late");
        assert_eq!(balance(&world).await, i64::try_from(amount).unwrap(), "{name}");
    }
}
