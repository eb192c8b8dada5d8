//! Steps whose effect is in the store's database.
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use idempotent_core::{
    BorrowedTransaction, ClaimHandle, DefaultReply, Handler, Json, Outcome, Rejection, ReleaseKind, Settled, State,
    StepError, Store, step, step_in,
};
use tokio::sync::Notify;

use super::world::{Own, Tx, World};
use crate::inbox::{Failure, call, key, released};
use crate::support::release;

/// A run without a transaction of its own.
pub(super) async fn run<T>(
    world: &World,
    name: &str,
    handler: impl AsyncFnOnce() -> Result<T, Failure>,
) -> (Result<T, Failure>, Option<Outcome>)
where
    Json: idempotent_core::Codec<T>,
{
    Outcome::capture(world.executor.run(call(name), Handler::<DefaultReply, Json, _, _>::new(|| handler()))).await
}

/// Gives back what a dead owner holds, as the end of its lease would.
pub(super) async fn free(world: &World, name: &str) {
    let record = world.store.peek(&key(name)).await.unwrap().unwrap();
    let State::Consuming { owner, .. } = record.state else { panic!("{record:?}") };
    let held = ClaimHandle { key: key(name), owner, fencing: None, terms: None };
    assert_eq!(world.store.release(&held, &release(ReleaseKind::Vacate)).await.unwrap(), Settled::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_a_run_that_dies_anywhere_has_its_effect_once() {
    let world = World::new().await;
    for (point, left, runs) in [("before its effect", 0, 2), ("before its note", 0, 2), ("behind its commit", 1, 1)] {
        let (died, began) = (Notify::new(), AtomicU32::new(0));
        let attempt = async |mortal: bool| {
            let dies = async |here: &str| {
                if mortal && here == point {
                    died.notify_one();
                    std::future::pending::<()>().await;
                }
            };
            let charge = step_in("charge", async |mut tx: BorrowedTransaction<Tx>| {
                began.fetch_add(1, SeqCst);
                dies("before its effect").await;
                world.effect(&mut tx, point).await?;
                dies("before its note").await;
                Ok::<_, Failure>(7)
            });
            let charged = charge.await?;
            dies("behind its commit").await;
            Ok(charged)
        };
        tokio::select! {
            ended = run(&world, point, async || attempt(true).await) => panic!("{ended:?}"),
            () = died.notified() => {}
        }
        free(&world, point).await;
        assert_eq!(world.effects(point).await, left, "{point}");
        let (answer, outcome) = run(&world, point, async || attempt(false).await).await;
        assert_eq!((answer.unwrap(), outcome), (7, Some(Outcome::Ran)), "{point}");
        assert_eq!((world.effects(point).await, began.load(SeqCst)), (1, runs), "{point}");
    }
}

const POINT: &str = "IDEMPOTENT_TEST_POINT";
const ADDRESS: &str = "IDEMPOTENT_TEST_ADDRESS";

/// Returns the point at which this process dies and the address of its database.
pub(super) fn point_and_address() -> Option<(String, String)> {
    Some((std::env::var(POINT).ok()?, std::env::var(ADDRESS).ok()?))
}

/// Runs the test `process` of a module in another process, which is killed at this point.
pub(super) fn killed_at(module: &str, point: &str, address: &str) {
    let test = format!("{}::process", module.split_once("::").unwrap().1);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &test]).env(POINT, point).env(ADDRESS, address);
    let died = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert_eq!(died.code(), None, "{point}: killed by a signal, and by nothing else");
}

pub(super) fn dies(wanted: &str, here: &str) {
    if wanted == here {
        // No destructor runs, nothing is sent any more: SIGKILL on itself.
        let _ = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
        std::process::abort();
    }
}

async fn two_steps(world: &World, name: &str, point: &str) -> Result<(), Failure> {
    let lock = step_in("lock", async |mut tx: BorrowedTransaction<Tx>| {
        dies(point, "before the first effect");
        let effect = world.effect(&mut tx, &format!("lock {name}")).await;
        dies(point, "behind the first effect");
        Ok::<_, Failure>(effect?)
    });
    lock.await?;
    dies(point, "behind the first commit");
    let charge = step_in("charge", async |mut tx: BorrowedTransaction<Tx>| {
        let effect = world.effect(&mut tx, &format!("charge {name}")).await;
        dies(point, "behind the second effect");
        Ok::<_, Failure>(effect?)
    });
    charge.await?;
    dies(point, "behind the second commit");
    Ok(())
}

