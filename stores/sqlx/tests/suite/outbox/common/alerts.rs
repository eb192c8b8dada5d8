//! Alerts of messages that are given up, by the path that other sources share.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{AlertKind, AlertSender, Alerts};
use idempotent_mq::PublishErrorKind;
use idempotent_sqlx::OutboxStatus;
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
    let gathered = async {
        while alerts.counts().raised < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The relay waits for the alert with its mark.
        assert_eq!((world.status("c").await, bell.alerts().len()), (OutboxStatus::Unconfirmed, 0));
        clock.advance(Duration::from_secs(1)).await;
    };
    let (round, ()) = tokio::join!(relay.round(), gathered);
    assert_eq!(round.unwrap().given_up, 3);
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

/// A bell that a test keeps a hand on.
#[derive(Debug)]
struct Ring(Arc<Bell>);

#[async_trait::async_trait]
impl AlertSender for Ring {
    async fn send(&self, alert: &idempotent_core::Alert) -> Result<(), idempotent_core::AlertError> {
        self.0.send(alert).await
    }
}
