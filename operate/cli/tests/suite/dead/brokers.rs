//! Dead letters of the brokers that keep them in a stream, topic or queue with a name of its own.
use std::time::Duration;

use idempotent::mq::{DeadLetters, Publish, Source};
use idempotent::nats::{JetStreamDeadLetters, JetStreamPublisher, JetStreamSource};
use idempotent::pgmq::{PgmqDeadLetters, PgmqPublisher, PgmqSource};
use idempotent_harness::servers::{NatsServer, PostgresServer};

use crate::dead::site::{BODIES, REASONS, Site, comes_back, write_letters};

/// Writes letters into `buried`, and lists them, shows one, puts one back and removes one. Without `--dead-stream`, the command
/// looks for them in `default`.
async fn are_operated<S: Source>(mut source: S, topic: &str, publisher: impl Publish, queue: [&str; 2], default: &str) {
    write_letters(&mut source, &publisher, topic).await;
    let [url, name] = queue;
    let missing = Site { queue: &["--queue", url, "--name", name] };
    missing.dead("list", &[]).fails(5, default);
    let site = Site { queue: &["--queue", url, "--name", name, "--dead-stream", "buried"] };
    assert_eq!(site.is_listed(), ["m-0", "m-1", "m-2"]);
    site.is_redriven();
    comes_back(&mut source, BODIES[0]).await;
    let discarded = site.dead("discard", &["--message-id", "m-2", "--limit", "1", "--reason", "why", "--yes"]).lines();
    assert_eq!(discarded[0]["outcome"], "done");
    assert_eq!(site.reasons(&[]), REASONS[1..2]);
}

/// Checks that a call ends with an error if the server stops answering on an open connection.
pub(crate) async fn ends_without_an_answer(mut letters: impl DeadLetters, pause: impl FnOnce()) {
    letters.count().await.unwrap();
    pause();
    let answer = tokio::time::timeout(Duration::from_secs(120), letters.count()).await;
    answer.expect("the call has no end").unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_jetstream_are_listed_shown_put_back_and_removed() {
    let server = NatsServer::start();
    let url = server.url();
    let source = JetStreamSource::builder(&*url, "ORDERS", "billing").declare(["orders.>"]);
    let source = source.dead_letters("buried").connect().await.unwrap();
    are_operated(source, "orders.new", JetStreamPublisher::new(&*url), [&url, "ORDERS"], "ORDERS-dead").await;
    let letters = JetStreamDeadLetters::new(&*url, "ORDERS").stored_in("buried");
    ends_without_an_answer(letters, || server.pause()).await;
    server.resume();
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_pgmq_are_listed_shown_put_back_and_removed() {
    let server = PostgresServer::start();
    server.install_pgmq("postgres");
    let url = server.url().replacen("postgres://", "pgmq://", 1);
    let source = PgmqSource::builder(&*url, "orders").declare().dead_letters("buried");
    let (source, publisher) = (source.connect().await.unwrap(), PgmqPublisher::new(&*url).exact_bodies());
    are_operated(source, "orders", publisher, [&url, "orders"], "orders_dead").await;
    let letters = PgmqDeadLetters::new(&*url, "orders").stored_in("buried");
    ends_without_an_answer(letters, || server.pause()).await;
    server.resume();
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread")]
async fn letters_of_kafka_are_listed_shown_put_back_and_removed() {
    use idempotent::kafka::{KafkaDeadLetters, KafkaPublisher, KafkaSource};

    let server = idempotent_harness::servers::KafkaServer::start();
    let url = server.url();
    let source = KafkaSource::builder(&*url, "orders", "billing").declare(1).dead_letters("buried");
    let (source, publisher) = (source.connect().await.unwrap(), KafkaPublisher::new(&*url));
    are_operated(source, "orders", publisher, [&url, "orders"], "orders-dead").await;
    let letters = KafkaDeadLetters::new(&*url, "orders").stored_in("buried");
    ends_without_an_answer(letters, || server.pause()).await;
    server.resume();
}

#[cfg(feature = "sqs")]
#[tokio::test(flavor = "multi_thread")]
async fn letters_of_sqs_are_listed_shown_put_back_and_removed() {
    use idempotent::sqs::{SqsDeadLetters, SqsPublisher, SqsSource, client};

    let server = idempotent_harness::servers::MotoServer::start();
    let url = format!("sqs://eu-west-1?endpoint=http://{}", server.address());
    let source = SqsSource::builder(client(&url).unwrap(), "orders").declare().dead_letters("buried");
    let (source, publisher) = (source.connect().await.unwrap(), SqsPublisher::new(client(&url).unwrap()));
    are_operated(source, "orders", publisher, [&url, "orders"], "orders-dead").await;
    let letters = SqsDeadLetters::new(client(&url).unwrap(), "orders").stored_in("buried");
    ends_without_an_answer(letters, || server.pause()).await;
    server.resume();
}