/// Runs the process that is killed. Does nothing without a point.
#[tokio::test]
async fn process() {
    let Some((point, address)) = point_and_address() else { return };
    let world = World::again(&address).await;
    run(&world, &point, async || two_steps(&world, &point, &point).await).await.0.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_of_a_process_that_is_killed_anywhere_have_their_effects_once() {
    let world = World::new().await;
    let points = [
        ("before the first effect", 0, 0),
        ("behind the first effect", 0, 0),
        ("behind the first commit", 1, 0),
        ("behind the second effect", 1, 0),
        ("behind the second commit", 1, 1),
    ];
    for (point, locked, charged) in points {
        killed_at(module_path!(), point, &world.address());
        let effects =
            async || (world.effects(&format!("lock {point}")).await, world.effects(&format!("charge {point}")).await);
        assert_eq!(effects().await, (locked, charged), "{point}");
        free(&world, point).await;
        let (answer, outcome) = run(&world, point, async || two_steps(&world, point, "").await).await;
        answer.unwrap();
        assert_eq!((outcome, effects().await), (Some(Outcome::Ran), (1, 1)), "{point}");
    }
}

#[tokio::test]
async fn a_step_that_fails_leaves_nothing_and_runs_again_and_the_one_before_it_does_not() {
    let world = World::new().await;
    for fails in [true, false] {
        let (answer, outcome) = run(&world, "a", async || {
            let first = step_in("first", async |mut tx: BorrowedTransaction<Tx>| {
                Ok::<_, Failure>(world.effect(&mut tx, "1").await?)
            });
            first.await?;
            let second = step_in("second", async |mut tx: BorrowedTransaction<Tx>| {
                world.effect(&mut tx, "2").await?;
                if fails { Err(Failure::Own("no stock")) } else { Ok(()) }
            });
            second.await
        })
        .await;
        assert_eq!(answer.is_err(), fails, "{answer:?}");
        if fails {
            released(outcome);
        }
        assert_eq!((world.effects("1").await, world.effects("2").await), (1, i64::from(!fails)));
    }
}

#[tokio::test]
async fn a_step_in_the_transaction_of_its_run_commits_and_rolls_back_with_it() {
    let world = World::new().await;
    for (inbox, name) in [(&world.inbox, "a"), (&world.leased, "b")] {
        for fails in [true, false] {
            let run = inbox.run(call(name), async |mut tx: Own| {
                let effect = step("book", async || Ok::<_, Failure>(world.effect(&mut tx, name).await?));
                effect.in_transaction().at_most_once().await?;
                if fails { Err(Failure::Own("no stock")) } else { Ok(()) }
            });
            let (answer, outcome) = Outcome::capture(run).await;
            assert_eq!(answer.is_err(), fails, "{answer:?}");
            if fails {
                released(outcome);
                // Nothing of it is kept, so nothing is left to remember steps by.
                assert!(world.store.peek(&key(name)).await.unwrap().is_none());
            }
            assert_eq!(world.effects(name).await, i64::from(!fails));
        }
    }
}

#[tokio::test]
async fn steps_that_have_no_such_transaction_are_refused_before_they_run() {
    let world = World::new().await;
    let refused = |answer: Result<(), Failure>| match answer {
        Err(Failure::Rejected(Rejection::Journal(error))) => error,
        other => panic!("{other:?}"),
    };
    let (answer, _) = run(&world, "a", async || {
        step("book", async || -> Result<(), Failure> { panic!("it has none") }).in_transaction().await
    })
    .await;
    let error = refused(answer);
    assert!(matches!(&error, StepError::NoTransaction { .. }), "{error}");
    assert!(error.to_string().contains("use `step_in`"), "{error}");
    for inbox in [&world.inbox, &world.leased] {
        let answer = inbox.run(call("b"), async |_: Own| {
            step_in("book", async |_: BorrowedTransaction<Tx>| -> Result<(), Failure> { panic!("it is in another's") })
                .await
        });
        let error = refused(answer.await);
        assert!(matches!(&error, StepError::InTransaction { .. }), "{error}");
    }
}
