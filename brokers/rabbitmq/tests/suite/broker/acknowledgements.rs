//! Joint acknowledgements.
use std::collections::BTreeSet;

use futures_util::future::try_join_all;
use idempotent_core::Timestamp;
use idempotent_mq::{Received, Retry, Settlement, Source};
use idempotent_rabbitmq::RabbitTag;

use crate::broker::world::{World, ms, named, until, within};

#[tokio::test]
async fn a_joint_acknowledgement_covers_no_held_returned_or_retried_delivery() {
    let world = World::new("joined").await;
    world.declare("joined").await;
    const ALL: usize = 40;
    for number in 1..=ALL {
        world.send(b"{}", named(&number.to_string())).await;
    }
    let mut source = world.source();
    let mut held: Vec<(idempotent_mq::Delivery, RabbitTag)> = Vec::new();
    while held.len() < ALL {
        match within("deliveries", source.receive(ALL - held.len())).await.unwrap() {
            Received::Deliveries(some) => held.extend(some),
            other => panic!("{other:?}"),
        }
    }
    let settler = source.settler();
    // Of ten deliveries, one is held, one given back, and one retried. The others are acknowledged at once, in reverse
    // order.
    let settlement = |at: usize| match at % 10 {
        3 => None,
        5 => Some(Settlement::GiveBack),
        7 => Some(Settlement::Retry(Retry::after(ms(100), Timestamp(1)))),
        _ => Some(Settlement::Ack),
    };
    let settling = held.iter().enumerate().rev().filter_map(|(at, (delivery, tag))| {
        let (settler, settlement) = (&settler, settlement(at)?);
        Some(async move { settler.settle(delivery, tag, &settlement).await })
    });
    within("all are settled", try_join_all(settling)).await.unwrap();
    // A second settlement has no effect and does not close the channel.
    for at in [0, 5, 7] {
        settler.settle(&held[at].0, &held[at].1, &Settlement::Ack).await.unwrap();
    }
    // Dropping the tags gives the unsettled deliveries back, and does not close the channel either.
    held.retain(|(delivery, _)| delivery.id.as_deref() == Some("4"));
    until("a dropped delivery comes again", async || match within("deliveries", source.receive(ALL)).await.unwrap() {
        Received::Deliveries(some) => {
            some.iter().any(|(delivery, _)| delivery.id.as_deref() == Some("34")).then_some(())
        }
        other => panic!("{other:?}"),
    })
    .await;
    world.send(b"{}", named("last")).await;
    until("the channel lives", async || match within("deliveries", source.receive(ALL)).await.unwrap() {
        Received::Deliveries(some) => {
            let last = some.iter().find(|(delivery, _)| delivery.id.as_deref() == Some("last"));
            settler.settle(&last?.0, &last?.1, &Settlement::Ack).await.unwrap();
            Some(())
        }
        other => panic!("{other:?}"),
    })
    .await;
    source.close().await;
    drop((source, settler, held));
    let mut left = BTreeSet::new();
    until("the others come again", async || {
        while let Some(message) = world.take("joined").await {
            left.insert(message.properties.message_id().as_ref().unwrap().as_str().parse::<usize>().unwrap() - 1);
        }
        (left.len() == 12).then_some(())
    })
    .await;
    assert_eq!(left, (0..ALL).filter(|at| [3, 5, 7].contains(&(at % 10))).collect());
}
