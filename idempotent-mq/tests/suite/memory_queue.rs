//! The queue in memory keeps the laws of adapters, and serves tests of handlers.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Clock, Executor, MemoryStore};
use idempotent_mq::{
    Consumer, DeadLetter, DeadLetters, Delivery, KeyFrom, MemoryDeadLetters, MemoryQueue, MemorySource, Message,
    Messages, OutboundMessage, Position, Publish, PublishErrorKind, Schedule,
};
use idempotent_testkit::broker::{self, Broker, Limits};
use idempotent_testkit::{VirtualClock, broker_conformance};

struct Subject(MemoryQueue);

#[async_trait]
impl Broker for Subject {
    type Source = MemorySource;

    fn limits(&self) -> Limits {
        Limits::default()
    }

    async fn source(&self) -> MemorySource {
        self.0.source()
    }

    async fn publish(&self, message: broker::Message) {
        let mut delivery = Delivery::new(Position::of("elsewhere"), message.body).id(message.id);
        delivery.headers = message.headers;
        self.0.send_delivery(delivery);
    }

    async fn dead_letters(&self) -> Vec<(broker::Message, DeadLetter)> {
        let message = |(delivery, letter): (Delivery, DeadLetter)| {
            let mut message = broker::Message::new(delivery.id.unwrap_or_default(), delivery.body);
            message.headers = delivery.headers;
            (message, letter)
        };
        self.0.dead_letters().into_iter().map(message).collect()
    }

    fn letters(&self) -> Box<dyn DeadLetters> {
        Box::new(MemoryDeadLetters::new(&self.0))
    }

    async fn is_empty(&self) -> bool {
        self.0.pending() == 0
    }

    async fn cut(&self) {
        self.0.redeliver();
    }
}

// There is no message that it cannot parse, it never takes a delivery back, and sources always reach it.
broker_conformance!(
    a_queue_in_memory_keeps_the_laws,
    async { Subject(MemoryQueue::new("orders")) },
    without: [
        an_unreadable_message_is_dead_lettered_and_blocks_nothing,
        an_extended_delivery_is_held_beyond_the_brokers_limit,
        a_late_settlement_brings_no_message_back,
        a_drain_during_an_outage_ends_and_each_message_runs_once,
        a_run_that_ends_during_an_outage_is_not_repeated,
        // A delivery has its data in fields, which tests set.
        what_a_producer_wrote_decides_neither_the_attempt_nor_the_queue_of_its_message,
    ]
);

async fn charge(order: Message<u64>) -> Result<(), &'static str> {
    if order.body == 0 { Err("no such order") } else { Ok(()) }
}

fn by_order() -> idempotent_mq::MessageHandler {
    Messages::json().keyed(KeyFrom::body("order", |order: &u64| order.to_string())).run(charge)
}

#[tokio::test]
async fn retries_wait_on_the_clock_of_the_queue_and_end_as_a_dead_letter() {
    let clock = VirtualClock::new();
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let queue = MemoryQueue::new("orders").clock(shared.clone());
    let store = MemoryStore::builder().clock(shared.clone()).build();
    let executor = Executor::builder(store).clock(shared).build().unwrap();
    queue.send("0");
    let consumer = Consumer::builder(queue.source(), "billing", &executor)
        .schedule(Schedule::exponential(Duration::from_secs(60), Duration::from_secs(60)));
    let consuming = tokio::spawn(consumer.build(by_order()).unwrap().run(queue.drained()));
    for run in 1..17 {
        clock.settle().await;
        assert_eq!((executor.counts().of("released"), queue.dead_letters().len()), (run, 0));
        clock.advance(Duration::from_secs(60)).await;
    }
    let counts = consuming.await.unwrap().unwrap();
    assert_eq!((counts.retried, counts.dead_lettered, queue.pending()), (16, 1, 0));
    let (delivery, letter) = queue.dead_letters().remove(0);
    assert_eq!((delivery.body.as_slice(), delivery.delivered, letter.attempts), (b"0".as_slice(), Some(17), 17));
}

#[tokio::test]
async fn published_messages_keep_their_fields_and_wait_for_their_time() {
    let clock = VirtualClock::new();
    let queue = MemoryQueue::new("orders").clock(Arc::new(clock.clone()));
    assert!(queue.delays());
    let due = clock.wall() + Duration::from_secs(5);
    let later = OutboundMessage::new("orders", "m-1", "1").header("trace", "abc").business_key("o-1").deliver_at(due);
    let elsewhere = OutboundMessage::new("invoices", "m-2", "2");
    let mut published = queue.publish(&[later, elsewhere]).await;
    let refused = published.pop().unwrap().unwrap_err();
    assert_eq!(refused.kind(), PublishErrorKind::Refused);
    assert!(refused.to_string().contains("the topic is `invoices`, and the queue in memory is `orders`"), "{refused}");
    let position = published.pop().unwrap().unwrap().position.unwrap();

    let mut source = queue.source();
    let received = tokio::spawn(async move { idempotent_mq::Source::receive(&mut source, 10).await.unwrap() });
    clock.advance(Duration::from_millis(4999)).await;
    assert!(!received.is_finished());
    clock.advance(Duration::from_millis(1)).await;
    let idempotent_mq::Received::Deliveries(received) = received.await.unwrap() else { panic!("deliveries") };
    let [(delivery, _)] = &*received else { panic!("one delivery") };
    assert_eq!((delivery.id.as_deref(), delivery.business_key.as_deref()), (Some("m-1"), Some("o-1")));
    assert_eq!((delivery.headers.first("trace"), &delivery.position), (Some(b"abc".as_slice()), &position));
}

#[test]
fn debug_output_shows_no_message() {
    let queue = MemoryQueue::new("orders");
    queue.send("secret");
    assert_eq!(format!("{queue:?}"), "MemoryQueue { name: \"orders\", pending: 1, dead_letters: 0, .. }");
}

#[tokio::test]
async fn a_delivery_of_a_test_gets_the_position_of_the_queue_and_keeps_its_other_fields() {
    let queue = MemoryQueue::new("orders");
    let elsewhere = idempotent_mq::Position::of("invoices").offset(7);
    let mut delivery = idempotent_mq::Delivery::new(elsewhere, b"{}".to_vec()).id("m-1");
    delivery.deaths = 2;
    queue.send_delivery(delivery);
    assert_eq!(queue.pending(), 1);
    let received = idempotent_mq::Source::receive(&mut queue.source(), 1).await.unwrap();
    let idempotent_mq::Received::Deliveries(received) = received else { panic!("deliveries") };
    let (delivery, _) = &received[0];
    assert_eq!((&*delivery.position.source, delivery.id.as_deref(), delivery.deaths), ("orders", Some("m-1"), 2));
}

#[tokio::test]
async fn a_letter_must_be_read_before_it_is_changed() {
    use idempotent_mq::{DeadLetters, MemoryDeadLetters};
    let mut letters = MemoryDeadLetters::new(&MemoryQueue::new("orders"));
    for refused in [letters.discard().await, letters.put_back().await] {
        assert!(refused.unwrap_err().to_string().contains("call `next` first"));
    }
}
