//! Waiting for messages: who is woken, by which event, and the cost of waiting.
use idempotent_mq::Redrive;
use idempotent_redis::{DelayDeadLetters, DelayMessage, RetryDelay};
use tokio::time::timeout;

use crate::delay_queue::world::{World, bodies, ms, new};
use crate::support::until;

async fn asleep(world: &World) {
    until("the receiver has said that it waits", async || {
        world.look("HEXISTS", "meta", &["waits"]).integer() == Some(1)
    })
    .await;
}

pub(crate) async fn a_waiting_receiver_is_woken_by_an_earlier_message_and_sends_no_commands(world: &World) {
    let (queue, mut receiver) = world.receiving().await;
    new(queue.send(&DelayMessage::after(ms(3_600_000), "far")).await.unwrap());
    let mut take = Box::pin(receiver.receive(10));
    assert!(timeout(ms(150), &mut take).await.is_err(), "nothing is due");
    asleep(world).await;
    let asked = world.place.calls("evalsha");
    assert!(timeout(ms(300), &mut take).await.is_err());
    assert!(world.place.calls("evalsha") <= asked + 1, "it polls");
    let told = world.place.calls("publish");
    new(queue.send(&DelayMessage::after(ms(7_200_000), "farther")).await.unwrap());
    assert_eq!(world.place.calls("publish"), told, "it need not be woken for what is due later");
    let now = DelayMessage::priority(20, "now");
    let (taken, _) = tokio::join!(timeout(ms(4_000), take), queue.send(&now));
    assert_eq!(bodies(&taken.expect("it was not woken").unwrap()), ["now"]);
    assert_eq!(world.place.calls("publish"), told + 1);
    for _ in 0..3 {
        new(queue.send(&DelayMessage::priority(20, "more")).await.unwrap());
    }
    assert_eq!(world.place.calls("publish"), told + 2, "it is told once until it has asked again");
    assert_eq!(receiver.receive(3).await.unwrap().len(), 3);
    new(queue.send(&DelayMessage::priority(20, "next")).await.unwrap());
    assert_eq!(world.place.calls("publish"), told + 2, "whose hands are full does not wait");
}

pub(crate) async fn a_waiting_receiver_is_woken_by_retries_and_redrives(world: &World) {
    let queue = world.queue_with(|builder| builder.max_retries(1)).await;
    let (mut receiver, mut other) = (queue.receiver(), queue.receiver());
    new(queue.send(&DelayMessage::after(ms(0), "m")).await.unwrap());
    let held = other.receive_now(1).await.unwrap().remove(0);
    let mut take = Box::pin(receiver.receive(10));
    assert!(timeout(ms(150), &mut take).await.is_err());
    asleep(world).await;
    queue.rollback(&held, RetryDelay::Immediate, "").await.unwrap();
    let again = timeout(ms(4_000), take).await.expect("it was not woken by a rollback").unwrap().remove(0);
    queue.rollback(&again, RetryDelay::Immediate, "").await.unwrap();
    let mut take = Box::pin(receiver.receive(10));
    assert!(timeout(ms(150), &mut take).await.is_err(), "it is dead");
    asleep(world).await;
    let redriven = Redrive::new().run(&mut DelayDeadLetters::new(&queue)).await;
    assert_eq!(redriven.put_back, 1);
    timeout(ms(4_000), take).await.expect("it was not woken by a redrive").unwrap();
}

pub(crate) async fn no_notification_is_sent_without_a_waiting_receiver(world: &World) {
    let queue = world.queue().await;
    assert!(queue.receiver().receive_now(10).await.unwrap().is_empty());
    assert_eq!(world.look("HEXISTS", "meta", &["waits"]).integer(), Some(0));
}

pub(crate) async fn a_receiver_learns_when_to_poll_again(world: &World) {
    let queue = world.queue_with(|builder| builder.visibility(ms(60_000))).await;
    let mut receiver = queue.receiver();
    // Waits until a poll has written this time.
    let waits_until = async |receiver: &mut idempotent_redis::DelayReceiver, time: u64| {
        let event = format!("a poll that waits until {time}");
        let written = until(&event, async || {
            world.look("HEXISTS", "meta", &["waits"]).integer() == Some(1)
                && world.look("HGET", "meta", &["waits"]).text().parse() == Ok(time)
        });
        tokio::select! {
            () = written => {}
            taken = receiver.receive(10) => panic!("nothing is due, and a poll returned {taken:?}"),
        }
    };
    let time = |ms| crate::delay_queue::world::time(ms).0;
    waits_until(&mut receiver, 9_000_000_000_000_000).await; // for ever
    new(queue.send(&DelayMessage::at(crate::delay_queue::world::time(5_000), "")).await.unwrap());
    waits_until(&mut queue.receiver(), time(5_000) + 1).await;
    new(queue.send(&DelayMessage::after(ms(0), "")).await.unwrap());
    assert_eq!(queue.receiver().receive_now(10).await.unwrap().len(), 1);
    waits_until(&mut queue.receiver(), time(5_000) + 1).await; // the earlier of both
    world.at(1);
    let mut hurried = world.queue_with(|builder| builder.visibility(ms(2_000))).await.receiver();
    new(queue.send(&DelayMessage::after(ms(0), "")).await.unwrap());
    let taken = hurried.receive_now(10).await.unwrap();
    waits_until(&mut queue.receiver(), time(2_001)).await; // and of these
    queue.commit_all(&taken).await.unwrap();
    world.at(5_001);
    assert_eq!(queue.receiver().receive_now(10).await.unwrap().len(), 1);
    waits_until(&mut queue.receiver(), time(60_000)).await; // when the first message may be taken back
}
