//! The purpose of single conditions in the statements.
use std::time::Duration;

use futures_util::future::join;
use idempotent_mq::{Delivery, DeliveryResult, LoggedDelivery, MessageLog, Position, PublishErrorKind};
use idempotent_sqlx::{OutboxErrorKind, OutboxStatus, QueueOffset};

use super::world::{LEASE, World, message, of};
use crate::outbox::broker::Says;

/// However many there are: they are due for longer than it, and cannot go without it.
#[tokio::test]
async fn a_retried_message_is_not_starved_by_newer_ones() {
    let world = World::new().await;
    world.put(&[of("a1", "a"), of("a2", "a"), of("a3", "a"), of("a4", "a")]).await;
    world.broker.say_of("a1", Says::Fails(PublishErrorKind::Unsent));
    let small = world.relay().batch(2);
    assert_eq!(small.round().await.unwrap().failed, 1);
    world.broker.say_of("a1", Says::Somewhere);
    world.pass(2);
    world.put(&[message("free")]).await;
    while small.round().await.unwrap().sent > 0 {}
    assert_eq!(world.broker.ids(), ["a1", "a2", "a3", "a4", "free"]);
}

#[tokio::test]
async fn one_that_was_written_later_holds_back_nothing() {
    let world = World::new().await;
    world.put(&[of("a1", "a")]).await;
    world.pass(1);
    world.put(&[of("a2", "a")]).await;
    assert_eq!(world.round().await.sent, 2);
    assert_eq!(world.broker.ids(), ["a1", "a2"]);
}

/// A round looks at so many: what must wait takes no place among them.
#[tokio::test]
async fn messages_that_wait_for_others_do_not_stop_the_relay() {
    let world = World::new().await;
    let small = || world.relay().batch(2);
    world.put(&[of("a1", "a"), of("a2", "a"), of("a3", "a"), of("a4", "a")]).await;
    world.broker.say_of("a1", Says::Fails(PublishErrorKind::Refused));
    assert_eq!(small().round().await.unwrap().failed, 1);
    world.put(&[message("beside one that comes again")]).await;
    assert_eq!(small().round().await.unwrap().sent, 1);
    for _ in 0..6 {
        world.pass(20);
        small().round().await.unwrap();
    }
    assert_eq!(world.status("a1").await, OutboxStatus::Dead);
    world.pass(10_000);
    world.put(&[message("beside one that is dead")]).await;
    assert_eq!(small().round().await.unwrap().sent, 1);
}

#[tokio::test]
async fn leased_messages_of_another_relay_and_their_successors_do_not_stop_the_relay() {
    let behind = [of("1", "a"), message("2"), of("3", "a"), of("4", "a")];
    let beside = [of("1", "a"), message("2"), of("3", "b"), of("4", "b")];
    for (held, sent) in [(behind, vec!["1", "free"]), (beside, vec!["1", "3", "4", "free"])] {
        let world = World::new().await;
        world.put(&held).await;
        world.broker.say_of("1", Says::Nothing);
        let (one, two) = (world.relay().batch(2), world.relay().batch(2));
        let others = async {
            world.broker.called(1).await;
            world.put(&[message("free")]).await;
            while two.round().await.unwrap().sent > 0 {}
        };
        tokio::select! {
            biased;
            _ = one.round() => panic!("it was not to end"),
            () = others => {}
        }
        assert_eq!(world.broker.ids(), sent);
    }
}

#[tokio::test]
async fn the_messages_of_an_aggregate_of_a_dead_relay_are_sent_in_one_round_after_its_lease() {
    let world = World::new().await;
    world.put(&[of("a1", "a"), of("a2", "a")]).await;
    world.broker.gate.forget_permits(usize::MAX);
    let relay = world.relay();
    tokio::select! {
        biased;
        _ = relay.round() => panic!("it was not to end"),
        () = world.broker.called(1) => {}
    }
    world.broker.gate.add_permits(9);
    world.pass(LEASE.as_secs());
    assert_eq!(world.round().await.sent, 2);
    assert_eq!(world.broker.ids(), ["a1", "a2"]);
}

/// Between planning and leasing another relay takes one.
#[tokio::test]
async fn messages_after_one_of_another_relay_are_not_sent() {
    for (taken, sent) in [("a1", vec![]), ("a2", vec!["a1"])] {
        let other = World::new().await;
        let id = other.bytes(taken);
        let world = World::with(move |name, text| match name {
            "take" => text.replace("seq IN (", &format!("id<>{id} AND seq IN (")),
            _ => text,
        })
        .await;
        world.put(&[of("a1", "a"), of("a2", "a"), of("a3", "a")]).await;
        world.broker.gate.forget_permits(usize::MAX);
        let relay = world.relay();
        let beside = async {
            if sent.len() == 1 {
                world.broker.called(1).await;
                assert_eq!(
                    world.rows("outbox WHERE lease_until > 0").await,
                    1,
                    "the others were given back, and it was not"
                );
            }
            world.broker.gate.add_permits(1);
        };
        join(relay.round(), beside).await.0.unwrap();
        assert_eq!(world.broker.ids(), sent);
        assert_eq!(world.rows("outbox WHERE lease_by IS NOT NULL OR lease_until > 0").await, 0, "it was given back");
    }
}

