//! The results of a publisher.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use idempotent_core::{MemoryStore, Policy};
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_mq::{OutboundMessage, PublishErrorKind};
use idempotent_rabbitmq::{Queue, RabbitProperties, RabbitPublisher, RabbitPublisherBuilder, Route};
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

use crate::broker::world::{LIMIT, Log, Process, SERVER, World, done, executor, ms, until, within};

/// The first bytes of `basic.publish`: class 60, method 40.
pub const PUBLISH: [u8; 4] = [0, 60, 0, 40];

fn publisher(url: &str) -> RabbitPublisher {
    RabbitPublisher::builder(url).confirm_within(ms(2_000)).give_up_after(Duration::from_secs(30)).build().unwrap()
}

async fn proxied() -> (Proxy, RabbitPublisher) {
    let proxy = Proxy::start(&SERVER.address()).await;
    let url = format!("amqp://guest:guest@{}/%2f", proxy.address());
    (proxy, publisher(&url))
}

#[tokio::test]
async fn a_published_message_is_persistent_and_unchanged() {
    let world = World::new("published").await;
    world.declare("published").await;
    let message = OutboundMessage::new("published", "m", [0, 255]).header("text", "x").business_key("key");
    let properties = RabbitProperties::default().header("n", 17).header("bytes", vec![0]).content_type("a/b");
    let properties = properties.correlation_id("c").expires_after(ms(60_000));
    publisher(&SERVER.url()).publish_with(&message, &properties).await.unwrap();
    let got = world.take("published").await.unwrap();
    let properties = &got.properties;
    let text = |value: &Option<lapin::types::ShortString>| value.as_ref().unwrap().to_string();
    assert_eq!((&got.data[..], *properties.delivery_mode()), (&[0, 255][..], Some(2)));
    assert_eq!((text(properties.message_id()), text(properties.content_type())), ("m".into(), "a/b".into()));
    assert_eq!((text(properties.correlation_id()), text(properties.expiration())), ("c".into(), "60000".into()));
    let headers = properties.headers().clone().unwrap();
    assert_eq!(headers.inner().get("n"), Some(&AMQPValue::LongLongInt(17)));
    assert_eq!(headers.inner().get("bytes"), Some(&AMQPValue::ByteArray(vec![0].into())));
    assert_eq!(headers.inner().get("text"), Some(&AMQPValue::LongString("x".into())));
}

#[tokio::test]
async fn a_higher_priority_is_delivered_first_and_a_message_may_be_transient() {
    let world = World::new("priority").await;
    world.source_of(Queue::classic("priority").argument("x-max-priority", 9)).declare().await.unwrap();
    let publisher = publisher(&SERVER.url());
    let urgent = RabbitProperties::default().priority(9).transient();
    for (id, properties) in [("low", RabbitProperties::default()), ("high", urgent)] {
        publisher.publish_with(&OutboundMessage::new("priority", id, ""), &properties).await.unwrap();
    }
    let got = world.take("priority").await.unwrap().delivery;
    assert_eq!(got.properties.message_id().as_ref().unwrap().as_str(), "high");
    assert_eq!((*got.properties.priority(), *got.properties.delivery_mode()), (Some(9), Some(1)));
    let got = world.take("priority").await.unwrap().delivery;
    assert_eq!((*got.properties.priority(), *got.properties.delivery_mode()), (None, Some(2)));
}

#[tokio::test]
async fn a_call_that_gives_up_leaves_its_handshake_to_the_next_call() {
    let world = World::new("handshake").await;
    world.declare("handshake").await;
    let (proxy, publisher) = proxied().await;
    proxy.delay_all(ms(200));
    let message = OutboundMessage::new("handshake", "m", "{}");
    tokio::select! {
        sent = publisher.publish(&message) => drop(sent.unwrap()),
        () = until("it connects", async || (proxy.passed().requests > 0).then_some(())) => {}
    }
    publisher.publish(&message).await.unwrap();
    assert_eq!(proxy.passed().connections, 1);
}

