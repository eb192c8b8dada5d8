//! Writing messages.
use idempotent_mq::{Headers, OUTBOX_HEADER, OutboundMessage};
use idempotent_sqlx::{Enqueued, OutboxErrorKind, OutboxStatus};

use super::backend;
use super::world::{World, message, of};

#[tokio::test]
async fn a_message_is_there_if_its_transaction_commits_and_not_if_it_is_rolled_back() {
    let world = World::new().await;
    for (id, commits) in [("rolled back", false), ("kept", true)] {
        let mut tx = world.begin().await;
        assert_eq!(world.outbox.enqueue(&mut tx, &message(id)).await.unwrap(), Enqueued::New);
        if commits {
            tx.commit().await.unwrap()
        } else {
            tx.rollback().await.unwrap()
        }
        world.round().await;
    }
    assert_eq!(world.broker.ids(), ["kept"]);
    assert!(world.outbox.inspect("rolled back").await.unwrap().is_none());
    assert_eq!(world.status("kept").await, OutboxStatus::Unconfirmed);
}

#[tokio::test]
async fn a_message_is_sent_byte_for_byte_as_it_was_written() {
    let world = World::new().await;
    let whole = OutboundMessage::new("orders/new", "id ä", vec![0, 255, 0]).business_key("k").aggregate("a");
    let whole = whole.header("x", vec![0, 1, 255]).header("x", "").header("", "y");
    let least = OutboundMessage::new("t", "least", Vec::new());
    world.put(&[whole.clone(), least.clone()]).await;
    assert_eq!(world.round().await.sent, 2);
    let mut sent = world.broker.messages();
    assert!(world.stored("id ä").await == sent[0], "content");
    sent.iter_mut().for_each(|message| message.headers.remove(OUTBOX_HEADER));
    assert!(sent == [whole, least], "content");
}

#[tokio::test]
async fn a_message_carries_a_header_that_is_its_own_and_the_same_each_time_it_is_sent() {
    let world = World::new().await;
    world.put(&[message("a"), message("b")]).await;
    world.round().await;
    world.pass(20);
    assert_eq!(world.round().await.sent, 2);
    let sent = world.broker.messages();
    let header = |at: usize| sent[at].headers.first(OUTBOX_HEADER).unwrap();
    assert_eq!((header(0), header(1)), (header(2), header(3)));
    assert_ne!(header(0), header(1));
    assert!(header(0).len() == 32 && header(0).iter().all(u8::is_ascii_hexdigit));
}

/// A handler that selects the schema or the database of its tenant.
#[tokio::test]
async fn a_message_is_in_the_outbox_that_was_opened_wherever_its_transaction_looks_for_tables() {
    let world = World::new().await;
    let mut tx = world.begin().await;
    sqlx::raw_sql(backend::ELSEWHERE).execute(&mut *tx).await.unwrap();
    assert_eq!(world.outbox.enqueue(&mut tx, &message("a")).await.unwrap(), Enqueued::New);
    tx.commit().await.unwrap();
    assert_eq!((world.round().await.sent, world.broker.ids()), (1, vec!["a".to_owned()]));
}

/// A handler that passes on the headers of what it has received.
#[tokio::test]
async fn a_message_with_the_header_of_another_one_gets_its_own() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    world.round().await;
    let received = world.broker.messages().remove(0).headers;
    let mut answer = message("b");
    answer.headers = received.clone();
    world.put(&[answer, message("b")]).await;
    world.round().await;
    let sent = world.broker.messages().remove(1);
    let header = |headers: &Headers| headers.iter().filter(|(name, _)| *name == OUTBOX_HEADER).count();
    assert_eq!((header(&received), header(&sent.headers)), (1, 1));
    assert_ne!(received.first(OUTBOX_HEADER), sent.headers.first(OUTBOX_HEADER));
}