/// Between planning and leasing a person, or another relay, puts one off.
#[tokio::test]
async fn one_that_is_not_due_any_more_is_not_leased() {
    let world = World::with(|name, text| match name {
        "plan" => text.replacen("t.due_at<=", "t.due_at IS NULL OR 0<=", 1),
        _ => text,
    })
    .await;
    world.put(&[message("a")]).await;
    assert_eq!(world.round().await.sent, 1);
    assert_eq!(world.round().await.looked_at, 0);
}

/// Or a note that is written twice, since its first answer was lost, would count twice.
#[tokio::test]
async fn a_recorded_result_ends_the_lease() {
    let world = World::new().await;
    world.put(&[message("sent"), message("failed"), of("a1", "a"), of("a2", "a")]).await;
    world.broker.say_of("failed", Says::Fails(PublishErrorKind::Unconfirmed));
    world.broker.say_of("a1", Says::Fails(PublishErrorKind::Unsent));
    world.round().await;
    assert_eq!(world.rows("outbox WHERE lease_by IS NOT NULL OR lease_until > 0").await, 0);
}

#[tokio::test]
async fn a_resend_that_fails_leaves_where_it_was_sent_to_before() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    world.broker.say(Says::Lies(7));
    world.round().await;
    let before = world.stub("a").await;
    world.log(0, &world.bytes("orders#0"), Some(&world.hex(&format!("{:016x}{:016x}", 9, 0))), world.micros()).await;
    world.broker.say(Says::Fails(PublishErrorKind::Unconfirmed));
    world.pass(20);
    assert_eq!(world.round().await.failed, 1);
    let after = world.stub("a").await;
    assert_eq!((after.sends, after.place, after.queue), (2, Some(QueueOffset::of(7)), Some("orders#0".to_owned())));
    assert_eq!(after.sent_at, before.sent_at);
}

/// The consumer is faster than the relay's note.
#[tokio::test]
async fn a_message_confirmed_while_it_is_sent_stays_confirmed() {
    for says in [Says::Lies(7), Says::Fails(PublishErrorKind::Unconfirmed)] {
        let world = World::new().await;
        world.put(&[message("a")]).await;
        world.broker.say(says);
        world.broker.gate.forget_permits(usize::MAX);
        let relay = world.relay();
        let consumer = async {
            world.broker.called(1).await;
            world.conclude("a", 1, DeliveryResult::Done).await;
            world.pass(10);
            world.broker.gate.add_permits(1);
        };
        join(relay.round(), consumer).await.0.unwrap();
        let stub = world.stub("a").await;
        assert_eq!((stub.status, stub.due_at, stub.sends), (OutboxStatus::Confirmed, None, 1));
        let settled = world.micros() - 10_000_000;
        assert_eq!(world.rows(&format!("outbox WHERE settled_at = {settled}")).await, 1);
    }
}

#[tokio::test]
async fn the_settlement_time_of_a_message_is_known_and_an_open_message_has_none() {
    let world = World::new().await;
    let settled_now = async |world: &World| world.rows(&format!("outbox WHERE settled_at = {}", world.micros())).await;
    world.put(&[message("a"), message("b")]).await;
    world.broker.say_of("a", Says::Fails(PublishErrorKind::Refused));
    for _ in 0..3 {
        world.round().await;
        world.pass(20);
    }
    assert_eq!(world.rows("outbox WHERE settled_at IS NULL").await, 2);
    assert_eq!(world.round().await.given_up, 1);
    assert_eq!(settled_now(&world).await, 1, "dead");
    world.resend("a").await;
    assert_eq!(world.rows("outbox WHERE settled_at IS NULL").await, 2, "open again");
    let again = world.stub("a").await;
    assert_eq!((again.status, again.sends, again.failures, again.queue), (OutboxStatus::Unconfirmed, 0, 0, None));
    world.conclude("a", 1, DeliveryResult::Done).await;
    assert_eq!(settled_now(&world).await, 1, "confirmed");
}

#[tokio::test]
async fn a_message_confirmed_before_its_sending_was_recorded_blocks_no_message() {
    let world = World::new().await;
    world.put(&[of("a1", "a"), of("a2", "a")]).await;
    world.broker.say_of("a1", Says::Fails(PublishErrorKind::Unconfirmed));
    assert_eq!(world.round().await.failed, 1);
    world.conclude("a1", 1, DeliveryResult::Done).await;
    world.pass(10);
    assert_eq!(world.round().await.sent, 1);
    assert_eq!(world.broker.ids(), ["a1", "a2"]);
}

