//! The cost of messages over RabbitMQ: `cargo xtask bench mq`.
//!
//! One queue, filled before it is consumed, in several ways: by a bare client that acknowledges, and by the consumer
//! runtime without keys, and with keys in memory and in Redis. Each figure is compared with that of the bare client in
//! the same round, measured alternately, so that a busy machine slows down both. Ratios are medians of the ratios
//! within a round. Deferrals are measured once, and need no comparison in a round.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
#[allow(dead_code, reason = "other benches use more of this module")]
mod broker;
mod deferrals;
mod frames;
mod queue;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use idempotent::rabbitmq::{Queue as Ours, RabbitSource};
use idempotent_harness::servers::{RabbitServer, RedisServer};
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};

use crate::broker::report::{Goal, Report};
use crate::broker::{Begun, Broker, Compared, Consumed, MESSAGES, PREFETCH, Place, Way};
use crate::queue::{QUEUE, Queue};

const COMPARED: [Compared; 4] = [
    ("one by one", Way::Waiting, Way::Bare, Goal::None),
    ("unprotected", Way::Unprotected, Way::Bare, Goal::AtLeast(0.95)),
    ("memory", Way::Memory, Way::Bare, Goal::AtLeast(1.0)),
    ("redis", Way::Redis, Way::Bare, Goal::AtLeast(0.7)),
];

fn main() {
    let report = Report::from_args("mq");
    report.title();
    let wanted = broker::wanted(&report, &COMPARED);
    let rabbit = RabbitServer::start();
    deferrals::take(&report, &rabbit);
    if wanted.is_empty() {
        return;
    }
    let redis = RedisServer::start();
    let place = Place::new(&redis, async || Rabbit { queue: Queue::declared(&rabbit.url()).await, url: rabbit.url() });
    broker::compare(&report, &place, &redis, &wanted, MESSAGES);
    for (name, way, ..) in std::iter::once(("bare", Way::Bare, Way::Bare, Goal::None)).chain(wanted) {
        let asked = frames::count(&report, &place, &rabbit, &redis, way);
        let value = |what: &str, figure| report.value((name, what, Some(PREFETCH)), "a message", figure, Goal::None);
        value("frames sent", asked.frames);
        value("writes to the broker", asked.writes);
        value("calls of the store", asked.calls);
    }
}

pub(crate) struct Rabbit {
    queue: Queue,
    url: String,
}

impl Broker for Rabbit {
    type Source = RabbitSource;

    fn url(&self) -> String {
        self.url.clone()
    }

    async fn fill(&self, from: u64, messages: u64) {
        self.queue.fill(from, messages, |number| number).await;
    }

    async fn source(&self, url: &str) -> RabbitSource {
        RabbitSource::builder(url, Ours::classic(QUEUE)).build().unwrap()
    }

    /// Does not wait for each acknowledgement; or, as the documentation of the client shows, takes the next message when the
    /// acknowledgement of the last one is written.
    async fn bare(&self, url: &str, waits: bool, messages: u64) -> Consumed {
        if waits { one_by_one(url, messages).await } else { bare(url, messages).await }
    }
}

/// Returns the deliveries of a bare consumer.
async fn subscribed(url: &str) -> (Connection, lapin::Consumer) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.basic_qos(u16::try_from(PREFETCH).unwrap(), BasicQosOptions::default()).await.unwrap();
    let options = BasicConsumeOptions::default();
    (connection, channel.basic_consume(QUEUE.into(), "".into(), options, FieldTable::default()).await.unwrap())
}

async fn one_by_one(url: &str, messages: u64) -> Consumed {
    let (_connection, mut deliveries) = subscribed(url).await;
    let mut begun = None;
    for _ in 0..messages {
        let delivery = deliveries.next().await.unwrap().unwrap();
        begun.get_or_insert_with(Begun::now);
        assert!(delivery.acker.ack(BasicAckOptions::default()).await.unwrap());
    }
    begun.unwrap().ended()
}

async fn bare(url: &str, messages: u64) -> Consumed {
    let (_connection, mut deliveries) = subscribed(url).await;
    let (mut begun, mut acking, mut acked) = (None, FuturesUnordered::new(), 0);
    while acked < messages {
        tokio::select! {
            Some(delivery) = deliveries.next() => {
                begun.get_or_insert_with(Begun::now);
                let delivery = delivery.unwrap();
                acking.push(async move { delivery.acker.ack(BasicAckOptions::default()).await });
            }
            Some(done) = acking.next() => {
                assert!(done.unwrap());
                acked += 1;
            }
        }
    }
    begun.unwrap().ended()
}
