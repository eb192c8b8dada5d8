//! Actions of operators.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Alert, AlertError, AlertSender};
use idempotent_mq::PublishErrorKind;
use idempotent_sqlx::{OutboxErrorKind, OutboxStatus};
use tokio::sync::Notify;

use super::world::{World, message};
use crate::outbox::broker::Says;

#[tokio::test]
async fn an_operators_action_is_recorded_with_name_time_and_reason_in_its_transaction() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    for (commits, noted) in [(false, 0), (true, 1)] {
        let mut tx = world.begin().await;
        world.outbox.resend(&mut tx, "a", "anna", "the broker lost it").await.unwrap();
        if commits {
            tx.commit().await.unwrap()
        } else {
            tx.rollback().await.unwrap()
        }
        assert_eq!(world.outbox.audit("a").await.unwrap().len(), noted);
    }
    world.pass(7);
    let mut tx = world.begin().await;
    world.outbox.void(&mut tx, "a", "bert", "paid in cash").await.unwrap();
    tx.commit().await.unwrap();
    let audit = world.outbox.audit("a").await.unwrap();
    let noted: Vec<_> = audit.iter().map(|one| [&*one.by, &*one.action, &*one.reason]).collect();
    assert_eq!(noted, [["anna", "resend", "the broker lost it"], ["bert", "void", "paid in cash"]]);
    assert_eq!(audit[1].at - audit[0].at, Duration::from_secs(7));
}

#[tokio::test]
async fn a_settled_or_missing_message_cannot_be_changed_and_an_action_needs_a_name() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    let mut tx = world.begin().await;
    world.outbox.void(&mut tx, "a", "anna", "why").await.unwrap();
    for id in ["a", "none"] {
        let refused = world.outbox.resend(&mut tx, id, "anna", "why").await.unwrap_err();
        assert_eq!(refused.kind(), OutboxErrorKind::NotFound, "{id}");
    }
    let (name, text) = ("x".repeat(256), "x".repeat(4_097));
    let bad = [("", "why", "operator"), (&name, "why", "operator"), ("anna", "", "reason"), ("anna", &text, "reason")];
    for (by, reason, what) in bad {
        let refused = world.outbox.void(&mut tx, "a", by, reason).await.unwrap_err();
        assert_eq!(refused.kind(), OutboxErrorKind::Invalid);
        assert!(refused.to_string().contains(what), "{refused}");
    }
    tx.commit().await.unwrap();
    assert_eq!(world.outbox.audit("a").await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_longest_name_and_reason_are_recorded_whole() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    let (name, text) = ("x".repeat(255), "x".repeat(4_096));
    let mut tx = world.begin().await;
    world.outbox.void(&mut tx, "a", &name, &text).await.unwrap();
    tx.commit().await.unwrap();
    let audit = world.outbox.audit("a").await.unwrap();
    assert!(audit[0].by == name && audit[0].reason == text);
}

#[tokio::test]
async fn messages_are_listed_by_status_a_page_at_a_time() {
    let world = World::new().await;
    let many: Vec<_> = (0..7).map(|n| message(&n.to_string())).collect();
    world.put(&many).await;
    let mut tx = world.begin().await;
    for id in ["1", "4"] {
        world.outbox.void(&mut tx, id, "anna", "why").await.unwrap();
    }
    tx.commit().await.unwrap();
    let (mut behind, mut pages) = (0, Vec::new());
    for _ in 0..5 {
        let page = world.outbox.list(OutboxStatus::Unconfirmed, behind, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        behind = last.record.seq;
        pages.push(page.into_iter().map(|entry| entry.id).collect::<Vec<_>>());
    }
    assert_eq!(pages, [vec!["0", "2"], vec!["3", "5"], vec!["6"]]);
    let void = world.outbox.list(OutboxStatus::Void, 0, 9).await.unwrap();
    assert_eq!(void.iter().map(|entry| &*entry.id).collect::<Vec<_>>(), ["1", "4"]);
    assert!(world.outbox.list(OutboxStatus::Dead, 0, 9).await.unwrap().is_empty());
}

#[tokio::test]
async fn one_sent_by_hand_goes_out_though_it_waits_in_its_queue() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    world.broker.say(Says::Lies(7));
    world.round().await;
    world.pass(20);
    assert_eq!(world.round().await.sent, 0, "queued");
    world.resend("a").await;
    let again = world.stub("a").await;
    assert_eq!((again.sends, again.queue, again.place), (0, None, None), "wherever it lies");
    assert_eq!(world.round().await.sent, 1);
    assert_eq!(world.stub("a").await.sends, 1, "counted anew");
}

#[tokio::test]
async fn a_message_resent_by_an_operator_does_not_wait_for_its_consumer() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    world.round().await;
    world.log(1, &world.bytes("a"), None, world.micros()).await;
    world.pass(15);
    assert_eq!(world.round().await.sent, 0, "a consumer has it");
    world.resend("a").await;
    assert_eq!(world.round().await.sent, 1);
}

/// A wait for the action of an operator.
#[derive(Debug, Default)]
struct Acted {
    told: Notify,
    done: Notify,
}

#[async_trait]
impl AlertSender for Acted {
    async fn send(&self, _: &Alert) -> Result<(), AlertError> {
        self.told.notify_one();
        self.done.notified().await;
        Ok(())
    }
}

/// An operator, or another relay, may react to an alert before its relay has marked the message.
#[tokio::test]
async fn one_sent_by_hand_while_its_relay_still_tells_of_it_is_not_given_up() {
    for is_taken_at_once in [true, false] {
        let world = World::new().await;
        world.put(&[message("a")]).await;
        world.broker.say(Says::Fails(PublishErrorKind::Refused));
        for _ in 0..3 {
            assert_eq!(world.round().await.failed, 1);
            world.pass(10);
        }
        world.broker.say(Says::Somewhere);
        let acted = Arc::new(Acted::default());
        let relay = world.relay().alerts(acted.clone());
        let person = async {
            acted.told.notified().await;
            world.resend("a").await;
            if is_taken_at_once {
                // The lease of the message is free again.
                assert_eq!(world.round().await.sent, 1);
            }
            acted.done.notify_one();
        };
        let (round, ()) = tokio::join!(relay.round(), person);
        assert_eq!(round.unwrap().given_up, 1);
        let stub = world.stub("a").await;
        assert_eq!((stub.status, stub.sends), (OutboxStatus::Unconfirmed, u32::from(is_taken_at_once)));
        assert_eq!(world.round().await.sent, usize::from(!is_taken_at_once));
    }
}

#[tokio::test]
async fn only_what_is_confirmed_or_void_and_old_is_removed() {
    let world = World::new().await;
    let many: Vec<_> = ["void", "confirmed", "dead", "open"].map(message).into();
    world.put(&many).await;
    for (id, status) in [("void", 2), ("confirmed", 1), ("dead", 3)] {
        let (id, now) = (world.bytes(id), world.micros());
        world.sql(&format!("UPDATE outbox SET status = {status}, settled_at = {now} WHERE id = {id}")).await;
    }
    world.pass(100);
    let mut removed = Vec::new();
    for (age, at_most) in [(101, 9), (100, 1), (100, 9)] {
        removed.push(world.outbox.purge(Duration::from_secs(age), at_most).await.unwrap());
    }
    assert_eq!(removed, [0, 1, 1]);
    assert_eq!(
        (world.status("dead").await, world.status("open").await),
        (OutboxStatus::Dead, OutboxStatus::Unconfirmed)
    );
}