#[tokio::test]
async fn a_message_that_was_delivered_again_is_in_hand_again() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    world.round().await;
    world.outbox.received(&[world.receipt("a", 1).await]).await.unwrap();
    world.pass(90);
    world.outbox.received(&[world.receipt("a", 2).await]).await.unwrap();
    world.pass(50);
    assert_eq!(world.round().await.sent, 0, "older than the age by its first note, younger by its second");
    world.pass(60);
    assert_eq!(world.round().await.sent, 1);
}

/// A message may be called as a queue is.
#[tokio::test]
async fn the_end_of_a_message_removes_no_note_but_its_own() {
    let world = World::new().await;
    let (queue, of_messages) = ("outbox_log WHERE kind = 0", "outbox_log WHERE kind = 1");
    world.put(&["orders#0", "beside"].map(message)).await;
    let receipts = [world.receipt("orders#0", 0).await, world.receipt("beside", 0).await];
    for how in [DeliveryResult::Done, DeliveryResult::Deferred] {
        world.outbox.received(&receipts).await.unwrap();
        assert_eq!((world.rows(queue).await, world.rows(of_messages).await), (1, 2));
        world.conclude("orders#0", 0, how).await;
        assert_eq!((world.rows(queue).await, world.rows(of_messages).await), (1, 1));
    }
}

#[tokio::test]
async fn old_marks_are_deleted_except_for_those_of_lost_messages() {
    let world = World::new().await;
    world.put(&["open", "done", "young", "gone"].map(message)).await;
    world.outbox.received(&world.receipts(&["open", "done", "gone"]).await).await.unwrap();
    world.sql(&format!("DELETE FROM outbox WHERE id = {}", world.bytes("gone"))).await;
    world.conclude("done", 1, DeliveryResult::Done).await;
    world.outbox.received(&[world.receipt("done", 1).await]).await.unwrap();
    let notes = async || (world.rows("outbox_log WHERE kind = 0").await, world.notes().await);
    assert_eq!(notes().await, (1, 3));
    world.pass(100);
    // Without a place, so that the queue's note stays old.
    let mut young = Delivery::new(Position::of("orders"), Vec::new()).id("young");
    young.headers = world.stored("young").await.headers;
    world.outbox.received(&[LoggedDelivery::of(&young, 1).unwrap()]).await.unwrap();
    for (age, left) in [(101, 4), (100, 2)] {
        world.outbox.purge(Duration::from_secs(age), 0).await.unwrap();
        assert_eq!(notes().await, (1, left), "{age} s");
    }
    assert_eq!(
        world.rows(&format!("outbox_log WHERE id IN ({}, {})", world.bytes("open"), world.bytes("young"))).await,
        2
    );
}

#[tokio::test]
async fn an_operators_action_changes_one_unsettled_message() {
    let world = World::new().await;
    world.put(&["done", "void", "other"].map(message)).await;
    world.round().await;
    world.conclude("done", 1, DeliveryResult::Done).await;
    let other = world.stub("other").await;
    let mut tx = world.begin().await;
    let refused = world.outbox.void(&mut tx, "done", "anna", "why").await.unwrap_err();
    assert_eq!(refused.kind(), OutboxErrorKind::NotFound);
    world.outbox.void(&mut tx, "void", "anna", "why").await.unwrap();
    tx.commit().await.unwrap();
    let void = world.stub("void").await;
    assert_eq!(
        (void.status, void.due_at, world.status("done").await),
        (OutboxStatus::Void, None, OutboxStatus::Confirmed)
    );
    assert_eq!(world.rows(&format!("outbox WHERE settled_at = {} AND status = 2", world.micros())).await, 1);
    let mut tx = world.begin().await;
    world.outbox.resend(&mut tx, "other", "anna", "why").await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(world.stub("other").await, other);
    let mut tx = world.begin().await;
    world.outbox.enqueue(&mut tx, &message("another")).await.unwrap();
    world.outbox.resend(&mut tx, "another", "bert", "why").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.stub("other").await, other, "resent was another one");
    assert_eq!(
        (world.outbox.audit("void").await.unwrap().len(), world.outbox.audit("other").await.unwrap().len()),
        (1, 0)
    );
}

#[tokio::test]
async fn the_oldest_are_removed_first() {
    let world = World::new().await;
    world.put(&["a", "b", "c"].map(message)).await;
    for id in ["c", "a", "b"] {
        world.conclude(id, 1, DeliveryResult::Done).await;
    }
    world.pass(100);
    assert_eq!(world.outbox.purge(Duration::from_secs(100), 1).await.unwrap(), 1);
    assert!(world.outbox.inspect("a").await.unwrap().is_none());
}
