//! Alerts of messages that are given up, by the path that other sources share, and panics of senders and publishers.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{AlertKind, AlertSender, Alerts};
use idempotent_mq::{OutboundMessage, Publish, PublishError, PublishErrorKind, Published};
use idempotent_sqlx::{OutboxStatus, Relay};
use idempotent_testkit::VirtualClock;

use super::world::{World, message};
use crate::outbox::broker::{Bell, Says};

/// Puts messages into the outbox and has them refused until they are due to be given up.
async fn refused(world: &World, ids: &[&str]) {
    world.put(&ids.iter().map(|id| message(id)).collect::<Vec<_>>()).await;
    for id in ids {
        world.broker.say_of(id, Says::Fails(PublishErrorKind::Refused));
    }
    for _ in 0..3 {
        assert_eq!(world.round().await.failed, ids.len());
        world.pass(10);
    }
}

#[tokio::test]
async fn messages_given_up_in_one_round_are_one_alert_with_their_count_before_they_are_marked() {
    let world = World::new().await;
    refused(&world, &["a", "b", "c"]).await;
    let (bell, clock) = (Arc::new(Bell::default()), VirtualClock::new());
    let builder = Alerts::builder().clock(Arc::new(clock.clone())).gather(Duration::from_secs(1));
    let alerts = builder.sender(Ring(bell.clone())).start().unwrap();
    let relay = world.relay().alerts(Arc::new(alerts.clone()));
    assert_eq!((relay.round().await.unwrap().given_up, alerts.counts().raised), (3, 3));
    // The mark waits for the alert, and the round does not.
    assert_eq!((world.status("c").await, bell.alerts().len()), (OutboxStatus::Unconfirmed, 0));
    clock.advance(Duration::from_secs(1)).await;
    // Ends once the messages are marked.
    relay.run(async {}).await;
    let [alert] = &bell.alerts()[..] else { panic!("one alert") };
    assert!(!alert.given_up.unwrap().holds_back, "it has no aggregate");
    assert_eq!((alert.kind, &*alert.scope, alert.count), (AlertKind::MessageGivenUp, &*world.table, 3));
    assert_eq!((alert.source.as_deref(), alert.given_up.unwrap().sends), (Some("orders"), 3));
    assert_eq!(world.status("c").await, OutboxStatus::Dead);
    // Within the window, a fourth one is counted, and the relay does not wait for its alert.
    refused(&world, &["d"]).await;
    assert_eq!(relay.round().await.unwrap().given_up, 1);
    assert_eq!((bell.alerts().len(), alerts.counts().suppressed), (1, 3));
    assert!(alerts.flush(Duration::from_secs(60)).await);
    assert_eq!(bell.alerts().iter().map(|alert| alert.count).collect::<Vec<_>>(), [3, 1]);
}

#[tokio::test]
async fn a_sender_that_never_answers_holds_neither_a_round_nor_the_messages_and_is_counted() {
    let world = World::new().await;
    refused(&world, &["a"]).await;
    world.put(&[message("b")]).await;
    let relay = world.relay().lease(Duration::from_millis(200)).alerts(Arc::new(Breaks(None)));
    let (began, round) = (std::time::Instant::now(), relay.round().await.unwrap());
    assert!((round.given_up, round.sent) == (1, 1) && began.elapsed() < Duration::from_secs(5), "{round:?}");
    let counts = relay.run(async {}).await;
    assert_eq!((counts.given_up, counts.alerts_failed, world.status("a").await), (1, 1, OutboxStatus::Dead));
}

#[tokio::test]
async fn a_sender_that_panics_ends_no_round_and_its_message_is_marked() {
    let world = World::new().await;
    refused(&world, &["a"]).await;
    let relay = world.relay().alerts(Arc::new(Breaks(Some("as told"))));
    assert_eq!(relay.round().await.unwrap().given_up, 1);
    assert_eq!((relay.counts().alerts_failed, world.status("a").await), (1, OutboxStatus::Dead));
}

#[tokio::test]
async fn more_batches_than_the_limit_are_given_up_later_and_with_their_alerts() {
    let world = World::new().await;
    let ids: Vec<_> = (0..9).map(|id| id.to_string()).collect();
    refused(&world, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let relay = world.relay().batch(1).alerts(Arc::new(Breaks(None)));
    for round in 1..=9 {
        assert_eq!(relay.round().await.unwrap().given_up, usize::from(round <= 8), "{round}");
    }
    assert_eq!((world.status("8").await, relay.counts().given_up), (OutboxStatus::Unconfirmed, 8));
}

#[tokio::test]
async fn a_publisher_that_panics_ends_no_round_and_its_messages_are_sent_again() {
    let world = World::new().await;
    world.put(&[message("a")]).await;
    let round = Relay::new(&world.outbox, Arc::new(Breaks(Some("as told")))).round().await.unwrap();
    assert_eq!((round.sent, round.failed, world.status("a").await), (0, 1, OutboxStatus::Unconfirmed));
    world.pass(10);
    assert_eq!(world.round().await.sent, 1);
}

#[async_trait::async_trait]
impl Publish for Breaks {
    async fn publish(&self, _: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        panic!("{:?}", self.0)
    }
}

/// A sender that panics, or never answers.
#[derive(Debug)]
struct Breaks(Option<&'static str>);

#[async_trait::async_trait]
impl AlertSender for Breaks {
    async fn send(&self, _: &idempotent_core::Alert) -> Result<(), idempotent_core::AlertError> {
        match self.0 {
            Some(panic) => panic!("{panic}"),
            None => std::future::pending().await,
        }
    }
}

/// A bell that a test keeps a hand on.
#[derive(Debug)]
struct Ring(Arc<Bell>);

#[async_trait::async_trait]
impl AlertSender for Ring {
    async fn send(&self, alert: &idempotent_core::Alert) -> Result<(), idempotent_core::AlertError> {
        self.0.send(alert).await
    }
}
