//! Steps in transactions of their own whose connection, or whose key, is lost.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use idempotent_core::{BorrowedTransaction, Outcome, Rejection, StepError, StoreErrorKind, step_in};
use idempotent_harness::proxy::Fault;

use super::backend::end_connection;
use super::commits::proxied;
use super::steps::run;
use super::world::{Tx, World};
use crate::inbox::{Failure, key, released};

#[track_caller]
fn rolled_back(answer: Result<(), Failure>) {
    let Err(Failure::Rejected(Rejection::Journal(StepError::Store { cause, .. }))) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(cause.kind(), StoreErrorKind::RolledBack, "{cause}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_with_a_lost_commit_response_is_looked_up() {
    let (proxy, place) = proxied().await;
    let world = World::at(place, 8).await;
    let faults = [(Fault::CutAfterApply, true), (Fault::CutBeforeSend, false), (Fault::CutMidReply, true)];
    for number in 0..12 {
        let (fault, committed) = faults[number % faults.len()];
        let (name, began) = (number.to_string(), AtomicU32::new(0));
        let charge = async || {
            let charge = step_in("charge", async |mut tx: BorrowedTransaction<Tx>| {
                began.fetch_add(1, SeqCst);
                Ok::<_, Failure>(world.effect(&mut tx, &name).await?)
            });
            charge.await
        };
        proxy.fail_next_with("COMMIT", fault);
        let (answer, outcome) = run(&world, &name, charge).await;
        assert_eq!(proxy.disarm(), 0, "{name}: the fault struck: {outcome:?} {answer:?}");
        assert_eq!(world.effects(&name).await, i64::from(committed), "{fault:?}");
        if committed {
            assert_eq!(outcome, Some(Outcome::Ran), "{fault:?}: {answer:?}");
        } else {
            rolled_back(answer);
            released(outcome);
            run(&world, &name, charge).await.0.unwrap();
        }
        assert_eq!((world.effects(&name).await, began.load(SeqCst)), (1, 1 + u32::from(!committed)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_whose_connection_ends_before_its_note_leaves_nothing_and_runs_again() {
    let world = World::new().await;
    for ends in [true, false] {
        let (answer, outcome) = run(&world, "a", async || {
            let charge = step_in("charge", async |mut tx: BorrowedTransaction<Tx>| {
                world.effect(&mut tx, "a").await?;
                if ends {
                    end_connection(&mut tx, &world.other).await;
                }
                Ok::<_, Failure>(())
            });
            charge.await
        })
        .await;
        if ends {
            rolled_back(answer);
            released(outcome);
        } else {
            answer.unwrap();
        }
        assert_eq!(world.effects("a").await, i64::from(!ends));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_overtaken_commits_no_step() {
    let world = World::new().await;
    let (answer, outcome) = run(&world, "a", async || {
        let charge = step_in("charge", async |mut tx: BorrowedTransaction<Tx>| {
            world.effect(&mut tx, "a").await?;
            world.steal(&key("a")).await;
            Ok::<_, Failure>(())
        });
        charge.await
    })
    .await;
    assert!(matches!(answer, Err(Failure::Rejected(Rejection::LeaseLost))), "{answer:?}");
    assert_eq!((outcome, world.effects("a").await), (Some(Outcome::LeaseLost), 0));
}
