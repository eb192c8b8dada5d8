//! The conformance laws of broker adapters, on one server and on a cluster.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::Timestamp;
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::{RedisCluster, RedisServer};
use idempotent_mq::{DeadLetter, DeadLetters, StoredLetter};
use idempotent_redis::{DelayDeadLetters, DelayMessage, DelayQueue, DelaySource};
use idempotent_testkit::broker::{Broker, Limits, Message, Outage};
use idempotent_testkit::broker_conformance;

use crate::delay_queue::world::{Place, TOPIC};

/// Long enough that a delivery without keep-alive does not expire on a busy machine.
const VISIBILITY: Duration = Duration::from_secs(3);

pub(crate) struct Queue {
    place: Place,
    /// In front of a single server; cluster nodes announce their own addresses.
    between: Option<Proxy>,
    producer: DelayQueue,
}

impl Queue {
    pub(crate) async fn single() -> Self {
        let server = RedisServer::start();
        let between = Proxy::start(&server.address()).await;
        let producer = open(server.url()).await;
        Self { place: Place::Single(server), between: Some(between), producer }
    }

    pub(crate) async fn cluster() -> Self {
        let cluster = RedisCluster::start(3);
        let producer = open(cluster.url()).await;
        Self { place: Place::Cluster(cluster), between: None, producer }
    }
}

async fn open(url: String) -> DelayQueue {
    DelayQueue::builder(url, TOPIC).slots(2).visibility(VISIBILITY).connect().await.unwrap()
}

#[async_trait]
impl Broker for Queue {
    type Source = DelaySource;

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        (limits.held_for, limits.stays_held) = (Some(VISIBILITY), true);
        // The clocks of test and server tick independently: the test measures, the server decides.
        limits.early = Duration::from_millis(2);
        limits
    }

    async fn source(&self) -> DelaySource {
        let url = match &self.between {
            Some(between) => format!("redis://{}", between.address()),
            None => self.place.url(),
        };
        DelaySource::new(&open(url).await)
    }

    async fn publish(&self, message: Message) {
        let mut sent = DelayMessage::due(Timestamp(0), message.body).id(message.id);
        for (name, value) in message.headers.iter() {
            sent = sent.header(name, value);
        }
        // A slot merges copies of a message. Two copies are in the queue if they are in two slots.
        let [one, other] = ["a", "d"].map(|basis| sent.clone().slot_basis(basis));
        if !self.producer.send(&one).await.unwrap().is_new {
            assert!(self.producer.send(&other).await.unwrap().is_new);
        }
    }

    async fn publish_unreadable(&self) {
        self.publish(Message::new("unreadable", "body")).await;
        let mut damaged = 0;
        for slot in 0..2 {
            let key = format!("idempotent:delay:{{{TOPIC}:{slot}}}:msg");
            for member in self.place.command(&key, &["HKEYS", &key]).items() {
                self.place.command(&key, &["HSET", &key, &member.text(), "of another version"]);
                damaged += 1;
            }
        }
        assert_eq!(damaged, 1);
    }

    async fn dead_letters(&self) -> Vec<(Message, DeadLetter)> {
        let mut letters = DelayDeadLetters::new(&self.producer);
        let mut all = Vec::new();
        while let Some(StoredLetter { delivery, letter, .. }) = letters.next().await.unwrap() {
            let mut message = Message::new(delivery.id.unwrap(), delivery.body);
            message.headers = delivery.headers;
            all.push((message, letter.unwrap()));
        }
        all
    }

    fn letters(&self) -> Box<dyn DeadLetters> {
        Box::new(DelayDeadLetters::new(&self.producer))
    }

    async fn is_empty(&self) -> bool {
        let counts = self.producer.counts().await.unwrap();
        counts.ready + counts.waiting + counts.in_flight == 0
    }

    async fn cut(&self) {
        match &self.between {
            Some(between) => between.cut_all(),
            None => {
                for node in self.place.nodes() {
                    node.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                    node.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                }
                // The producer has lost its connections, too. Each attempt lets the limit of the law end.
                while self.producer.counts().await.is_err() {
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    async fn begin_outage(&self, outage: Outage) {
        self.between.as_ref().unwrap().begin_outage(outage == Outage::Silent);
    }

    async fn end_outage(&self) {
        self.between.as_ref().unwrap().end_outage();
    }
}

// Producers send by the delay queue only.
broker_conformance!(
    a_delay_queue_on_one_server_keeps_the_laws,
    Queue::single(),
    without: [what_a_producer_wrote_decides_neither_the_attempt_nor_the_queue_of_its_message]
);

mod extras {
    use super::*;

    // The nodes announce their own addresses, so that no proxy is between them and the source. Producers send by the delay queue only.
    broker_conformance!(
        a_delay_queue_on_a_cluster_keeps_the_laws,
        Queue::cluster(),
        without: [
            a_drain_during_an_outage_ends_and_each_message_runs_once,
            what_a_producer_wrote_decides_neither_the_attempt_nor_the_queue_of_its_message,
            a_run_that_ends_during_an_outage_is_not_repeated,
        ]
    );
}
