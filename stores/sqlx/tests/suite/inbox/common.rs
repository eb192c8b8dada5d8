//! Tests that run on each database.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimHandle, ClaimMode, DefaultReply, Handler, Identity, Json, Outcome, OwnerToken, Policy, Rejection,
    Scene, Settled, StateKind, Store, StoreErrorKind,
};
use sqlx::AssertSqlSafe;
use tokio::sync::Barrier;

use super::world::{Own, Tx, World};
use crate::inbox::{Failure, call, key, released, request};

#[tokio::test]
async fn effect_and_record_are_committed_together_and_a_duplicate_gets_the_value() {
    let world = World::new().await;
    for inbox in [&world.inbox, &world.leased] {
        let name = format!("{inbox:?}").contains("Leased").to_string();
        for expected in [Outcome::Ran, Outcome::Replayed] {
            let run = inbox.run(call(&name), async |mut tx: Own| {
                world.effect(&mut tx, &name).await?;
                Ok::<_, Failure>(17)
            });
            let (answer, outcome) = Outcome::capture(run).await;
            assert_eq!((answer.unwrap(), outcome), (17, Some(expected)));
        }
        assert_eq!(world.effects(&name).await, 1);
    }
}

#[tokio::test]
async fn a_value_that_needs_no_keeping_is_replayed_too() {
    let world = World::new().await;
    for expected in [Outcome::Ran, Outcome::Replayed] {
        let run = world.inbox.run(call("a"), async |mut tx: Own| Ok::<_, Failure>(world.effect(&mut tx, "a").await?));
        let (answer, outcome) = Outcome::capture(run).await;
        answer.unwrap();
        assert_eq!(outcome, Some(expected));
    }
    assert_eq!(world.effects("a").await, 1);
}

/// The last write of such a run changes no row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_removes_or_changes_its_own_record_is_rolled_back_and_told_the_cause() {
    let world = World::new().await;
    let statements = ["DELETE FROM records", "UPDATE records SET owner = id"];
    // A completion with a short value is sent together with the commit.
    let values = ["x".to_owned(), "x".repeat(20_000)];
    for (nth, (change, value)) in
        statements.iter().flat_map(|change| values.iter().map(move |it| (change, it))).enumerate()
    {
        let change = change.replace("records", world.records());
        for (leased, inbox) in [(false, &world.inbox), (true, &world.leased)] {
            let (name, of) = (format!("{nth}{leased}"), format!("{change}, {} bytes, leased {leased}", value.len()));
            for changes in [true, false] {
                let run = inbox.run(call(&name), async |mut tx: Own| {
                    world.effect(&mut tx, &name).await?;
                    if changes {
                        let changed = sqlx::query(AssertSqlSafe(change.clone())).execute(&mut **tx).await?;
                        assert!(changed.rows_affected() > 0, "{of}");
                    }
                    Ok::<_, Failure>(value.clone())
                });
                match (changes, Outcome::capture(run).await) {
                    (true, (Err(Failure::Rejected(Rejection::RolledBack { cause: Some(cause), .. })), outcome)) => {
                        assert_eq!(cause.kind(), StoreErrorKind::RolledBack, "{of}: {cause}");
                        assert!(
                            cause.to_string().contains("the handler wrote to the table of records"),
                            "{of}: {cause}"
                        );
                        released(outcome);
                        assert!(world.store.peek(&key(&name)).await.unwrap().is_none(), "{of}");
                    }
                    (false, (Ok(answer), Some(Outcome::Ran))) => assert_eq!(answer, *value, "{of}"),
                    (_, other) => panic!("{of}: {other:?}"),
                }
                assert_eq!(world.effects(&name).await, i64::from(!changes), "{of}");
            }
        }
    }
}

#[tokio::test]
async fn a_handler_that_fails_leaves_neither_effect_nor_record_and_may_run_again() {
    let world = World::new().await;
    for (inbox, name) in [(&world.inbox, "a"), (&world.leased, "b")] {
        let run = inbox.run(call(name), async |mut tx: Own| {
            world.effect(&mut tx, name).await?;
            Err::<(), _>(Failure::Own("no stock"))
        });
        let (answer, outcome) = Outcome::capture(run).await;
        assert!(matches!(answer, Err(Failure::Own("no stock"))));
        released(outcome);
        assert_eq!(world.effects(name).await, 0);
        assert!(world.store.peek(&key(name)).await.unwrap().is_none());
        inbox.run(call(name), async |mut tx: Own| Ok::<_, Failure>(world.effect(&mut tx, name).await?)).await.unwrap();
        assert_eq!(world.effects(name).await, 1);
    }
}

