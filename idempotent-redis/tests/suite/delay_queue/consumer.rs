//! The consumer runtime with this queue, on the server's own clock.
use idempotent_core::{Executor, MemoryStore};
use idempotent_harness::servers::{RedisCluster, RedisServer};
use idempotent_mq::{OutboundMessage, Publish, PublishErrorKind};
use idempotent_redis::{DelayMessage, DelayProducer, DelayQueue, DelaySource};
use idempotent_testkit::broker::testing::{Running, billing, counting};

use crate::delay_queue::world::{MINUTE, ms, new};
use crate::support::until;

#[tokio::test]
async fn settled_messages_leave_nothing_on_the_server() {
    let server = RedisServer::start();
    let queue = DelayQueue::connect(server.url(), "orders").await.unwrap();
    let executor = Executor::new(MemoryStore::new());
    let running = Running::new(billing(DelaySource::new(&queue), &executor).build(counting().0).unwrap());
    for number in 0..20 {
        let body = number.to_string();
        new(queue.send(&DelayMessage::after(ms(1), body.as_str()).id(format!("i{number}"))).await.unwrap());
        queue.send(&DelayMessage::merged("k", ms(1), body.as_str())).await.unwrap();
        new(queue.send(&DelayMessage::priority(20 + number, body)).await.unwrap());
    }
    until("nothing is left", async || {
        let counts = queue.counts().await.unwrap();
        counts.ready + counts.waiting + counts.in_flight == 0
    })
    .await;
    running.ended().await.unwrap();
    let left = server.command(&["KEYS", "*"]);
    let left: Vec<_> = left.items().iter().map(|key| key.text()).collect();
    assert_eq!(left, ["idempotent:delay:{orders:0}:meta"], "two numbers of the slot, and no collector");
}

#[tokio::test]
async fn a_producer_sends_to_the_messages_topic_and_keeps_the_order_of_an_aggregate() {
    let cluster = RedisCluster::start(3);
    let queue = DelayQueue::builder(cluster.url(), "orders").slots(8).connect().await.unwrap();
    let producer = DelayProducer::new(&queue);
    let message = |number: usize| {
        OutboundMessage::new("bills{x}", format!("m{number}"), number.to_string())
            .aggregate(format!("order-{}", number % 3))
            .business_key("b")
            .header("h", "v")
    };
    let mut messages: Vec<_> = (0..30).map(message).collect();
    messages.insert(10, OutboundMessage::new("bills{x}", "", "refused").aggregate("order-1"));
    let published = producer.publish(&messages).await;
    for (at, published) in published.iter().enumerate() {
        let of_the_chain = messages[at].aggregate.as_deref() == Some("order-1");
        match published {
            Ok(published) => {
                assert!(at < 10 || !of_the_chain);
                assert_eq!(&*published.position.as_ref().unwrap().source, "bills{x}");
            }
            Err(error) if at == 10 => assert_eq!(error.kind(), PublishErrorKind::Refused),
            Err(error) => assert_eq!((error.kind(), of_the_chain && at > 10), (PublishErrorKind::Unsent, true)),
        }
    }
    // The same ids: existing messages stay unchanged.
    messages.remove(10);
    assert!(producer.publish(&messages).await.iter().all(Result::is_ok));
    let bills = queue.for_topic("bills{x}").unwrap();
    let mut taken = Vec::new();
    let mut receiver = bills.receiver();
    while taken.len() < 30 {
        taken.extend(tokio::time::timeout(MINUTE, receiver.receive(7)).await.unwrap().unwrap());
    }
    assert_eq!((taken.len(), bills.counts().await.unwrap().ready), (30, 0));
    for aggregate in 0..3 {
        let numbers: Vec<usize> = taken
            .iter()
            .map(|taken| String::from_utf8(taken.body.clone()).unwrap().parse().unwrap())
            .filter(|number| number % 3 == aggregate)
            .collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
    assert_eq!((taken[0].business_key.as_deref(), taken[0].headers.first("h")), (Some("b"), Some(&b"v"[..])));
    assert_eq!(queue.counts().await.unwrap().ready, 0, "nothing in the producer's own topic");
}
