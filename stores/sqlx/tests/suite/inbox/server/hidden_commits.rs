//! Handlers that hide the end of their transaction, whose COMMIT still returns success.
use idempotent_core::{BorrowedTransaction, Outcome, Rejection, Store, step_in};

use super::backend::spoil;
use super::commits::run;
use super::steps;
use super::world::{Own, Tx, World};
use crate::inbox::{Failure, call, key, released};

#[tokio::test]
async fn a_handler_that_hides_a_failed_transaction_is_not_taken_for_done() {
    let world = World::new().await;
    for (leased, value) in [(false, false), (false, true), (true, false), (true, true)] {
        let inbox = if leased { &world.leased } else { &world.inbox };
        let name = format!("{leased}{value}");
        let hide = async |mut tx: Own| {
            world.effect(&mut tx, &name).await?;
            spoil(&world, &mut tx).await;
            Ok::<_, Failure>(())
        };
        let hiding = async {
            match value {
                true => inbox.run(call(&name), async |tx: Own| hide(tx).await.map(|()| 17)).await.map(drop),
                false => inbox.run(call(&name), hide).await,
            }
        };
        let (answer, outcome) = Outcome::capture(hiding).await;
        assert!(matches!(answer, Err(Failure::Rejected(Rejection::RolledBack { .. }))), "{name}: {answer:?}");
        released(outcome);
        assert_eq!(world.effects(&name).await, 0);
        assert!(world.store.peek(&key(&name)).await.unwrap().is_none(), "{name}: nothing says that it is done");
        assert_eq!(run(&world, leased, &name).await.1, Some(Outcome::Ran));
        assert_eq!(world.effects(&name).await, 1);
    }
}

#[tokio::test]
async fn a_step_that_hides_a_failed_transaction_is_not_noted() {
    let world = World::new().await;
    for hides in [true, false] {
        let (answer, outcome) = steps::run(&world, "a", async || {
            let charge = step_in("charge", async |mut tx: BorrowedTransaction<Tx>| {
                world.effect(&mut tx, "a").await?;
                if hides {
                    spoil(&world, &mut tx).await;
                }
                Ok::<_, Failure>(())
            });
            charge.await
        })
        .await;
        assert_eq!(answer.is_err(), hides, "{answer:?}");
        if hides {
            released(outcome);
        }
        assert_eq!(world.effects("a").await, i64::from(!hides));
    }
}