#[tokio::test]
async fn a_failure_for_good_is_remembered_and_its_effect_is_not() {
    let world = World::new().await;
    for (mode, name) in [(ClaimMode::Inside, "a"), (ClaimMode::Leased, "b")] {
        for again in [false, true] {
            let (call, lender) = call(name).within::<Tx>(&world.executor, mode);
            let run = || async {
                world.effect(&mut lender.lend(), name).await?;
                Err::<(), _>(Failure::Own("no such account"))
            };
            let handler = Handler::<DefaultReply, Json, _, _>::new(run).permanent(|_| true);
            let (answer, outcome) = Outcome::capture(world.executor.run(call, handler)).await;
            assert_eq!(outcome, Some(Outcome::Failed));
            assert_eq!(matches!(answer, Err(Failure::Rejected(Rejection::Failed { .. }))), again);
        }
        assert_eq!(world.effects(name).await, 0);
    }
}

#[tokio::test]
async fn a_value_that_means_not_done_rolls_back() {
    let world = World::new().await;
    for declined in [true, false] {
        let (call, lender) = call("a").within::<Tx>(&world.executor, ClaimMode::Inside);
        let run = || async {
            world.effect(&mut lender.lend(), "a").await?;
            Ok::<_, Failure>(declined)
        };
        let handler = Handler::<DefaultReply, Json, _, _>::new(run).failed_if(|declined| *declined);
        assert_eq!(world.executor.run(call, handler).await.unwrap(), declined);
        assert_eq!(world.effects("a").await, i64::from(!declined));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_rolls_back() {
    let world = Arc::new(World::new().await);
    let panicking = world.clone();
    let run = tokio::spawn(async move {
        let handler = async |mut tx: Own| {
            panicking.effect(&mut tx, "a").await?;
            std::panic::resume_unwind(Box::new("asked to"));
            #[allow(unreachable_code)]
            Ok::<(), Failure>(())
        };
        panicking.inbox.run(call("a"), handler).await
    });
    assert!(run.await.unwrap_err().is_panic());
    assert_eq!(world.effects("a").await, 0);
    world.inbox.run(call("a"), async |mut tx: Own| Ok::<_, Failure>(world.effect(&mut tx, "a").await?)).await.unwrap();
    assert_eq!(world.effects("a").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_dropped_anywhere_leaves_nothing_half_done_and_no_connection_in_a_transaction() {
    let world = World::new().await;
    for (inbox, names) in [(&world.inbox, 0..60), (&world.leased, 60..120)] {
        for polls in names {
            let name = polls.to_string();
            let mut run = Box::pin(inbox.run(call(&name), async |mut tx: Own| {
                world.effect(&mut tx, &name).await?;
                tokio::task::yield_now().await;
                Ok::<_, Failure>(polls)
            }));
            for _ in 0..polls % 60 {
                let step = std::future::poll_fn(|cx| std::task::Poll::Ready(run.as_mut().poll(cx).is_ready())).await;
                if step {
                    break;
                }
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
            drop(run);
        }
    }
    for polls in 0..120 {
        let name = polls.to_string();
        // What is under way ends, one way or the other.
        let record = loop {
            let settled = world.inbox.run(call(&name), async |_: Own| Err::<i32, _>(Failure::Own("looked")));
            match settled.await {
                Ok(_) => break true,
                Err(Failure::Own("looked")) => break false,
                // Its handler had begun: it is left to its lease.
                Err(Failure::Rejected(Rejection::InFlight { retry_after, .. })) if retry_after.as_secs() > 1 => {
                    break false;
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        assert_eq!(world.effects(&name).await, i64::from(record), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_several_concurrent_runs_of_a_key_has_its_effect() {
    const KEYS: usize = 20;
    const COPIES: usize = 8;
    let world = Arc::new(World::new().await);
    let (start, ran) = (Arc::new(Barrier::new(KEYS * COPIES)), Arc::new(AtomicU32::new(0)));
    let runs = (0..KEYS * COPIES).map(|number| {
        let (world, start, ran) = (world.clone(), start.clone(), ran.clone());
        tokio::spawn(async move {
            let name = format!("k{}", number % KEYS);
            let inbox = if number % KEYS < KEYS / 2 { &world.inbox } else { &world.leased };
            start.wait().await;
            loop {
                let run = inbox.run(call(&name), async |mut tx: Own| {
                    ran.fetch_add(1, SeqCst);
                    Ok::<_, Failure>(world.effect(&mut tx, &name).await?)
                });
                match run.await {
                    Ok(()) => return,
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await.unwrap();
    }
    for number in 0..KEYS {
        assert_eq!(world.effects(&format!("k{number}")).await, 1);
    }
    assert_eq!(ran.load(SeqCst) as usize, KEYS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_without_a_lease_outlasts_it() {
    let world = Arc::new(World::new().await);
    // Long enough to be granted on a machine that has other things to do.
    let short = Policy::new().lease(Duration::from_secs(2));
    let run = world.inbox.run(call("a").policy(short), async |mut tx: Own| {
        world.effect(&mut tx, "a").await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok::<_, Failure>(())
    });
    let (answer, outcome) = Outcome::capture(run).await;
    answer.unwrap();
    assert_eq!((outcome, world.effects("a").await), (Some(Outcome::Ran), 1));
}

#[tokio::test]
async fn a_transaction_of_the_callers_own_claims_with_it() {
    let world = World::new().await;
    for (commits, expected) in [(false, 0), (true, 1)] {
        let mut tx = world.begin().await;
        let request = request("a");
        let claim = world.store.claim_in(&mut tx, &request).await.unwrap();
        let Claim::Acquired(grant) = claim else { panic!("{claim:?}") };
        world.effect(&mut tx, "a").await.unwrap();
        let held = ClaimHandle { key: key("a"), owner: request.owner, fencing: Some(grant.fencing), terms: None };
        let settled = world.store.complete_in(&mut tx, &held, &crate::support::done(b"17")).await.unwrap();
        assert_eq!(settled, Settled::Done);
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(world.effects("a").await, expected);
    }
    for undo in [format!("DELETE FROM {}", world.records()), "ROLLBACK TO SAVEPOINT before_claim".to_owned()] {
        let (mut tx, request) = (world.begin().await, request("undone"));
        sqlx::raw_sql("SAVEPOINT before_claim").execute(&mut *tx).await.unwrap();
        let Claim::Acquired(grant) = world.store.claim_in(&mut tx, &request).await.unwrap() else {
            panic!("it is new")
        };
        sqlx::raw_sql(AssertSqlSafe(undo.clone())).execute(&mut *tx).await.unwrap();
        let held = ClaimHandle { key: key("undone"), owner: request.owner, fencing: Some(grant.fencing), terms: None };
        let settled = world.store.complete_in(&mut tx, &held, &crate::support::done(b"17")).await.unwrap();
        assert_eq!(settled, Settled::Lost { now: StateKind::Absent }, "{undo}");
        tx.rollback().await.unwrap();
    }
    let mut tx = world.begin().await;
    let claim = world.store.claim_in(&mut tx, &request("a")).await.unwrap();
    assert!(matches!(claim, Claim::Consumed(_)), "{claim:?}");
    // It goes on as if nothing had been asked.
    world.effect(&mut tx, "b").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.effects("b").await, 1);
}

#[tokio::test]
async fn a_leased_key_is_completed_in_a_transaction_by_its_owner_only() {
    let world = World::new().await;
    let first = request("a");
    let Claim::Acquired(grant) = world.store.claim(&first).await.unwrap() else { panic!("it is new") };
    let held = ClaimHandle { key: key("a"), owner: first.owner, fencing: Some(grant.fencing), terms: None };
    let other = ClaimHandle { owner: OwnerToken(7), ..held.clone() };
    let completion = crate::support::done(b"17");
    let mut tx = world.begin().await;
    let settled = world.store.complete_in(&mut tx, &other, &completion).await.unwrap();
    assert_eq!(settled, Settled::Lost { now: StateKind::Consuming });
    tx.rollback().await.unwrap();
    let mut tx = world.begin().await;
    for _ in 0..2 {
        let settled = world.store.complete_in(&mut tx, &held, &completion).await.unwrap();
        assert_eq!(settled, Settled::Done);
    }
    tx.commit().await.unwrap();
    let again = world.store.claim(&request("a")).await.unwrap();
    assert!(matches!(again, Claim::Consumed(consumed) if consumed.value.as_deref() == Some(&b"17"[..])));
}

/// A claim in an open transaction is invisible to other connections. The order store holds the other messages of the
/// stream.
#[tokio::test]
async fn numbers_of_a_stream_run_each_in_its_transaction_and_not_side_by_side() {
    let world = World::new().await;
    for (inbox, stream) in [(&world.inbox, "inside"), (&world.leased, "leased")] {
        let numbered = |number: u64| call(&format!("{stream} {number}")).sequence(stream, number);
        let name = |number: u64| format!("{stream} {number}");
        let run = async |number: u64| {
            let effect = async |mut tx: Own| Ok::<_, Failure>(world.effect(&mut tx, &name(number)).await?);
            Outcome::capture(inbox.run(numbered(number), effect)).await.1
        };
        let identity = Identity::new(Scene::Named("inbox".into()), "tests", stream);
        world.executor.register(&identity, [1, 2]).await.unwrap();
        assert!(matches!(run(2).await, Some(Outcome::Waiting { .. })));
        assert_eq!(run(1).await, Some(Outcome::Ran));
        assert_eq!(run(2).await, Some(Outcome::Ran));
        let beside = async |mut tx: Own| {
            world.effect(&mut tx, &name(3)).await?;
            let (executor, late) = (world.executor.clone(), numbered(0));
            let late = tokio::spawn(async move {
                let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<_, Rejection>(()) });
                Outcome::capture(executor.run(late, handler)).await.1
            });
            let late = late.await.unwrap();
            assert!(matches!(late, Some(Outcome::Waiting { .. })), "{late:?} beside an open transaction");
            Ok::<_, Failure>(())
        };
        assert_eq!(Outcome::capture(inbox.run(numbered(3), beside)).await.1, Some(Outcome::Ran));
        assert_eq!(run(0).await, Some(Outcome::Ran), "late, and alone");
        for number in 0..4 {
            assert_eq!(world.effects(&name(number)).await, 1);
        }
    }
}
