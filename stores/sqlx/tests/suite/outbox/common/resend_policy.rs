//! The resend policy in the statements of the database.
use idempotent_core::AlertKind;
use idempotent_sqlx::OutboxStatus;

use super::world::{World, message, of};
use crate::outbox::broker::Says;

/// A place, of 16 bytes.
fn place(number: u64) -> String {
    // Digits are bytes, too, and greater numbers sort later.
    format!("'{number:016}'")
}

async fn sent_again(world: &World) -> Vec<String> {
    let before = world.broker.ids().len();
    world.round().await;
    world.broker.ids().split_off(before)
}

#[tokio::test]
async fn only_the_one_of_all_32_combinations_with_all_five_conditions_is_sent_again() {
    let world = World::new().await;
    let rows: Vec<_> = (0..32).map(|row| message(&row.to_string())).collect();
    world.put(&rows).await;
    world.broker.say(Says::Lies(7));
    assert_eq!(world.round().await.sent, 32);
    world.sql(&format!("UPDATE outbox SET place = {}", world.bytes(&place(7)))).await;
    for row in 0..32u32 {
        let holds = |condition: u32| row >> condition & 1 == 1;
        let id = world.bytes(&format!("'{row}'"));
        let now = world.micros();
        let set = [
            (!holds(0)).then(|| "status = 1".to_owned()),
            Some(format!("sends = {}", if holds(1) { 2 } else { 3 })),
            Some(format!("due_at = {}", if holds(2) { now } else { now + 1 })),
            // No consumer has read further in the other queue.
            (!holds(3)).then(|| format!("queue = {}", world.bytes("'orders#1'"))),
        ];
        let set = set.into_iter().flatten().collect::<Vec<_>>().join(",");
        world.sql(&format!("UPDATE outbox SET {set} WHERE id = {id}")).await;
        if !holds(4) {
            world.log(1, &id, None, now - 1_000_000).await;
        }
    }
    let (now, at) = (world.micros(), place(8));
    world.log(0, &world.bytes("'orders#0'"), Some(&world.bytes(&at)), now).await;
    world.log(0, &world.bytes("'orders#1'"), Some(&world.bytes(&place(7))), now).await;
    assert_eq!(sent_again(&world).await, ["31"]);
    // The one that has all but the count.
    assert_eq!(world.bell.alerts().len(), 1);
    assert_eq!(world.status("29").await, OutboxStatus::Dead);
    assert_eq!(sent_again(&world).await, [""; 0]);
    assert_eq!(world.bell.alerts().len(), 1);
}

#[tokio::test]
async fn after_each_sending_count_next_time_and_offset_are_new() {
    let world = World::new().await;
    world.put(&[of("a", "aggregate")]).await;
    for (sends, at, rest) in [(1, 7, 15), (2, 70, 25), (3, 700, 45)] {
        world.broker.say(Says::Lies(at));
        assert_eq!(world.round().await.sent, 1);
        let stub = world.stub("a").await;
        assert_eq!(stub.sends, sends);
        assert_eq!(stub.queue.as_deref(), Some("orders#0"));
        assert_eq!(stub.place, Some(idempotent_sqlx::QueueOffset::of(at)));
        assert_eq!(world.due_in("a").await, Some(rest));
        // A consumer comes past it, and does not confirm it.
        let past = [0, 0, 0, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0].map(|byte: u8| format!("{byte:02x}")).concat();
        if sends == 1 {
            world.log(0, &world.bytes("'orders#0'"), Some(&world.hex(&past)), world.micros()).await;
        }
        world.pass(rest - 1);
        assert_eq!(world.round().await.looked_at, 0, "not before its time");
        world.pass(1);
    }
    // Sent as often as is allowed: an alert instead.
    assert!(world.bell.alerts().is_empty());
    let round = world.round().await;
    assert_eq!((round.sent, round.given_up), (0, 1));
    let alerts = world.bell.alerts();
    let (kind, message, source) = (alerts[0].kind, alerts[0].given_up.unwrap(), alerts[0].source.as_deref());
    assert_eq!((alerts.len(), kind, message.sends, source), (1, AlertKind::MessageGivenUp, 3, Some("orders")));
    assert!(!message.holds_back, "it was sent");
    assert_eq!((world.status("a").await, world.due_in("a").await), (OutboxStatus::Dead, None));
    world.pass(10_000);
    assert_eq!(world.round().await.looked_at, 0);
    assert_eq!(world.bell.alerts().len(), 1);
}

#[tokio::test]
async fn a_voided_message_is_never_sent() {
    let world = World::new().await;
    world.put(&[message("a"), message("b")]).await;
    world.void("a").await;
    assert_eq!(world.round().await.sent, 1);
    world.pass(10_000);
    world.round().await;
    assert_eq!(world.broker.ids(), ["b", "b"]);
}

#[tokio::test]
async fn one_that_waits_in_its_queue_is_looked_at_again_and_not_sent() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    world.broker.say(Says::Lies(7));
    world.round().await;
    world.pass(15);
    let round = world.round().await;
    assert_eq!((round.looked_at, round.sent), (1, 0));
    assert_eq!(world.due_in("a").await, Some(60));
    assert_eq!(world.stub("a").await.sends, 1);
}
