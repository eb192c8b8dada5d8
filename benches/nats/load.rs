//! The cost of messages over NATS JetStream: `cargo xtask bench nats`.
//!
//! One stream, filled before it is consumed, in several ways: by a bare client that acknowledges, by one that also waits for the
//! confirmation of each acknowledgement, and by the consumer runtime without keys, and with keys in memory and in Redis. The
//! consumer runtime waits for the confirmations. Each figure is compared with the figure of a bare client in the same round, measured
//! alternately, so that a busy machine slows down both. Ratios are medians of the ratios within a round.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
#[path = "../mq/broker.rs"]
#[allow(dead_code, reason = "other benches use more of this module")]
mod broker;

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::{Client, HeaderMap, jetstream};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use idempotent::nats::JetStreamSource;
use idempotent_harness::servers::NatsServer;

use crate::broker::report::Goal;
use crate::broker::{Begun, Broker, Compared, Consumed, MESSAGES, PREFETCH, Way, body};

const STREAM: &str = "ORDERS";
const CONSUMER: &str = "billing";
const COMPARED: [Compared; 5] = [
    ("bare, confirmed", Way::Waiting, Way::Bare, Goal::None),
    ("unprotected", Way::Unprotected, Way::Waiting, Goal::None),
    ("memory", Way::Memory, Way::Waiting, Goal::AtLeast(0.9)),
    ("redis", Way::Redis, Way::Waiting, Goal::AtLeast(0.6)),
    ("memory", Way::Memory, Way::Bare, Goal::None),
];

fn main() {
    broker::bench("nats", &COMPARED, MESSAGES, Nats::start);
}

struct Nats {
    server: NatsServer,
    client: Context,
    body: String,
}

impl Nats {
    async fn start() -> Self {
        let server = NatsServer::start();
        let client = jetstream::new(async_nats::connect(server.url()).await.unwrap());
        let nats = Self { server, client, body: body() };
        // Creates the stream.
        nats.source(&nats.url()).await;
        nats
    }
}

impl Broker for Nats {
    type Source = JetStreamSource;

    fn url(&self) -> String {
        self.server.url()
    }

    async fn fill(&self, from: u64, messages: u64) {
        // Consumed messages would slow down the server during the whole run.
        self.client.get_stream(STREAM).await.unwrap().purge().await.unwrap();
        for first in (from..from + messages).step_by(1_000) {
            let last = (first + 1_000).min(from + messages);
            let mut confirmations = Vec::new();
            for number in first..last {
                let mut headers = HeaderMap::new();
                headers.insert("Nats-Msg-Id", format!("message-{number}"));
                let sent = self.client.publish_with_headers("orders.new", headers, self.body.clone().into()).await;
                confirmations.push(sent.unwrap().into_future());
            }
            join_all(confirmations).await.into_iter().for_each(|confirmed| drop(confirmed.unwrap()));
        }
    }

    async fn source(&self, url: &str) -> JetStreamSource {
        JetStreamSource::builder(url, STREAM, CONSUMER).declare(["orders.>"]).connect().await.unwrap()
    }

    /// Sends acknowledgements without waiting for the server, or waits for the confirmations of 256 acknowledgements at once.
    async fn bare(&self, url: &str, waits: bool, messages: u64) -> Consumed {
        if waits { confirmed(url, messages).await } else { bare(url, messages).await }
    }
}

async fn consumer(url: &str) -> (Client, PullConsumer) {
    let client = async_nats::connect(url).await.unwrap();
    let consumer = jetstream::new(client.clone()).get_consumer_from_stream(CONSUMER, STREAM).await.unwrap();
    (client, consumer)
}

async fn bare(url: &str, messages: u64) -> Consumed {
    let (client, consumer) = consumer(url).await;
    let mut deliveries = consumer.stream().max_messages_per_batch(PREFETCH).messages().await.unwrap();
    let mut begun = None;
    for _ in 0..messages {
        let delivery = deliveries.next().await.unwrap().unwrap();
        begun.get_or_insert_with(Begun::now);
        delivery.ack().await.unwrap();
    }
    client.flush().await.unwrap();
    begun.unwrap().ended()
}

async fn confirmed(url: &str, messages: u64) -> Consumed {
    let (_client, consumer) = consumer(url).await;
    let mut deliveries = consumer.stream().max_messages_per_batch(PREFETCH).messages().await.unwrap();
    let (mut begun, mut acking, mut acked) = (None, FuturesUnordered::new(), 0);
    while acked < messages {
        tokio::select! {
            Some(delivery) = deliveries.next(), if acking.len() < PREFETCH => {
                begun.get_or_insert_with(Begun::now);
                let delivery = delivery.unwrap();
                acking.push(async move { delivery.double_ack().await });
            }
            Some(done) = acking.next() => {
                done.unwrap();
                acked += 1;
            }
        }
    }
    begun.unwrap().ended()
}
