//! The stream, consumed in several ways.
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::{Client, jetstream};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use idempotent::nats::JetStreamSource;
use idempotent::{Executor, MemoryStore, RedisStore};
use idempotent_harness::servers::{NatsServer, RedisServer};
use tokio::runtime::Runtime;

use crate::consumed::{Begun, Consumed, TimedHandler};
use crate::stream::{CONSUMER, PREFETCH, Queue, STREAM};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// The bare client, which sends acknowledgements without waiting for the server.
    Bare,
    /// The bare client, which waits for the confirmations of 256 acknowledgements at once.
    Confirmed,
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
    pub fn new(nats: &NatsServer, redis: &RedisServer) -> Self {
        let runtime = crate::cpu::runtime();
        let (queue, store) = runtime.block_on(async {
            source(&nats.url()).await;
            let client = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
            (Queue::new(client), RedisStore::connect(redis.url()).await.unwrap())
        });
        Self { runtime, queue, url: nats.url(), redis: Executor::new(store) }
    }

    /// Consumes `messages` existing messages from the server at this URL.
    pub fn consume(&self, way: Way, url: &str, messages: u64) -> Consumed {
        let (executor, handler) = match way {
            Way::Bare => return self.runtime.block_on(bare(url, messages)),
            Way::Confirmed => return self.runtime.block_on(confirmed(url, messages)),
            Way::Unprotected => (Executor::new(MemoryStore::new()), TimedHandler::unprotected()),
            Way::Memory => (Executor::new(MemoryStore::new()), TimedHandler::keyed()),
            Way::Redis => (self.redis.clone(), TimedHandler::keyed()),
        };
        self.runtime.block_on(async {
            let source = source(url).await;
            handler.consume(source, &executor, PREFETCH, messages).await
        })
    }
}

async fn source(url: &str) -> JetStreamSource {
    JetStreamSource::builder(url, STREAM, CONSUMER).declare(["orders.>"]).connect().await.unwrap()
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
