//! Opening a source: what is created, what is refused, and by which error.
use futures_util::future::join_all;
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::{CLOSED, HTTP, KafkaServer, REDIS, SILENT, stranger};
use idempotent_kafka::{KafkaSource, StartPosition};
use idempotent_mq::{Source, SourceError, SourceErrorKind};
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::world::{LIMIT, World, config, ms, one, simulated};

/// Checks the kind of an error, and a part of its text.
#[track_caller]
fn refused(opened: Result<KafkaSource, SourceError>, part: &str) {
    let error = opened.map(drop).unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains(part), "{error}");
}

#[tokio::test]
async fn topics_that_do_not_exist_are_named_with_their_remedy_and_created_on_request() {
    let world = World::new(1).await;
    let existing = || KafkaSource::builder(world.url(), "orders", "billing").retry_topic("again");
    refused(existing().connect().await, "`again` does not exist; create it by `declare`");
    world.create("again", 1).await;
    refused(existing().connect().await, "`orders-dead` does not exist");
    world.source().await;
    existing().connect().await.unwrap();
}

#[tokio::test]
async fn connecting_waits_some_seconds_for_a_broker_that_starts() {
    let (cluster, url) = simulated();
    let proxy = Proxy::start(&cluster.bootstrap_servers()).await;
    let url = url.replace(&cluster.bootstrap_servers(), &proxy.address());
    // The pauses of the client between them are longer than one request for metadata.
    proxy.reset_next(4);
    KafkaSource::connect(&*url, "orders", "billing").await.unwrap().close().await;
}

#[tokio::test]
async fn topics_are_created_without_a_member() {
    let server = KafkaServer::start();
    let builder = || KafkaSource::builder(server.url(), "orders", "billing").retry_topic("again");
    let error = builder().prepare_topics().await.unwrap_err();
    assert!(error.to_string().contains("`orders` does not exist"), "{error}");
    builder().declare(2).prepare_topics().await.unwrap();
    let client: BaseConsumer = config(&server).create().unwrap();
    for (topic, partitions) in [("orders", 2), ("again", 2), ("orders-dead", 1)] {
        let metadata = client.fetch_metadata(Some(topic), LIMIT).unwrap();
        assert_eq!(metadata.topics()[0].partitions().len(), partitions, "{topic}");
    }
    builder().connect().await.unwrap();
}

#[tokio::test]
async fn bad_settings_and_addresses_are_refused() {
    let builder = |topic: &str, group: &str| KafkaSource::builder("kafka://127.0.0.1:1", topic, group);
    refused(builder("or ders", "billing").connect().await, "`topic` is `or ders`; use at most 249 letters");
    refused(builder("orders", "").connect().await, "the group is empty");
    refused(builder("orders", "billing").dead_letters("orders").connect().await, "two of the topics are the same");
    refused(builder("orders", "billing").retry_topic("orders-dead").connect().await, "two of the topics");
    refused(builder("orders", "billing").member("pod 0").connect().await, "`member` is `pod 0`; use at most 249");
    refused(builder("orders", "billing").member("").connect().await, "`member` is ``");
    refused(builder("orders", "billing").declare(0).connect().await, "at least 1");
    refused(builder("orders", "billing").session_timeout(ms(999)).connect().await, "at least 1 s");
    for (url, part) in [
        ("kafka://", "kafka://[USER:PASSWORD@]HOST[:PORT]"),
        ("amqp://localhost", "kafka://[USER:PASSWORD@]HOST[:PORT]"),
        ("", "kafka://[USER:PASSWORD@]HOST[:PORT]"),
        ("kafka://ann@localhost", "kafka://USER:PASSWORD@HOST[:PORT]"),
        ("kafka://127.0.0.1:1?non.sense=1", "`non.sense`"),
        ("kafka://127.0.0.1:1?group.id=a", "`group.id` cannot be set"),
        ("kafka://127.0.0.1:1?sasl_mechanis=PLAIN", "did you mean `sasl_mechanism`?"),
    ] {
        refused(KafkaSource::connect(url, "orders", "billing").await, part);
    }
    let closed = builder("orders", "billing").session_timeout(ms(1_000)).connect().await.map(drop).unwrap_err();
    assert_eq!(closed.kind(), SourceErrorKind::Transient, "{closed}");
}

#[tokio::test]
async fn a_new_group_starts_at_its_position() {
    let world = World::new(1).await;
    world.send("old").await;
    let mut late = KafkaSource::builder(world.url(), "orders", "late")
        .declare(1)
        .start(StartPosition::New)
        .connect()
        .await
        .unwrap();
    // A message that is sent before the group has joined is before its first offset.
    let (delivery, _) = loop {
        world.send("new").await;
        if let Ok(held) = tokio::time::timeout(ms(500), one(&mut late)).await {
            break held;
        }
    };
    assert_eq!(delivery.body, b"new");
    let mut first = world.source().await;
    assert_eq!(one(&mut first).await.0.body, b"old");
}

#[cfg(not(feature = "tls"))]
#[tokio::test]
async fn a_build_without_tls_names_the_feature() {
    let server = KafkaServer::start();
    let url = server.url().replace("kafka:", "kafkas:");
    refused(KafkaSource::connect(url, "orders", "billing").await, "enable the feature `tls`");
    let scram = format!("kafka://ann:hush@{}?sasl_mechanism=SCRAM-SHA-256", server.address());
    refused(KafkaSource::connect(scram, "orders", "billing").await, "enable the feature `tls`");
}

#[tokio::test]
async fn a_rejected_user_is_refused_and_shown_in_no_error() {
    let server = KafkaServer::without_users();
    let url = format!("kafka://ann:hush@{}", server.address());
    let error = KafkaSource::connect(url, "orders", "billing").await.map(drop).unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains("the password"), "{error}");
    assert!(!format!("{error:?}").contains("hush"), "{error:?}");
}

#[tokio::test]
async fn a_broker_that_cannot_be_reached_is_named_with_cause_and_remedy() {
    use SourceErrorKind::{Fatal, Transient};
    let servers = (KafkaServer::without_users(), KafkaServer::start());
    let (strict, open) = (servers.0.address(), servers.1.address());
    let [http, redis, closed, silent] = [HTTP, REDIS, CLOSED, SILENT].map(stranger);
    let cases = [
        ("ann:hush-hush@", &*strict, Fatal, ["SASL PLAIN", "check the user, the password and the SASL mechanism"]),
        ("ann:hush-hush@", &open, Fatal, ["Unsupported SASL mechanism", "the SASL mechanism in the URL"]),
        ("", &strict, Transient, ["check the host and the port", "or a user"]),
        ("", "127.0.0.1:1", Transient, ["Connection refused", "check that the server is running, and the port"]),
        ("", "no.such.host.invalid:7", Transient, ["Failed to resolve", "check the host name"]),
        ("", &http, Transient, ["response size", "the answer is not of Kafka"]),
        ("", &redis, Transient, ["response size", "the answer is not of Kafka"]),
        ("", &closed, Transient, ["check the host and the port", "requires TLS"]),
        ("", &silent, Transient, ["no answer of Kafka within 5s", "check the host and the port"]),
    ];
    join_all(cases.map(async |(user, address, kind, words)| {
        let url = format!("kafka://{user}{address}");
        let error = KafkaSource::connect(url, "orders", "billing").await.map(drop).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        for word in words.into_iter().chain([address]) {
            assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
        }
        assert!(!format!("{error:?}").contains("hush"), "{error:?}");
    }))
    .await;
}
