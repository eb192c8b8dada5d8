//! Listing, redriving and removing dead letters.
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use idempotent_core::{Executor, MemoryStore, Policy, Scene, Timestamp};
use idempotent_harness::proxy::Fault;
use idempotent_mq::{
    Consumer, DeadLetter, DeadLetters, Delivery, KeyFrom, Messages, Redrive, Schedule, Settlement, SourceErrorKind,
    StoredLetter,
};
use idempotent_rocketmq::RocketDeadLetters;
use tokio::sync::oneshot;

use crate::broker::publisher_outages::start_with_proxy;
use crate::broker::world::{ManualConsumer, World, until, within};

fn letters_of(world: &World) -> RocketDeadLetters {
    RocketDeadLetters::new(world.server.url(), &world.topic, &world.group).unwrap()
}

fn letter(reason: &'static str) -> DeadLetter {
    let mut letter = DeadLetter::because(reason, Timestamp(9));
    (letter.id, letter.attempts, letter.first_at) = (Some("key:1".to_owned()), 3, Timestamp(5));
    letter
}

/// Sends a message with each body, and dead-letters the messages with the body's number as their reason.
async fn dead_letter(world: &World, consumer: &mut ManualConsumer, bodies: &[&[u8]]) {
    for (number, body) in bodies.iter().enumerate() {
        let message = idempotent_mq::OutboundMessage::new(&world.topic, format!("m-{number}"), *body)
            .header("tenant", "größe")
            .header("bytes", [0, 255]);
        world.publish(message.business_key("order-17")).await;
        let held = consumer.next().await;
        let reason = ["0", "1", "2", "3", "4"][number];
        consumer.settle(&held, &Settlement::DeadLetter(letter(reason))).await.unwrap();
    }
    // The broker confirms a message before the queue counts it.
    let mut letters = letters_of(world);
    let count = bodies.len() as u64;
    until("the dead letters", async || (letters.count().await.unwrap() == count).then_some(())).await;
    letters.close().await;
}

/// Returns all letters of a new session, which only reads.
async fn listed(world: &World) -> Vec<(Delivery, DeadLetter)> {
    let mut letters = letters_of(world);
    let mut all = Vec::new();
    while let Some(StoredLetter { delivery, letter, .. }) = letters.next().await.unwrap() {
        all.push((delivery, letter.unwrap()));
    }
    letters.close().await;
    all
}

fn ids(letters: &[(Delivery, DeadLetter)]) -> Vec<&str> {
    letters.iter().map(|(delivery, _)| delivery.id.as_deref().unwrap()).collect()
}

/// Checks a letter or message of [`dead_letter`].
fn is_unchanged(delivery: &Delivery, body: &[u8]) {
    assert_eq!((&delivery.body[..], &delivery.unreadable), (body, &None));
    assert_eq!(delivery.headers, [("tenant", "größe".as_bytes()), ("bytes", &[0, 255])].into_iter().collect());
    assert_eq!(delivery.business_key.as_deref(), Some("order-17"));
    assert_eq!((delivery.attempt, delivery.deaths, delivery.first_at), (Some(1), 1, Some(Timestamp(5))));
}

