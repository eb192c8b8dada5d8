//! Many messages at once, as an outbox's relay sends them.
use std::time::Duration;

use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_mq::{OutboundMessage, Publish, PublishError, PublishErrorKind, Published};
use idempotent_rabbitmq::{RabbitPublisher, RabbitPublisherBuilder};

use crate::broker::world::{SERVER, World, ms, within};

fn publisher(url: &str) -> RabbitPublisherBuilder {
    RabbitPublisher::builder(url).confirm_within(ms(2_000)).give_up_after(Duration::from_secs(30))
}

/// After it a relay's messages go together: one has got through.
async fn proven(publisher: &RabbitPublisher, queue: &str) {
    let first = [OutboundMessage::new(queue, "first", "{}")];
    assert!(within("an answer", Publish::publish(publisher, &first)).await[0].is_ok());
}

fn kinds(told: &[Result<Published, PublishError>]) -> Vec<Option<PublishErrorKind>> {
    told.iter().map(|told| told.as_ref().err().map(PublishError::kind)).collect()
}

/// The client assigns returned messages to the wrong confirms; `publisher` counts 20 of 680.
#[tokio::test]
async fn of_many_on_one_channel_those_that_nobody_takes_are_told_and_no_others() {
    let world = World::new("together").await;
    world.declare("together").await;
    let publisher = publisher(&SERVER.url()).in_flight(1).build().unwrap();
    proven(&publisher, "together").await;
    let mut sent = 1;
    for round in 0..20 {
        let message = |n: u32| {
            let there = !(n + round).is_multiple_of(3);
            OutboundMessage::new(if there { "together" } else { "together.missing" }, format!("{round}-{n}"), "{}")
        };
        // More than go on one channel at a time.
        let messages: Vec<_> = (0..200).map(message).collect();
        let told = within("all answers", Publish::publish(&publisher, &messages)).await;
        for (message, told) in messages.iter().zip(kinds(&told)) {
            let there = message.topic == "together";
            assert_eq!(told, (!there).then_some(PublishErrorKind::Refused), "{} to {}", message.id, message.topic);
            sent += u32::from(there);
        }
    }
    let ids = world.ids().await;
    assert!(ids.values().all(|times| *times == 1), "none was sent again");
    assert_eq!(u32::try_from(ids.len()), Ok(sent));
}

#[tokio::test]
async fn of_one_aggregate_the_order_is_kept_and_one_that_nobody_takes_keeps_back_the_rest() {
    let world = World::new("chains").await;
    world.declare("chains").await;
    let publisher = publisher(&SERVER.url()).build().unwrap();
    proven(&publisher, "chains").await;
    let of =
        |aggregate: &str, n: u32| OutboundMessage::new("chains", format!("{aggregate}{n}"), "{}").aggregate(aggregate);
    let mut messages: Vec<_> = (0..8).flat_map(|n| ["a", "b", "c"].map(|aggregate| of(aggregate, n))).collect();
    // The fourth of `b`.
    messages[10].topic = "chains.missing".to_owned();
    let told = within("all answers", Publish::publish(&publisher, &messages)).await;
    for (at, (message, told)) in messages.iter().zip(kinds(&told)).enumerate() {
        let expected = match (message.aggregate.as_deref(), at) {
            (Some("b"), 10) => Some(PublishErrorKind::Refused),
            (Some("b"), 11..) => Some(PublishErrorKind::Unsent),
            _ => None,
        };
        assert_eq!(told, expected, "{}", message.id);
    }
    let mut came = Vec::new();
    while let Some(message) = world.take("chains").await {
        came.push(message.properties.message_id().as_ref().unwrap().to_string());
    }
    for (aggregate, count) in [("a", 8), ("b", 3), ("c", 8)] {
        let of_it: Vec<_> = came.iter().filter(|id| id.starts_with(aggregate)).cloned().collect();
        assert_eq!(of_it, (0..count).map(|n| format!("{aggregate}{n}")).collect::<Vec<_>>());
    }
}

/// An exchange that is not there closes the channel of all that share it.
#[tokio::test]
async fn an_exchange_that_is_missing_refuses_its_own_messages_and_no_others() {
    let world = World::new("apart").await;
    world.declare("apart").await;
    let publisher = publisher(&SERVER.url()).build().unwrap();
    proven(&publisher, "apart").await;
    let topic = |n: u32| if n.is_multiple_of(4) { "apart.missing/key" } else { "apart" };
    let messages: Vec<_> = (0..40).map(|n| OutboundMessage::new(topic(n), format!("m{n}"), "{}")).collect();
    for _ in 0..2 {
        let told = kinds(&within("all answers", Publish::publish(&publisher, &messages)).await);
        for (message, told) in messages.iter().zip(told) {
            let refused = (message.topic != "apart").then_some(PublishErrorKind::Refused);
            assert_eq!(told, refused, "{} to {}", message.id, message.topic);
        }
    }
    let ids = world.ids().await;
    assert!(ids.len() == 31 && ids.iter().all(|(id, times)| *times == if id == "first" { 1 } else { 2 }), "{ids:?}");
}

#[tokio::test]
async fn what_was_not_confirmed_together_is_sent_again_one_by_one_under_its_id() {
    let world = World::new("undone").await;
    world.declare("undone").await;
    for fault in [Fault::CutBeforeSend, Fault::CutAfterApply, Fault::HalfOpen] {
        let proxy = Proxy::start(&SERVER.address()).await;
        let publisher = publisher(&format!("amqp://guest:guest@{}/%2f", proxy.address())).build().unwrap();
        proven(&publisher, "undone").await;
        let messages: Vec<_> = (0..50).map(|n| OutboundMessage::new("undone", format!("m{n}"), "{}")).collect();
        proxy.fail_next_with([0, 60, 0, 40], fault);
        let told = within("all answers", Publish::publish(&publisher, &messages)).await;
        assert!(told.iter().all(Result::is_ok), "{fault:?}: {:?}", kinds(&told));
        within("the fault", proxy.until_met(1)).await;
        let ids = world.ids().await;
        assert_eq!(ids.len(), 51, "{fault:?}");
        assert!(ids.values().all(|times| *times <= 2), "{fault:?}: {ids:?}");
    }
}

/// A relay whose call is dropped counts all messages as perhaps sent, so an outage would use up their resends.
#[tokio::test]
async fn while_the_broker_is_away_all_of_many_are_told_unsent_in_the_time_of_one() {
    let publisher =
        RabbitPublisher::builder("amqp://guest:guest@127.0.0.1:1/%2f").in_flight(1).confirm_within(ms(1_000));
    let publisher = publisher.give_up_after(ms(2_000)).build().unwrap();
    let messages: Vec<_> = (0..100).map(|n| OutboundMessage::new("away", format!("m{n}"), "{}")).collect();
    let told = within("all answers", Publish::publish(&publisher, &messages)).await;
    assert_eq!(kinds(&told), vec![Some(PublishErrorKind::Unsent); 100]);
}

/// A password that is wrong for a while must not use the sendings of an outbox up.
#[tokio::test]
async fn where_the_connection_is_refused_all_of_many_are_unsent() {
    let url = SERVER.url().replace("guest:guest@", "guest:wrong@");
    let messages: Vec<_> = (0..2).map(|n| OutboundMessage::new("refused", format!("m{n}"), "{}")).collect();
    let answers = within("all answers", Publish::publish(&publisher(&url).build().unwrap(), &messages)).await;
    assert_eq!(kinds(&answers), vec![Some(PublishErrorKind::Unsent); 2]);
}