/// On a single channel, the client would report about 20 of these 680 returned messages as stored.
#[tokio::test]
async fn an_unroutable_message_is_an_error_and_concurrent_messages_are_not() {
    let world = World::new("neighbours").await;
    world.declare("neighbours").await;
    let publisher = RabbitPublisher::builder(SERVER.url()).in_flight(100).build().unwrap();
    for _ in 0..20 {
        let sent = (0..100).map(|n| {
            let publisher = publisher.clone();
            async move {
                let there = n % 3 != 0;
                let to = Route::queue(if there { "neighbours" } else { "neighbours.missing" });
                let answer = publisher.publish(&OutboundMessage::new(&to, format!("m{n}"), "{}")).await;
                (there, answer)
            }
        });
        for (there, answer) in within("all answers", join_all(sent)).await {
            match answer {
                Ok(_) => assert!(there, "it is in no queue"),
                Err(error) => assert!(!there && error.to_string().contains("unroutable"), "{error}"),
            }
        }
    }
    assert_eq!(world.count("neighbours").await, 20 * 66);
}

#[tokio::test]
async fn a_message_that_did_not_arrive_is_sent_again_with_its_id() {
    let world = World::new("cut").await;
    world.declare("cut").await;
    let to = Route::queue("cut");
    for fault in [Fault::CutBeforeSend, Fault::HalfOpen] {
        let (proxy, publisher) = proxied().await;
        publisher.publish(&OutboundMessage::new(&to, "first", "{}")).await.unwrap();
        proxy.fail_next_with(PUBLISH, fault);
        within("a confirm", publisher.publish(&OutboundMessage::new(&to, "second", "{}"))).await.unwrap();
        assert_eq!(proxy.met(), 1);
        assert_eq!(world.ids().await, BTreeMap::from([("first".to_owned(), 1), ("second".to_owned(), 1)]));
    }
}

#[tokio::test]
async fn a_message_without_a_confirm_is_sent_again_with_its_id_and_has_one_effect() {
    let world = World::alone("silent").await;
    world.declare("silent").await;
    let (proxy, publisher) = proxied().await;
    let to = Route::queue("silent");
    publisher.publish(&OutboundMessage::new(&to, "first", "{}")).await.unwrap();
    let hasty =
        RabbitPublisher::builder(SERVER.url()).confirm_within(ms(1_000)).give_up_after(ms(1_000)).build().unwrap();
    hasty.publish(&OutboundMessage::new(&to, "first", "{}")).await.unwrap();
    SERVER.pause();
    let error = hasty.publish(&OutboundMessage::new(&to, "unknown", "{}")).await.unwrap_err();
    assert_eq!(error.kind(), PublishErrorKind::Unconfirmed, "{error}");
    let sent = tokio::spawn(async move { publisher.publish(&OutboundMessage::new(&to, "twice", "{}")).await });
    // The publisher has dropped the first connection and opens a second one.
    until("a second connection", async || (proxy.passed().connections == 2).then_some(())).await;
    SERVER.resume();
    within("a confirm", sent).await.unwrap().unwrap();
    let log = Arc::new(Log::default());
    let executor = executor(&Arc::new(MemoryStore::new()), Policy::new());
    let process = Process::start(world.source(), "billing", &executor, log.by_id(done), |b| b);
    process.until("all are done", |counts| counts.acked == 5).await;
    let mut ids: Vec<_> = log.seen().into_iter().filter_map(|seen| seen.id).collect();
    ids.sort();
    assert_eq!(ids, ["first", "twice", "unknown"]);
}

#[tokio::test]
async fn a_message_to_a_full_queue_is_sent_again_until_the_queue_has_room() {
    let world = World::new("full").await;
    let mut limits = FieldTable::default();
    limits.insert("x-max-length".into(), AMQPValue::LongInt(1));
    limits.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    world.admin.queue_declare("full".into(), QueueDeclareOptions::default(), limits).await.unwrap();
    let to = Route::queue("full");
    let url = SERVER.url();
    let short = RabbitPublisher::builder(&url).confirm_within(ms(500)).give_up_after(ms(500)).build().unwrap();
    let full = async {
        loop {
            match short.publish(&OutboundMessage::new(&to, "filler", "{}")).await {
                // On a busy machine, half a second may be too short for a response.
                Err(error) if error.kind() != PublishErrorKind::Unconfirmed => return error,
                _ => {}
            }
        }
    };
    let error = within("no room", full).await;
    assert_eq!(error.kind(), PublishErrorKind::Unsent, "{error}");
    let patient = publisher(&url);
    let sent = tokio::spawn(async move { patient.publish(&OutboundMessage::new("full", "m", "{}")).await });
    until("room, then the message", async || {
        world.take("full").await.filter(|got| got.properties.message_id().as_ref().unwrap().as_str() == "m")
    })
    .await;
    within("a confirm", sent).await.unwrap().unwrap();
}

