//! The number of statements of each operation.
use futures_util::FutureExt;
use futures_util::future::join_all;
use idempotent_mq::{DeliveryResult, MessageLog};
use idempotent_sqlx::OutboxStatus;

use super::backend;
use super::world::{World, message};

#[tokio::test]
async fn a_message_costs_the_caller_one_statement_and_ends_at_a_time_share_theirs() {
    let world = World::new().await;
    let ids: Vec<_> = (0..24).map(|n| format!("m{n:02}")).collect();
    let messages: Vec<_> = ids.iter().map(|id| message(id)).collect();
    world.put(&messages).await;
    assert_eq!(world.statements(), [("enqueue", 1)]);
    assert_eq!(world.round().await.sent, 24);
    let sent = world.statements();
    assert!(sent.iter().all(|(_, times)| *times == 1), "whatever the batch: {sent:?}");

    let receipts = world.receipts(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let receipts: Vec<_> = receipts.into_iter().map(|receipt| receipt.consumer("billing")).collect();
    world.statements();
    world.outbox.received(&receipts).await.unwrap();
    assert_eq!(world.statements(), [("known", 1), ("log", 1)]);
    let ended = join_all(receipts.iter().map(|receipt| world.outbox.concluded(receipt, DeliveryResult::Done))).await;
    assert!(ended.iter().all(Result::is_ok));
    let statements = world.statements();
    let [("forget", forgets), ("log", logs), ("settle", settles)] = statements[..] else { panic!("{statements:?}") };
    // The first alone, and those that come while it is written together: in a turn or a few.
    assert!((2..=6).contains(&forgets), "{forgets}");
    assert_eq!(logs, forgets, "the rows of consumers are written in the same turns");
    assert_eq!(settles, if backend::SETTLES_MANY { forgets } else { 24 });
    assert_eq!(world.notes().await, 0);
    for id in &ids {
        assert_eq!(world.status(id).await, OutboxStatus::Confirmed);
    }
    world.statements();
    world.outbox.received(&receipts).await.unwrap();
    assert_eq!(world.statements(), [("consumed", 1), ("known", 1), ("log", 1)], "asked for confirmed messages only");
}

#[tokio::test]
async fn ends_of_all_kinds_at_a_time_come_to_what_each_of_them_would_alone() {
    let world = World::new().await;
    let ids = ["first", "done", "aside", "failed", "off", "twice", "void"];
    world.put(&ids.map(message)).await;
    world.void("void").await;
    let noted = world.receipts(&[&ids[..], &["strange"]].concat()).await;
    world.outbox.received(&noted).await.unwrap();
    use DeliveryResult::{DeadLettered, Deferred, Done, Failed};
    // The last two: a copy of a run that goes on elsewhere, and one whose own run it was.
    let how = [Done, Done, DeadLettered, Failed, Deferred, Failed, Done, Done];
    let mut ends: Vec<_> = noted.into_iter().zip(how).collect();
    ends.extend([(world.receipt("twice", 99).await, Done), (world.receipt("off", 98).await, Deferred)]);
    ends[4].0 = world.receipt("off", 97).await;
    join_all(ends.iter().map(|(receipt, how)| async { world.outbox.concluded(receipt, *how).await.unwrap() })).await;
    let mut statuses = Vec::new();
    for id in ids {
        statuses.push(world.status(id).await);
    }
    use OutboxStatus::{Confirmed, Dead, Unconfirmed, Void};
    assert_eq!(statuses, [Confirmed, Confirmed, Dead, Unconfirmed, Unconfirmed, Confirmed, Void]);
    assert_eq!(world.notes().await, 1, "of the run that goes on");
    world.conclude("off", 4, Deferred).await;
    assert_eq!(world.notes().await, 0);
}

/// If the shared writer is dropped, each call writes for itself. An error of a shared write is the error of all its
/// calls.
#[tokio::test]
async fn a_mark_without_its_writer_is_written_and_a_failure_is_reported_to_all_callers() {
    let world = World::new().await;
    world.put(&["a", "b", "c", "d"].map(message)).await;
    let receipts: [_; 4] = world.receipts(&["a", "b", "c", "d"]).await.try_into().unwrap();
    let [mut one, mut two, mut three, mut four] =
        receipts.each_ref().map(|receipt| Box::pin(world.outbox.concluded(receipt, DeliveryResult::Done)));
    // These locks keep both writers waiting, however fast the server is.
    let mut locks = world.begin().await;
    for id in ["a", "b"] {
        world.outbox.void(&mut locks, id, "anna", "why").await.unwrap();
    }
    // It writes for itself; the second writes for the others, and both are dropped on the way.
    assert!((&mut one).now_or_never().is_none());
    assert!((&mut two).now_or_never().is_none());
    assert!((&mut three).now_or_never().is_none() && (&mut four).now_or_never().is_none());
    drop(one);
    assert!((&mut two).now_or_never().is_none(), "it is its turn");
    drop(two);
    locks.rollback().await.unwrap();
    let (three, four) = futures_util::future::join(three, four).await;
    three.unwrap();
    four.unwrap();
    assert_eq!((world.status("c").await, world.status("d").await), (OutboxStatus::Confirmed, OutboxStatus::Confirmed));

    world.sql("ALTER TABLE outbox RENAME COLUMN holds TO gone").await;
    let failed = join_all(receipts.iter().map(|receipt| world.outbox.concluded(receipt, DeliveryResult::Done))).await;
    assert!(failed.iter().all(|failed| std::error::Error::source(failed.as_ref().unwrap_err()).is_some()));
}
