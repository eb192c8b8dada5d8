//! An alarm of the broker, during which it reads nothing from connections that publish.
use std::sync::Arc;

use idempotent_core::{MemoryStore, Policy, Timestamp};
use idempotent_mq::{
    HandlerResult, KeyFrom, Messages, OutboundMessage, PublishErrorKind, Retry, Settlement, Source, SourceErrorKind,
};
use idempotent_rabbitmq::{Queue, RabbitPublisher};

use crate::broker::world::{Log, Process, SERVER, World, executor, ms, until, within};

/// A raised alarm, which ends with the drop.
struct MemoryAlarm;

impl MemoryAlarm {
    async fn raise() -> Self {
        Self::set_limit("0.0").await;
        until("the alarm", async || Self::is_raised().await.then_some(())).await;
        Self
    }

    async fn end(self) {
        drop(self);
        until("the end of the alarm", async || (!Self::is_raised().await).then_some(())).await;
    }

    async fn set_limit(limit: &'static str) {
        let set = move || {
            SERVER.eval(&format!("_ = vm_memory_monitor:set_vm_memory_high_watermark({limit}), \"done\"."));
        };
        tokio::task::spawn_blocking(set).await.unwrap();
    }

    async fn is_raised() -> bool {
        let alarms = || SERVER.eval("integer_to_list(length(rabbit_alarm:get_alarms())).");
        tokio::task::spawn_blocking(alarms).await.unwrap() != "0"
    }
}

impl Drop for MemoryAlarm {
    fn drop(&mut self) {
        SERVER.eval("_ = vm_memory_monitor:set_vm_memory_high_watermark({absolute, \"512MB\"}), \"done\".");
    }
}

#[tokio::test]
async fn a_failing_message_stops_no_acknowledgement_during_an_alarm_and_its_copy_is_delivered_once_after_it() {
    let world = World::alone("alarm.copies").await;
    world.source().declare().await.unwrap();
    for id in ["bad", "1", "2", "3", "4", "5", "6", "7", "8"] {
        world.send_id(id).await;
    }
    let alarm = MemoryAlarm::raise().await;
    let log = Arc::new(Log::default());
    let seen = log.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message| {
        seen.note(&message);
        let fails = message.delivery.id.as_deref() == Some("bad") && message.delivery.attempt == Some(1);
        async move {
            match fails {
                true => HandlerResult::Again { after: None, error: "no stock".into() },
                false => HandlerResult::Done,
            }
        }
    });
    let executor = executor(&Arc::new(MemoryStore::new()), Policy::new());
    let process = Process::start(world.source(), "billing", &executor, handling, |b| b);
    process.until("the other messages are acknowledged", |counts| counts.acked == 8).await;
    process.until("the alarm is counted", |counts| counts.source_errors > 0).await;
    process.until("the consumer gives up settling", |counts| counts.unsettled == 1).await;
    alarm.end().await;
    process.until("the retry runs", |counts| counts.acked == 9).await;
    let messages = || tokio::task::spawn_blocking(|| SERVER.queues("/", "messages"));
    until("nothing is left", async || {
        let messages = messages().await.unwrap();
        messages.iter().all(|(name, left)| !name.starts_with("alarm.copies") || *left == 0).then_some(())
    })
    .await;
    let counts = process.stop().await;
    assert_eq!((log.runs(), counts.received, counts.deferred), (10, 10, 0), "no second copy");
}

#[tokio::test]
async fn a_settlement_during_an_alarm_names_the_alarm_and_its_copy_is_stored_after_it() {
    let world = World::alone("alarm.named").await;
    let mut source = world.opened(Queue::quorum("alarm.named")).await;
    world.send_id("m").await;
    let held = source.next().await;
    let lines = idempotent_harness::LogLines::default();
    let _logs = idempotent_harness::logs_to(lines.clone());
    let alarm = MemoryAlarm::raise().await;
    let retry = || Settlement::Retry(Retry::after(ms(100), Timestamp(1)));
    for _ in 0..3 {
        let error = source.settle(&held, retry()).await.unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Transient);
        assert!(error.to_string().contains("blocks publishers (low on memory)"), "{error}");
    }
    let blocked = lines.text();
    let line = blocked.lines().find(|line| line.contains("the broker blocks publishers")).unwrap_or_default();
    assert!(line.contains(" WARN ") && line.contains("reason=\"low on memory\""), "{blocked}");
    assert!(line.contains(&SERVER.address()) && !blocked.contains("accepts messages again"), "{blocked}");
    alarm.end().await;
    // The client may learn of the end of the alarm a moment later.
    until("the copy is stored", async || source.settle(&held, retry()).await.ok()).await;
    let copy = source.next().await;
    assert_eq!((copy.0.id.as_deref(), copy.0.attempt), (Some("m"), Some(2)));
    let ended = async || lines.text().contains("the broker accepts messages again").then_some(());
    until("the line about the end of the alarm", ended).await;
    source.settle(&copy, Settlement::Ack).await.unwrap();
    source.0.close().await;
    drop(source);
    let messages = || tokio::task::spawn_blocking(|| SERVER.queues("/", "messages"));
    until("nothing is left", async || (messages().await.unwrap()["alarm.named"] == 0).then_some(())).await;
}

#[tokio::test]
async fn a_publisher_sends_a_message_once_during_an_alarm_and_names_the_alarm() {
    let world = World::alone("alarm.publisher").await;
    world.declare("alarm.publisher").await;
    let publisher = RabbitPublisher::builder(SERVER.url()).confirm_within(ms(100)).give_up_after(ms(2_000));
    let publisher = publisher.build().unwrap();
    until("an open connection", async || publisher.blocked().await.ok()).await;
    let alarm = MemoryAlarm::raise().await;
    let message = OutboundMessage::new("alarm.publisher", "m", "{}");
    let error = within("an answer", publisher.publish(&message)).await.unwrap_err();
    assert_eq!(error.kind(), PublishErrorKind::Unconfirmed);
    assert!(error.to_string().contains("blocks publishers"), "{error}");
    alarm.end().await;
    drop(publisher);
    until("its connection is closed", async || {
        let connections = || SERVER.eval("integer_to_list(length(rabbit_networking:connections())).");
        // The world's own connection is left.
        (tokio::task::spawn_blocking(connections).await.unwrap() == "1").then_some(())
    })
    .await;
    assert!(world.count("alarm.publisher").await <= 1);
}

#[tokio::test]
async fn a_publisher_asks_for_the_reason_of_an_alarm_and_stores_nothing() {
    let world = World::alone("alarm.asked").await;
    world.declare("alarm.asked").await;
    let queues = || tokio::task::spawn_blocking(|| SERVER.queues("/", "messages"));
    let before = queues().await.unwrap();
    let blocked = async || {
        let publisher = RabbitPublisher::builder(SERVER.url()).build().unwrap();
        within("an answer", publisher.blocked()).await.unwrap()
    };
    assert_eq!(blocked().await, None);
    let alarm = MemoryAlarm::raise().await;
    assert_eq!(blocked().await.as_deref(), Some("low on memory"));
    alarm.end().await;
    until("the end of the blocking", async || blocked().await.is_none().then_some(())).await;
    assert_eq!(queues().await.unwrap(), before);
    let closed = RabbitPublisher::builder("amqp://127.0.0.1:1").build().unwrap();
    assert!(closed.blocked().await.unwrap_err().to_string().contains("looking for an alarm"));
}