#[tokio::test]
async fn letters_are_put_back_and_removed_and_the_skipped_ones_stay_byte_for_byte() {
    let world = World::new("redrive-1").await;
    let mut consumer = world.consumer();
    // Random bytes of more than one batch of the broker.
    let long: Vec<u8> = (0..=255).cycle().take(1 << 19).collect();
    let bodies: [&[u8]; 5] = [b"\xff{not json\0", b"", &long, b"3", b"4"];
    dead_letter(&world, &mut consumer, &bodies).await;

    // Listing changes nothing.
    for _ in 0..2 {
        let all = listed(&world).await;
        assert_eq!(ids(&all), ["m-0", "m-1", "m-2", "m-3", "m-4"]);
        for ((delivery, of), (body, reason)) in all.iter().zip(bodies.iter().zip(["0", "1", "2", "3", "4"])) {
            is_unchanged(delivery, body);
            assert_eq!(*of, letter(reason));
        }
    }
    let select = |id: &'static str| Redrive::new().only(move |letter| letter.delivery.id.as_deref() == Some(id));
    let removed = select("m-1").discarding().run(&mut letters_of(&world)).await;
    assert_eq!((removed.discarded, removed.failed.is_none()), (1, true), "{removed:?}");
    let redriven = select("m-3").run(&mut letters_of(&world)).await;
    assert_eq!((redriven.put_back, redriven.skipped, redriven.failed.is_none()), (1, 3, true), "{redriven:?}");
    let held = consumer.next().await;
    assert_eq!(held.0.id.as_deref(), Some("m-3"));
    is_unchanged(&held.0, b"3");
    consumer.settle(&held, &Settlement::Ack).await.unwrap();

    let all = until("the copies", async || Some(listed(&world).await).filter(|all| all.len() == 3)).await;
    assert_eq!(ids(&all), ["m-4", "m-0", "m-2"], "the skipped letters moved to the end");
    for ((delivery, of), number) in all.iter().zip([4, 0, 2]) {
        is_unchanged(delivery, bodies[number]);
        assert_eq!(*of, letter(["0", "1", "2", "3", "4"][number]));
    }
    let redriven = Redrive::new().run(&mut letters_of(&world)).await;
    assert_eq!((redriven.put_back, redriven.failed.is_none()), (3, true), "{redriven:?}");
    for number in [4, 0, 2] {
        let held = consumer.next().await;
        is_unchanged(&held.0, bodies[number]);
        consumer.settle(&held, &Settlement::Ack).await.unwrap();
    }
    assert!(listed(&world).await.is_empty());
}

#[tokio::test]
async fn a_redriven_message_runs_again_after_its_key_was_let_go() {
    let world = World::new("redrive-2").await;
    let store = MemoryStore::new();
    let policy = Policy::new().max_retries(0);
    let executor = Executor::builder(Arc::new(store.clone())).policy(Scene::Mq, policy).build().unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |_| {
        let run = counted.fetch_add(1, SeqCst);
        async move { if run == 0 { Err("no stock") } else { Ok(()) } }
    });
    let consumer = Consumer::builder(world.source(), "billing", &executor)
        .schedule(Schedule::list([Duration::from_millis(100)]))
        .build(handling)
        .unwrap();
    let (counters, (stop, stopped)) = (consumer.counters(), oneshot::channel::<()>());
    let task = tokio::spawn(consumer.run(async move { drop(stopped.await) }));
    world.publish(world.message("m", "b")).await;
    let mut letters = letters_of(&world);
    until("the dead letter", async || letters.count().await.is_ok_and(|count| count == 1).then_some(())).await;

    // The key is dead.
    let redriven = Redrive::new().run(&mut letters).await;
    assert_eq!((redriven.put_back, redriven.failed.is_none()), (1, true), "{redriven:?}");
    until("the second death", async || (counters.counts().dead_lettered == 2).then_some(())).await;
    assert_eq!(runs.load(SeqCst), 1);
    until("the dead letter", async || (letters.count().await.unwrap() == 1).then_some(())).await;
    let redriven = Redrive::new().letting_go(store).run(&mut letters).await;
    assert_eq!((redriven.put_back, redriven.failed.is_none()), (1, true), "{redriven:?}");
    until("the message is acknowledged", async || (counters.counts().acked == 1).then_some(())).await;
    assert_eq!((runs.load(SeqCst), letters.count().await.unwrap()), (2, 0));
    letters.close().await;
    stop.send(()).unwrap();
    within("the drain", task).await.unwrap().unwrap();
}

