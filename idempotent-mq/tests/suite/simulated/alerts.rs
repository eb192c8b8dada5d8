//! Alerts of dead letters, from real consumers on the simulated broker.
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use idempotent_core::{Alert, AlertError, AlertKind, AlertSender, Alerts, Policy};
use idempotent_mq::{HandlerResult, KeyFrom, Message, Messages, SourceErrorKind};

use crate::world::{Job, World, again, ms, secs};

/// A sender that keeps the alerts.
#[derive(Clone, Debug, Default)]
struct Inbox(Arc<Mutex<Vec<Alert>>>);

impl Inbox {
    fn take(&self) -> Vec<Alert> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[async_trait]
impl AlertSender for Inbox {
    async fn send(&self, alert: &Alert) -> Result<(), AlertError> {
        self.0.lock().unwrap().push(alert.clone());
        Ok(())
    }
}

fn alerts(world: &World) -> (Alerts, Inbox) {
    let inbox = Inbox::default();
    let builder = Alerts::builder().clock(Arc::new(world.clock.clone())).gather(secs(1)).window(secs(300));
    (builder.sender(inbox.clone()).start().unwrap(), inbox)
}

/// Starts a consumer with alerts whose handler refuses each message.
async fn refusing() -> (World, Alerts, Inbox) {
    let world = World::new();
    let (alerts, inbox) = alerts(&world);
    let job = Job::ends(&world, ms(10), |_| HandlerResult::Never { reason: "card 4111 declined".into() });
    world.consume_by(Policy::new(), job.by_id(), |builder| builder.alerts(&alerts)).await;
    (world, alerts, inbox)
}

#[tokio::test]
async fn a_dead_letter_gives_one_alert_without_its_id_and_with_the_reason_as_detail() {
    let (world, _alerts, inbox) = refusing().await;
    world.broker.send("secret-id", "{}");
    world.clock.advance(secs(600)).await;
    let [alert] = &inbox.take()[..] else { panic!("one alert") };
    assert_eq!((alert.kind, &*alert.scope, alert.count), (AlertKind::DeadLetter, "billing", 1));
    assert_eq!((alert.source.as_deref(), alert.detail()), (Some("orders"), Some("card 4111 declined")));
    assert!(!format!("{alert:?} {} {:?}", alert.summary(), alert.detail()).contains("secret-id"));
}

#[tokio::test]
async fn ten_dead_letters_within_a_window_give_one_alert_with_their_count() {
    let (world, alerts, inbox) = refusing().await;
    world.broker.send_numbered(10);
    world.clock.advance(secs(299)).await;
    let [alert] = &inbox.take()[..] else { panic!("one alert") };
    assert_eq!((alert.count, world.broker.dead().len()), (10, 10));
    assert_eq!((alerts.counts().raised, alerts.counts().suppressed), (10, 9));
    // An additional alert within the window is sent at the end of the window.
    world.broker.send("m11", "{}");
    world.clock.advance(secs(1)).await;
    assert!(inbox.take().is_empty());
    world.clock.advance(secs(2)).await;
    assert_eq!(inbox.take().iter().map(|alert| alert.count).collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn a_message_that_cannot_be_read_gives_an_alert_too_and_retries_give_none() {
    let world = World::new();
    let (alerts, inbox) = alerts(&world);
    let handling = Messages::json().keyed(KeyFrom::message_id()).run(|_: Message<u32>| async { again(0) });
    world.consume_by(Policy::new(), handling, |builder| builder.alerts(&alerts)).await;
    world.broker.send("m1", "7");
    world.clock.advance(secs(2)).await;
    assert!(inbox.take().is_empty() && !world.broker.retries("m1").is_empty());
    world.broker.send("m2", "card 4111");
    world.clock.advance(secs(2)).await;
    let [alert] = &inbox.take()[..] else { panic!("one alert") };
    assert!(alert.kind == AlertKind::DeadLetter && !alert.detail().unwrap().contains("4111"));
}

#[tokio::test]
async fn a_dead_letter_that_the_source_refuses_gives_no_alert_until_it_is_kept() {
    let (world, _alerts, inbox) = refusing().await;
    world.broker.fail_settling(SourceErrorKind::Fatal, 1);
    world.broker.send("m1", "{}");
    world.clock.advance(secs(100)).await;
    assert!(inbox.take().is_empty() && world.broker.dead().is_empty());
    world.clock.advance(secs(400)).await;
    assert_eq!((inbox.take().len(), world.broker.dead().len()), (1, 1));
}
