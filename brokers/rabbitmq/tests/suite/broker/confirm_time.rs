//! The default time to wait for a confirm, on a clock that the test moves.
use std::collections::BTreeMap;
use std::time::Duration;

use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_mq::{OutboundMessage, Publish};
use idempotent_rabbitmq::RabbitPublisher;
use tokio::task::yield_now;

use crate::broker::publisher::PUBLISH;
use crate::broker::world::{SERVER, World, ms, within};

const DEFAULT: Duration = Duration::from_secs(5);

/// Moves the clock and lets all tasks run that this has woken.
async fn advance(by: Duration) {
    tokio::time::advance(by).await;
    for _ in 0..100 {
        yield_now().await;
    }
}

async fn publish(publisher: &RabbitPublisher, id: &str) {
    let results = Publish::publish(publisher, &[OutboundMessage::new("defaults", id, "{}")]).await;
    assert!(results[0].is_ok(), "{results:?}");
}

#[tokio::test]
async fn an_outbox_message_without_a_confirm_is_sent_again_after_five_seconds_by_default() {
    let world = World::new("defaults").await;
    world.declare("defaults").await;
    let proxy = Proxy::start(&SERVER.address()).await;
    let url = format!("amqp://guest:guest@{}/%2f", proxy.address());
    let publisher = RabbitPublisher::builder(&url).build().unwrap();
    publish(&publisher, "first").await;
    proxy.fail_next_with(PUBLISH, Fault::HalfOpen);
    tokio::time::pause();
    let lines = idempotent_harness::LogLines::default();
    let _logs = idempotent_harness::logs_to(lines.clone());
    let sent = tokio::spawn(async move { publish(&publisher, "second").await });
    // A runtime with a task to run does not move its clock by itself.
    while proxy.met() == 0 {
        yield_now().await;
    }
    advance(DEFAULT - ms(10)).await;
    let resent = || lines.text().contains("idempotent WARN");
    assert!(!resent(), "sent again before the default time");
    advance(ms(20)).await;
    assert!(resent(), "not sent again after the default time");
    tokio::time::resume();
    within("a confirm", sent).await.unwrap();
    assert_eq!(proxy.passed().connections, 2);
    assert_eq!(world.ids().await, BTreeMap::from([("first".to_owned(), 1), ("second".to_owned(), 1)]));
}