/// The names look like the broker's text about a queue whose node is down, and like the name of an existing queue.
#[tokio::test]
async fn a_message_to_a_missing_queue_is_refused_if_the_name_is_a_misleading_one() {
    let world = World::new("names").await;
    world.declare("names").await;
    let publisher = RabbitPublisher::builder(SERVER.url()).build().unwrap();
    for missing in ["home node 'names'", "names\n"] {
        let message = OutboundMessage::new(Route::queue(missing), "m", "{}");
        let error = within("an answer", publisher.publish(&message)).await.unwrap_err();
        assert_eq!(error.kind(), PublishErrorKind::Refused, "{missing:?}: {error}");
    }
    assert_eq!(world.count("names").await, 0);
}

#[tokio::test]
async fn the_kind_of_an_error_shows_the_known_state_of_the_message() {
    let world = World::new("known").await;
    world.declare("known").await;
    let publish = async |url: &str, to: Route| {
        let builder = RabbitPublisher::builder(url).confirm_within(ms(1_000)).give_up_after(ms(1_000));
        let error = within("an answer", builder.build().unwrap().publish(&OutboundMessage::new(&to, "m", "{}")))
            .await
            .unwrap_err();
        assert!(!format!("{error:?} {error}").contains("guest:"), "{error}");
        error.kind()
    };
    let url = SERVER.url();
    assert_eq!(publish(&url, Route::exchange("known.missing", "")).await, PublishErrorKind::Refused);
    assert_eq!(publish(&url, Route::queue("k".repeat(256))).await, PublishErrorKind::Refused);
    let wrong = url.replace("guest:guest", "guest:wrong");
    assert_eq!(publish(&wrong, Route::queue("known")).await, PublishErrorKind::Unsent);
    assert_eq!(publish("amqp://guest:guest@127.0.0.1:1/%2f", Route::queue("known")).await, PublishErrorKind::Unsent);
    assert_eq!(world.count("known").await, 0);
}

#[tokio::test]
async fn a_publisher_survives_a_crash_of_its_broker() {
    let mut world = World::alone("outlived").await;
    world.declare("outlived").await;
    // Longer than a restart of the broker on a busy machine.
    let patient =
        RabbitPublisher::builder(SERVER.url()).confirm_within(ms(2_000)).give_up_after(2 * LIMIT).build().unwrap();
    patient.publish(&OutboundMessage::new("outlived", "before", "{}")).await.unwrap();
    world.kill_broker().await;
    let refused = Arc::new(AtomicU32::new(0));
    let meanwhile = tokio::spawn({
        let refused = refused.clone();
        async move {
            loop {
                let sent = patient.publish(&OutboundMessage::new("outlived", "meanwhile", "{}")).await;
                // The broker may accept connections before its queues are restored.
                match sent {
                    Err(error) if error.to_string().contains("unroutable") => {
                        refused.fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(ms(1_000)).await;
                    }
                    sent => return sent,
                }
            }
        }
    });
    let began = Instant::now();
    tokio::task::spawn_blocking(|| SERVER.restart()).await.unwrap();
    let away = began.elapsed();
    // The queue is restored.
    let sent = tokio::time::timeout(2 * LIMIT, meanwhile).await.map(Result::unwrap);
    let details = || {
        let queues = SERVER.queues("/", "messages");
        format!(
            "down for {away:?}, then no queue {refused:?} times; the queues are\n{queues:?}\nand the log is\n{}",
            SERVER.log()
        )
    };
    assert!(matches!(sent, Ok(Ok(_))), "{sent:?}: {}", details());
    world.reconnect().await;
    let ids = world.ids().await;
    assert!(ids.contains_key("before") && ids.contains_key("meanwhile"), "{ids:?}: {}", details());
}

#[test]
fn invalid_limits_are_refused_with_their_numbers() {
    let refused = |set: fn(RabbitPublisherBuilder) -> RabbitPublisherBuilder| {
        set(RabbitPublisher::builder("amqp://guest:guest@127.0.0.1/%2f")).build().unwrap_err().to_string()
    };
    assert!(refused(|builder| builder.in_flight(0)).contains("in_flight: 0 is out of range; choose 1 to 2047"));
    assert!(refused(|builder| builder.confirm_within(Duration::ZERO)).contains("confirm_within: zero"));
    // The end of a longer attempt may not be a representable time.
    assert!(refused(|builder| builder.give_up_after(Duration::MAX)).contains("more than the maximum of a day"));
}