#[tokio::test]
async fn the_same_message_twice_is_one_and_another_one_of_its_id_is_refused() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    let mut tx = world.begin().await;
    assert_eq!(world.outbox.enqueue(&mut tx, &message("a")).await.unwrap(), Enqueued::Already);
    let refused = world.outbox.enqueue(&mut tx, &message("a").header("x", "y")).await.unwrap_err();
    assert_eq!(refused.kind(), OutboxErrorKind::Conflict);
    assert!(!refused.is_worth_a_retry() && refused.to_string().contains("another message of this id"), "{refused}");
    // No statement has failed: the transaction goes on.
    let many = [message("b"), message("a"), message("b"), message("c")];
    assert_eq!(world.outbox.enqueue_all(&mut tx, &many).await.unwrap(), 2);
    let two = [message("d"), message("d").header("x", "y")];
    assert_eq!(world.outbox.enqueue_all(&mut tx, &two).await.unwrap_err().kind(), OutboxErrorKind::Conflict);
    tx.commit().await.unwrap();
    assert_eq!(world.round().await.sent, 3);
    assert_eq!(world.broker.ids(), ["a", "b", "c"]);
}

/// An insert may fail for other reasons than an existing row.
#[tokio::test]
async fn an_insert_that_fails_is_an_error_and_not_a_duplicate() {
    let world = World::new().await;
    world.sql("ALTER TABLE outbox RENAME COLUMN digest TO gone").await;
    let mut tx = world.begin().await;
    let failed = world.outbox.enqueue(&mut tx, &message("a")).await.unwrap_err();
    assert_eq!(failed.kind(), OutboxErrorKind::Database);
    assert!(failed.is_worth_a_retry() && std::error::Error::source(&failed).is_some());
}

#[tokio::test]
async fn a_missing_table_is_an_error_that_names_the_remedy() {
    let world = World::new().await;
    world.sql("ALTER TABLE outbox RENAME TO outbox_gone").await;
    let mut tx = world.begin().await;
    let failed = world.outbox.enqueue(&mut tx, &message("a")).await.unwrap_err();
    assert_eq!(failed.kind(), OutboxErrorKind::Database);
    assert!(failed.to_string().contains("`create(true)`"), "{failed}");
}

#[tokio::test]
async fn more_than_a_statement_takes_are_written_all_the_same() {
    let world = World::new().await;
    let many: Vec<_> = (0..2_345).map(|n| of(&n.to_string(), "one")).collect();
    let mut tx = world.begin().await;
    assert_eq!(world.outbox.enqueue_all(&mut tx, &many).await.unwrap(), 2_345);
    assert_eq!(world.outbox.enqueue_all(&mut tx, &many[999..1_002]).await.unwrap(), 0);
    assert_eq!(world.outbox.enqueue_all(&mut tx, &[]).await.unwrap(), 0);
    tx.commit().await.unwrap();
    let relay = world.relay().batch(1_000);
    let mut rounds = Vec::new();
    for _ in 0..4 {
        rounds.push(relay.round().await.unwrap());
    }
    let sent: Vec<_> = rounds.iter().map(|round| round.sent).collect();
    assert_eq!(sent, [1_000, 1_000, 345, 0], "{rounds:?}");
    assert!(world.broker.ids().iter().enumerate().all(|(at, id)| *id == at.to_string()), "in order");
}

#[tokio::test]
async fn an_invalid_message_is_refused_with_its_id() {
    let world = World::new().await;
    let long = "x".repeat(256);
    let bad = [
        (OutboundMessage::new("t", "", ""), "id is empty"),
        (OutboundMessage::new("", "a", ""), "topic is empty"),
        (OutboundMessage::new("t", &*long, ""), "id has 256 bytes"),
        (OutboundMessage::new(&*long, "a", ""), "topic has 256 bytes"),
        (message("a").aggregate(""), "aggregate is empty"),
        (message("a").aggregate(&*long), "aggregate has 256 bytes"),
        (message("a").business_key(&*long), "business key has 256 bytes"),
        (OutboundMessage::new("t", "a", vec![0; (64 << 20) + 1]), "the limit is"),
    ];
    let mut tx = world.begin().await;
    for (message, what) in bad {
        let refused = world.outbox.enqueue(&mut tx, &message).await.unwrap_err();
        assert_eq!(refused.kind(), OutboxErrorKind::Invalid);
        assert!(refused.to_string().contains(what), "{refused}");
    }
    let longest = OutboundMessage::new("t".repeat(255), "i".repeat(255), "b").aggregate("a".repeat(255));
    assert_eq!(world.outbox.enqueue(&mut tx, &longest).await.unwrap(), Enqueued::New);
    tx.commit().await.unwrap();
    assert_eq!(world.round().await.sent, 1);
}
