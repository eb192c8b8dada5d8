//! Publishing many messages at a time, as the relay of an outbox does.
use std::time::Duration;

use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_mq::{OutboundMessage, Publish, PublishError, PublishErrorKind, Published};
use idempotent_rabbitmq::{RabbitPublisher, RabbitPublisherBuilder};

use crate::broker::world::{SERVER, World, ms, within};

fn publisher(url: &str) -> RabbitPublisherBuilder {
    RabbitPublisher::builder(url).confirm_within(ms(2_000)).give_up_after(Duration::from_secs(30))
}

/// Publishes a first message, so that later messages to the same exchange share channels.
async fn prove(publisher: &RabbitPublisher, queue: &str) {
    let first = [OutboundMessage::new(queue, "first", "{}")];
    assert!(within("an answer", Publish::publish(publisher, &first)).await[0].is_ok());
}

fn kinds(results: &[Result<Published, PublishError>]) -> Vec<Option<PublishErrorKind>> {
    results.iter().map(|result| result.as_ref().err().map(PublishError::kind)).collect()
}

/// The client assigns returned messages to the wrong confirms, about 20 of 680 in the tests of `publisher`.
#[tokio::test]
async fn only_the_unroutable_messages_of_a_batch_fail() {
    let world = World::new("together").await;
    world.declare("together").await;
    let publisher = publisher(&SERVER.url()).in_flight(1).build().unwrap();
    prove(&publisher, "together").await;
    let mut sent = 1;
    for round in 0..20 {
        let message = |n: u32| {
            let there = !(n + round).is_multiple_of(3);
            OutboundMessage::new(if there { "together" } else { "together.missing" }, format!("{round}-{n}"), "{}")
        };
        // More messages than a batch may have.
        let messages: Vec<_> = (0..200).map(message).collect();
        let results = within("all answers", Publish::publish(&publisher, &messages)).await;
        for (message, kind) in messages.iter().zip(kinds(&results)) {
            let there = message.topic == "together";
            assert_eq!(kind, (!there).then_some(PublishErrorKind::Refused), "{} to {}", message.id, message.topic);
            sent += u32::from(there);
        }
    }
    let ids = world.ids().await;
    assert!(ids.values().all(|times| *times == 1), "none was sent again");
    assert_eq!(u32::try_from(ids.len()), Ok(sent));
}

#[tokio::test]
async fn the_order_of_an_aggregate_is_kept_and_an_unroutable_message_stops_the_rest() {
    let world = World::new("chains").await;
    world.declare("chains").await;
    let publisher = publisher(&SERVER.url()).build().unwrap();
    prove(&publisher, "chains").await;
    let of =
        |aggregate: &str, n: u32| OutboundMessage::new("chains", format!("{aggregate}{n}"), "{}").aggregate(aggregate);
    let mut messages: Vec<_> = (0..8).flat_map(|n| ["a", "b", "c"].map(|aggregate| of(aggregate, n))).collect();
    // The fourth message of `b`.
    messages[10].topic = "chains.missing".to_owned();
    let results = within("all answers", Publish::publish(&publisher, &messages)).await;
    for (at, (message, kind)) in messages.iter().zip(kinds(&results)).enumerate() {
        let expected = match (message.aggregate.as_deref(), at) {
            (Some("b"), 10) => Some(PublishErrorKind::Refused),
            (Some("b"), 11..) => Some(PublishErrorKind::Unsent),
            _ => None,
        };
        assert_eq!(kind, expected, "{}", message.id);
    }
    let mut received = Vec::new();
    while let Some(message) = world.take("chains").await {
        received.push(message.properties.message_id().as_ref().unwrap().to_string());
    }
    for (aggregate, count) in [("a", 8), ("b", 3), ("c", 8)] {
        let of_it: Vec<_> = received.iter().filter(|id| id.starts_with(aggregate)).cloned().collect();
        assert_eq!(of_it, (0..count).map(|n| format!("{aggregate}{n}")).collect::<Vec<_>>());
    }
}

/// Publishing to a missing exchange closes the channel, which other messages share.
#[tokio::test]
async fn a_missing_exchange_refuses_its_own_messages_and_no_others() {
    let world = World::new("apart").await;
    world.declare("apart").await;
    let publisher = publisher(&SERVER.url()).build().unwrap();
    prove(&publisher, "apart").await;
    let topic = |n: u32| if n.is_multiple_of(4) { "apart.missing/key" } else { "apart" };
    let messages: Vec<_> = (0..40).map(|n| OutboundMessage::new(topic(n), format!("m{n}"), "{}")).collect();
    for _ in 0..2 {
        let results = kinds(&within("all answers", Publish::publish(&publisher, &messages)).await);
        for (message, kind) in messages.iter().zip(results) {
            let refused = (message.topic != "apart").then_some(PublishErrorKind::Refused);
            assert_eq!(kind, refused, "{} to {}", message.id, message.topic);
        }
    }
    let ids = world.ids().await;
    assert!(ids.len() == 31 && ids.iter().all(|(id, times)| *times == if id == "first" { 1 } else { 2 }), "{ids:?}");
}

#[tokio::test]
async fn an_unconfirmed_batch_is_sent_again_one_by_one_with_the_same_ids() {
    let world = World::new("undone").await;
    world.declare("undone").await;
    for fault in [Fault::CutBeforeSend, Fault::CutAfterApply, Fault::HalfOpen] {
        let proxy = Proxy::start(&SERVER.address()).await;
        let publisher = publisher(&format!("amqp://guest:guest@{}/%2f", proxy.address())).build().unwrap();
        prove(&publisher, "undone").await;
        let messages: Vec<_> = (0..50).map(|n| OutboundMessage::new("undone", format!("m{n}"), "{}")).collect();
        proxy.fail_next_with([0, 60, 0, 40], fault);
        let results = within("all answers", Publish::publish(&publisher, &messages)).await;
        assert!(results.iter().all(Result::is_ok), "{fault:?}: {:?}", kinds(&results));
        within("the fault", proxy.until_met(1)).await;
        let ids = world.ids().await;
        assert_eq!(ids.len(), 51, "{fault:?}");
        assert!(ids.values().all(|times| *times <= 2), "{fault:?}: {ids:?}");
    }
}

/// A relay without a result in time would count all messages as possibly sent, and an outage would use up their
/// resends.
#[tokio::test]
async fn all_messages_of_a_call_are_unsent_in_the_time_of_one_while_the_broker_is_unreachable() {
    let publisher =
        RabbitPublisher::builder("amqp://guest:guest@127.0.0.1:1/%2f").in_flight(1).confirm_within(ms(1_000));
    let publisher = publisher.give_up_after(ms(2_000)).build().unwrap();
    let messages: Vec<_> = (0..100).map(|n| OutboundMessage::new("away", format!("m{n}"), "{}")).collect();
    let results = within("all answers", Publish::publish(&publisher, &messages)).await;
    assert_eq!(kinds(&results), vec![Some(PublishErrorKind::Unsent); 100]);
}

/// A wrong password must not use up the attempts of an outbox.
#[tokio::test]
async fn all_messages_are_unsent_if_the_connection_is_refused() {
    let url = SERVER.url().replace("guest:guest@", "guest:wrong@");
    let messages: Vec<_> = (0..2).map(|n| OutboundMessage::new("refused", format!("m{n}"), "{}")).collect();
    let answers = within("all answers", Publish::publish(&publisher(&url).build().unwrap(), &messages)).await;
    assert_eq!(kinds(&answers), vec![Some(PublishErrorKind::Unsent); 2]);
}
