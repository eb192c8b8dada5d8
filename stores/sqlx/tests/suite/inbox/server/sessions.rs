//! Handlers that change the settings of their session, or take locks that outlive a transaction.
use idempotent_core::{Outcome, Store};

use super::backend::{CHANGES, STATE, connection_of, tenant};
use super::fixture::Place;
use super::world::{Own, Tx, World};
use crate::inbox::{Failure, call, key, released};

/// Returns the settings and locks of the connection.
async fn state(world: &World, tx: &mut Tx) -> String {
    sqlx::query_scalar(world.sql(STATE)).fetch_one(&mut **tx).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_setting_and_no_lock_of_a_handler_returns_to_the_pool_and_no_value_is_lost() {
    let world = World::at(Place::new(), 1).await;
    sqlx::raw_sql(world.sql(&tenant())).execute(&world.other).await.unwrap();
    let fresh = world.inbox.run(call("fresh"), async |mut tx: Own| Ok::<_, Failure>(state(&world, &mut tx).await));
    let fresh = fresh.await.unwrap();
    for (nth, (change, keeps)) in CHANGES.iter().enumerate() {
        for (leased, fails) in [(false, false), (false, true), (true, false), (true, true)] {
            let inbox = if leased { &world.leased } else { &world.inbox };
            let (name, of) = (format!("{nth}{leased}{fails}"), format!("{change}, leased {leased}, fails {fails}"));
            let mut used = None;
            let run = inbox.run(call(&name), async |mut tx: Own| {
                used = connection_of(&mut tx).await;
                world.effect(&mut tx, &name).await?;
                sqlx::raw_sql(world.sql(change)).execute(&mut **tx).await.unwrap();
                if fails { Err(Failure::Own("no stock")) } else { Ok(17) }
            });
            let (answer, outcome) = Outcome::capture(run).await;
            match fails {
                true => released(outcome),
                false => assert_eq!((answer.unwrap(), outcome), (17, Some(Outcome::Ran)), "{of}"),
            }
            let record = world.store.peek(&key(&name)).await.unwrap();
            assert_eq!(record.is_some(), !fails, "{of}");
            assert_eq!(world.effects(&name).await, i64::from(!fails), "{of}");
            let next = inbox.run(call(&format!("{name} next")), async |mut tx: Own| {
                assert_eq!(state(&world, &mut tx).await, fresh, "{of}");
                assert!(!keeps || connection_of(&mut tx).await == used, "{of}: the connection is used again");
                Ok::<_, Failure>(())
            });
            next.await.unwrap();
            let again = inbox.run(call(&name), async |_: Own| Ok::<_, Failure>(18)).await.unwrap();
            assert_eq!(again, if fails { 18 } else { 17 }, "{of}");
        }
    }
}
