//! Handlers that end their transaction by a statement of their own: the table of statements against outcomes.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{
    BorrowedTransaction, Claim, ClaimHandle, DeliveryContext, Event, Executor, Observer, Outcome, Policy, Rejection,
    ReleaseKind, RunInfo, Settled, StateKind, StepError, Store, StoreErrorKind, step_in,
};
use idempotent_sqlx::Inbox;

use super::backend::{ENDING, LASTING, connection_of};
use super::steps;
use super::world::{Database, Own, Tx, World};
use crate::inbox::{Failure, call, key, released, request};
use crate::support::{done, release};

/// The reported failures of the store: their steps and kinds.
#[derive(Clone, Debug, Default)]
struct StoreFailures(Arc<Mutex<Vec<(&'static str, StoreErrorKind)>>>);

impl Observer for StoreFailures {
    fn on(&self, _: &RunInfo<'_>, event: &Event<'_>) {
        if let Event::StoreFailed { step, error } = event {
            self.0.lock().unwrap().push((step, error.kind()));
        }
    }
}

/// Returns the statements, and whether they end the transaction in which they are executed.
fn statements() -> impl Iterator<Item = (&'static str, bool)> {
    let ending = ENDING.iter().map(|text| (*text, true));
    ending.chain(LASTING.iter().map(|text| (*text, false)))
}

async fn world() -> World {
    let world = World::new().await;
    let mut tx = world.begin().await;
    sqlx::raw_sql(world.sql("CREATE TABLE effects_staging (id int)")).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    world
}

async fn send(world: &World, tx: &mut Tx, statement: &str) {
    let sent = sqlx::raw_sql(world.sql(statement)).execute(&mut **tx).await;
    sent.unwrap_or_else(|error| panic!("{statement}: {error}"));
}

#[track_caller]
fn ended(rejection: &Rejection, statement: &str) {
    let Rejection::RolledBack { cause: Some(cause), .. } = rejection else { panic!("{statement}: {rejection:?}") };
    assert_eq!(cause.kind(), StoreErrorKind::TransactionEnded, "{statement}: {cause}");
    assert!(cause.to_string().contains("TRUNCATE"), "{cause}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_ends_its_transaction_is_never_taken_for_done() {
    let (world, failures) = (world().await, StoreFailures::default());
    let executor = Executor::builder(world.store.clone()).observer(failures.clone()).build().unwrap();
    let inboxes = [Inbox::<Database>::new(&executor), Inbox::leased(&executor)];
    for (nth, (statement, ends)) in statements().enumerate() {
        for (leased, fails) in [(false, true), (false, false), (true, true), (true, false)] {
            let inbox = &inboxes[usize::from(leased)];
            let (name, of) = (format!("{nth}{leased}{fails}"), format!("{statement}, leased {leased}, fails {fails}"));
            let mut used = None;
            let run = inbox.run(call(&name), async |mut tx: Own| {
                used = Some(connection_of(&mut tx).await);
                world.effect(&mut tx, &name).await?;
                send(&world, &mut tx, statement).await;
                if fails { Err(Failure::Own("no stock")) } else { Ok(17) }
            });
            let (answer, outcome) = Outcome::capture(run).await;
            match (answer, fails) {
                (Err(Failure::Own("no stock")), true) => released(outcome),
                (Err(Failure::Rejected(rejection)), false) if ends => {
                    ended(&rejection, &of);
                    released(outcome);
                }
                (Ok(17), false) if !ends => assert_eq!(outcome, Some(Outcome::Ran), "{of}"),
                (answer, _) => panic!("{of}: {answer:?}, {outcome:?}"),
            }
            let reported = std::mem::take(&mut *failures.0.lock().unwrap());
            let step = if fails { "release" } else { "complete" };
            let expected = ends.then_some((step, StoreErrorKind::TransactionEnded));
            assert_eq!(reported, Vec::from_iter(expected), "{of}");
            let record = world.store.peek(&key(&name)).await.unwrap();
            let consumed = record.is_some_and(|record| record.state.kind() == StateKind::Consumed);
            assert_eq!(consumed, !ends && !fails, "{of}");
            if !ends {
                assert_eq!(world.effects(&name).await, i64::from(!fails), "{of}");
            }
            // The next delivery runs, on a connection that no handler has left in an unknown state.
            let again = inbox.run(call(&name), async |mut tx: Own| {
                let own = connection_of(&mut tx).await;
                assert!(!ends || own.is_none() || used != Some(own), "{of}");
                world.effect(&mut tx, &format!("{name} again")).await?;
                Ok::<_, Failure>(18)
            });
            let expected = if consumed { Outcome::Replayed } else { Outcome::Ran };
            assert_eq!(Outcome::capture(again).await.1, Some(expected), "{of}");
            assert_eq!(world.effects(&format!("{name} again")).await, i64::from(!consumed), "{of}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_ends_its_transaction_each_time_is_dead_after_the_attempts_of_its_policy() {
    let world = world().await;
    let policy = Policy::new().max_retries(1).retry_delay(Duration::from_millis(1)).jitter(0);
    for (nth, statement) in ENDING.iter().enumerate() {
        for (leased, fails) in [(false, true), (false, false), (true, true), (true, false)] {
            let inbox = if leased { &world.leased } else { &world.inbox };
            let (name, of) = (format!("{nth}{leased}{fails}"), format!("{statement}, leased {leased}, fails {fails}"));
            let mut runs = 0;
            loop {
                // A rollback removes the record, so the consumer counts the runs.
                let delivery = DeliveryContext::new().attempt(runs + 1);
                let run = inbox.run(call(&name).policy(policy), async |mut tx: Own| {
                    runs += 1;
                    world.effect(&mut tx, &format!("{name} {runs}")).await?;
                    send(&world, &mut tx, statement).await;
                    if fails { Err(Failure::Own("no stock")) } else { Ok(17) }
                });
                let (answer, outcome) = Outcome::capture(world.executor.scope_of_delivery(delivery, run)).await;
                match (runs, &outcome) {
                    (1, Some(Outcome::Released { .. } | Outcome::Delayed { .. })) => {}
                    (2, Some(Outcome::Dead { .. })) => break,
                    _ => panic!("{of}: {runs} runs, {answer:?}, {outcome:?}"),
                }
            }
            let record = world.store.peek(&key(&name)).await.unwrap().unwrap();
            assert_eq!(record.state.kind(), StateKind::Dead, "{of}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_ends_its_transaction_is_not_recorded() {
    let world = world().await;
    for (nth, (statement, ends)) in statements().enumerate() {
        for fails in [true, false] {
            let (name, of) = (format!("{nth}{fails}"), format!("{statement}, fails {fails}"));
            let attempt = async |first: bool| {
                let charge = step_in("charge", async |mut tx: BorrowedTransaction<Tx>| {
                    if first {
                        world.effect(&mut tx, &name).await?;
                        send(&world, &mut tx, statement).await;
                    }
                    if first && fails { Err(Failure::Own("no stock")) } else { Ok(u32::from(first)) }
                });
                charge.await
            };
            let (answer, outcome) = steps::run(&world, &name, async || attempt(true).await).await;
            match answer {
                Err(Failure::Rejected(Rejection::Journal(StepError::Store { cause, .. }))) if ends => {
                    assert_eq!(cause.kind(), StoreErrorKind::TransactionEnded, "{of}: {cause}");
                    released(outcome);
                }
                Err(Failure::Own("no stock")) if !ends && fails => released(outcome),
                Ok(1) if !ends && !fails => assert_eq!(outcome, Some(Outcome::Ran), "{of}"),
                answer => panic!("{of}: {answer:?}, {outcome:?}"),
            }
            let (answer, _) = steps::run(&world, &name, async || attempt(false).await).await;
            assert_eq!(answer.unwrap(), u32::from(!ends && !fails), "{of}");
        }
    }
}

#[tokio::test]
async fn a_claim_in_a_transaction_that_ended_is_not_completed_and_can_be_released() {
    let world = world().await;
    // The lock of a table would stay with the connection of the test.
    for (nth, (statement, ends)) in statements().enumerate().filter(|(_, (text, _))| !text.starts_with("LOCK")) {
        let (name, request) = (nth.to_string(), request(&nth.to_string()));
        let mut tx = world.begin().await;
        let claim = world.store.claim_in(&mut tx, &request).await.unwrap();
        let Claim::Acquired(grant) = claim else { panic!("{claim:?}") };
        let held = ClaimHandle { key: key(&name), owner: request.owner, fencing: Some(grant.fencing), terms: None };
        send(&world, &mut tx, statement).await;
        match world.store.complete_in(&mut tx, &held, &done(b"17")).await {
            Ok(Settled::Done) if !ends => tx.commit().await.unwrap(),
            // The transaction was rolled back.
            Ok(Settled::Lost { now: StateKind::Absent }) if ends => drop(tx),
            Err(error) if ends && error.kind() == StoreErrorKind::TransactionEnded => {
                drop(tx);
                let released = world.store.release(&held, &release(ReleaseKind::Delete)).await.unwrap();
                assert_eq!(released, Settled::Done, "{statement}");
            }
            settled => panic!("{statement}: {settled:?}"),
        }
        let again = world.store.claim(&crate::inbox::request(&name)).await.unwrap();
        assert_eq!(matches!(again, Claim::Consumed(_)), !ends, "{statement}: {again:?}");
        assert_eq!(matches!(again, Claim::Acquired(_)), ends, "{statement}: {again:?}");
    }
}
