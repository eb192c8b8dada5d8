//! Orderly consumption: each queue in order, with retries in place.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{Executor, MemoryStore, Timestamp};
use idempotent_mq::{
    Consumer, DeadLetter, HandlerResult, KeyFrom, Message, Messages, OutboundMessage, Retry, Settlement, Source,
};
use idempotent_rocketmq::{RocketPublisher, RocketSource};

use crate::broker::world::{ManualConsumer, World, until};

fn retry(after: Duration) -> Settlement {
    Settlement::Retry(Retry::after(after, Timestamp(0)))
}

fn orderly(world: &World) -> RocketSource {
    world.builder().orderly().build().unwrap()
}

#[tokio::test]
async fn a_retried_message_is_delivered_before_the_later_messages_of_its_queue() {
    let world = World::new("orderly-1").await;
    for id in ["1", "2", "3"] {
        world.publish(world.message(id, "b").aggregate("a")).await;
    }
    let mut consumer = ManualConsumer(orderly(&world));
    let held = consumer.next().await;
    assert_eq!((held.0.id.as_deref(), held.0.attempt), (Some("1"), Some(1)));
    consumer.settle(&held, &retry(Duration::from_millis(300))).await.unwrap();
    let again = consumer.next().await;
    assert_eq!((again.0.id.as_deref(), again.0.attempt, again.0.redelivered), (Some("1"), Some(2), true));
    consumer.settle(&again, &Settlement::GiveBack).await.unwrap();
    let again = consumer.next().await;
    assert_eq!((again.0.id.as_deref(), again.0.attempt), (Some("1"), Some(2)));
    // A dropped delivery returns, too.
    drop(again);
    let again = consumer.next().await;
    assert_eq!(again.0.id.as_deref(), Some("1"));
    let reason = DeadLetter::because("a reason", Timestamp(0));
    consumer.settle(&again, &Settlement::DeadLetter(reason)).await.unwrap();
    for id in ["2", "3"] {
        let held = consumer.next().await;
        assert_eq!(held.0.id.as_deref(), Some(id));
        consumer.settle(&held, &Settlement::Ack).await.unwrap();
    }
    world.emptied().await;
}

#[tokio::test]
async fn messages_of_each_aggregate_run_in_order_with_failures_and_a_change_of_the_member() {
    const AGGREGATES: usize = 4;
    const MESSAGES: usize = 12;
    let world = World::new("orderly-2").await;
    let source = |world: &World| RocketSource::builder(world.server.url(), "orderly-2b", "orderly-2b-group");
    source(&world).build().unwrap().declare(4).await.unwrap();
    let publisher = RocketPublisher::builder(world.server.url()).build().unwrap();
    for number in 0..MESSAGES {
        for aggregate in 0..AGGREGATES {
            let id = format!("{aggregate}-{number}");
            let message = OutboundMessage::new("orderly-2b", id, "b").aggregate(aggregate.to_string());
            publisher.publish(&message).await.unwrap();
        }
    }
    let done: Arc<Mutex<Vec<Vec<usize>>>> = Arc::new(Mutex::new(vec![Vec::new(); AGGREGATES]));
    let executor = Executor::new(MemoryStore::new());
    let run = |until_done: usize| {
        let runs = done.clone();
        let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message: Message<()>| {
            let delivery = &message.delivery;
            let (aggregate, number) = delivery.id.as_deref().unwrap().split_once('-').unwrap();
            let (aggregate, number): (usize, usize) = (aggregate.parse().unwrap(), number.parse().unwrap());
            // Every third message fails at its first attempt.
            let fails = number % 3 == 0 && delivery.attempt == Some(1);
            if !fails {
                runs.lock().unwrap()[aggregate].push(number);
            }
            async move {
                match fails {
                    true => HandlerResult::Again { after: Some(Duration::from_millis(20)), error: "fails".into() },
                    false => HandlerResult::Done,
                }
            }
        });
        let consumer = Consumer::builder(source(&world).orderly().build().unwrap(), "orders", &executor);
        let consumer = consumer.build(handling).unwrap();
        let done = done.clone();
        async move {
            let enough =
                async || (done.lock().unwrap().iter().map(Vec::len).sum::<usize>() >= until_done).then_some(());
            consumer.run(until("enough messages are done", enough)).await.unwrap();
        }
    };
    run(AGGREGATES * MESSAGES / 2).await;
    run(AGGREGATES * MESSAGES).await;
    let expected: Vec<usize> = (0..MESSAGES).collect();
    assert!(done.lock().unwrap().iter().all(|numbers| *numbers == expected), "{done:?}");
}

#[tokio::test]
async fn a_source_that_closes_during_a_delay_leaves_the_message_to_the_next_member() {
    let world = World::new("orderly-3").await;
    world.publish(world.message("1", "b")).await;
    let mut consumer = ManualConsumer(orderly(&world));
    let held = consumer.next().await;
    consumer.settle(&held, &retry(Duration::from_secs(3_600))).await.unwrap();
    drop(held);
    consumer.0.close().await;
    let mut next = ManualConsumer(orderly(&world));
    let held = next.next().await;
    assert_eq!(held.0.id.as_deref(), Some("1"));
    next.settle(&held, &Settlement::Ack).await.unwrap();
    world.emptied().await;
}
