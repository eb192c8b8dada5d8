//! The queue, consumed in several ways.
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use idempotent::rabbitmq::{Queue as Ours, RabbitSource};
use idempotent::{Executor, MemoryStore, RedisStore};
use idempotent_harness::servers::{RabbitServer, RedisServer};
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use tokio::runtime::Runtime;

use crate::consumed::{Begun, Consumed, TimedHandler};
use crate::queue::{PREFETCH, QUEUE, Queue};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// The bare client, which does not wait for each acknowledgement.
    Bare,
    /// The bare client as in its documentation: it takes the next message when the acknowledgement of the last one is
    /// written.
    OneByOne,
    /// The consumer runtime without keys.
    Unprotected,
    /// The consumer runtime with keys, in memory.
    Memory,
    /// The consumer runtime with keys, in Redis.
    Redis,
}

/// The environment that all ways share.
pub struct Place {
    pub runtime: Runtime,
    pub queue: Queue,
    pub url: String,
    redis: Executor,
}

impl Place {
    pub fn new(rabbit: &RabbitServer, redis: &RedisServer) -> Self {
        let runtime = crate::cpu::runtime();
        let (queue, store) =
            runtime.block_on(async { (Queue::declared(&rabbit.url()).await, RedisStore::connect(redis.url()).await) });
        Self { runtime, queue, url: rabbit.url(), redis: Executor::new(store.unwrap()) }
    }

    /// Consumes `messages` existing messages from the broker at this URL.
    pub fn consume(&self, way: Way, url: &str, messages: u64) -> Consumed {
        let (executor, handler) = match way {
            Way::Bare => return self.runtime.block_on(bare(url, messages)),
            Way::OneByOne => return self.runtime.block_on(one_by_one(url, messages)),
            Way::Unprotected => (Executor::new(MemoryStore::new()), TimedHandler::unprotected()),
            Way::Memory => (Executor::new(MemoryStore::new()), TimedHandler::keyed()),
            Way::Redis => (self.redis.clone(), TimedHandler::keyed()),
        };
        self.runtime.block_on(async {
            let source = RabbitSource::builder(url, Ours::classic(QUEUE)).build().unwrap();
            handler.consume(source, &executor, PREFETCH, messages).await
        })
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