#[tokio::test]
async fn two_sessions_at_once_lose_no_letter() {
    let world = World::new("redrive-3").await;
    let mut consumer = world.consumer();
    dead_letter(&world, &mut consumer, &[b"0", b"1", b"2", b"3"]).await;
    let (mut one, mut other) = (letters_of(&world), letters_of(&world));
    // The other session has the first letter, and the first session passes it.
    other.next().await.unwrap().unwrap();
    one.next().await.unwrap().unwrap();
    one.next().await.unwrap().unwrap();
    assert!(one.put_back().await.unwrap());
    assert!(!other.put_back().await.unwrap(), "the letter has moved to the end");
    other.next().await.unwrap().unwrap();
    assert!(!other.discard().await.unwrap(), "the first session has put the letter back");
    other.next().await.unwrap().unwrap();
    assert!(other.discard().await.unwrap());
    drop((one, other));
    let held = consumer.next().await;
    assert_eq!(held.0.id.as_deref(), Some("m-1"));
    consumer.settle(&held, &Settlement::Ack).await.unwrap();
    until("the letters", async || (ids(&listed(&world).await) == ["m-3", "m-0"]).then_some(())).await;

    // Both sessions put back all letters.
    let (mut one, mut other) = (letters_of(&world), letters_of(&world));
    let all = Redrive::new();
    let (one, other) = tokio::join!(all.run(&mut one), all.run(&mut other));
    assert!(one.failed.is_none() && other.failed.is_none(), "{one:?} {other:?}");
    assert_eq!(one.put_back + other.put_back, 2, "{one:?} {other:?}");
    let mut back = Vec::new();
    for _ in 0..2 {
        let held = consumer.next().await;
        back.push(held.0.id.clone().unwrap());
        consumer.settle(&held, &Settlement::Ack).await.unwrap();
    }
    back.sort();
    assert_eq!(back, ["m-0", "m-3"]);
    assert!(listed(&world).await.is_empty());
}

/// More tries than those of the client.
const TRIES: usize = 20;

fn has(request: &[u8], part: &[u8]) -> bool {
    request.windows(part.len()).any(|window| window == part)
}

/// A message that the topic does not confirm is still a dead letter.
#[tokio::test]
async fn an_unconfirmed_message_is_not_handled() {
    let (server, proxy) = start_with_proxy(Ipv4Addr::new(127, 0, 0, 6)).await;
    let world = World::on(server, "redrive-5").await;
    let mut consumer = world.consumer();
    dead_letter(&world, &mut consumer, &[b"0"]).await;
    let mut letters = letters_of(&world);
    letters.next().await.unwrap().unwrap();
    // The client tries several times.
    for _ in 0..TRIES {
        proxy.fail_next_if(|request| has(request, b"m-0"), Fault::CutBeforeSend);
    }
    let error = letters.put_back().await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Transient, "{error:?}");
    assert!((1..TRIES).contains(&proxy.disarm()) && error.to_string().contains("still a dead letter"), "{error}");
    until("the letter", async || (ids(&listed(&world).await) == ["m-0"]).then_some(())).await;
    assert!(letters.put_back().await.unwrap());
    assert_eq!(consumer.next().await.0.id.as_deref(), Some("m-0"));
}

#[tokio::test]
async fn a_group_without_a_topic_for_dead_letters_is_named_with_the_remedy() {
    let world = World::new("redrive-6").await;
    let mut letters = RocketDeadLetters::new(world.server.url(), "redrive-6", "nobody").unwrap();
    let error = letters.count().await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Transient, "{error:?}");
    assert!(error.to_string().contains("check the group"), "{error:?}");
    letters.close().await;

    let builder = || RocketDeadLetters::builder("rocketmq://localhost", "orders", "billing");
    let error = |builder: idempotent_rocketmq::RocketDeadLettersBuilder| builder.build().unwrap_err().to_string();
    assert!(error(builder().operator_group("billing")).contains("must differ from the group"));
    assert!(error(builder().dead_letter_topic("no.dots")).contains("dead letter topic: the name is not allowed"));
}
