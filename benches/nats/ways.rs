//! The stream, consumed in several ways.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::{Client, jetstream};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use idempotent::mq::{Consumer, ConsumerCounters, HandlerResult, KeyFrom, Message, MessageHandler, Messages};
use idempotent::nats::JetStreamSource;
use idempotent::{Executor, MemoryStore, RedisStore};
use idempotent_harness::servers::{NatsServer, RedisServer};
use tokio::runtime::Runtime;

use crate::cpu;
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

/// The time from the first delivery to the last acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Consumed {
    pub wall: Duration,
    /// The processor time of this process.
    pub here: Duration,
}

/// The start time, and the processor time until then.
struct Begun(Instant, Duration);

impl Begun {
    fn now() -> Self {
        Self(Instant::now(), cpu::spent(std::process::id()))
    }

    fn ended(&self) -> Consumed {
        Consumed { wall: self.0.elapsed(), here: cpu::spent(std::process::id()).saturating_sub(self.1) }
    }
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
        let keyed = |executor| {
            let key = KeyFrom::message_id();
            (executor, handling(|handler| Messages::raw().keyed(key).run(handler)))
        };
        let (executor, (handling, begun)) = match way {
            Way::Bare => return self.runtime.block_on(bare(url, messages)),
            Way::Confirmed => return self.runtime.block_on(confirmed(url, messages)),
            Way::Unprotected => {
                let handling = handling(|handler| Messages::raw().unprotected(handler));
                (Executor::new(MemoryStore::new()), handling)
            }
            Way::Memory => keyed(Executor::new(MemoryStore::new())),
            Way::Redis => keyed(self.redis.clone()),
        };
        self.runtime.block_on(ours(url, &executor, handling, &begun, messages))
    }
}

type Handler = Box<dyn Fn(Message<()>) -> std::future::Ready<HandlerResult> + Send + Sync>;

/// Returns a handler that does nothing, and the time of its first call.
fn handling(with: impl FnOnce(Handler) -> MessageHandler) -> (MessageHandler, Arc<OnceLock<Begun>>) {
    let begun = Arc::new(OnceLock::new());
    let noted = begun.clone();
    let handler: Handler = Box::new(move |_| {
        noted.get_or_init(Begun::now);
        std::future::ready(HandlerResult::Done)
    });
    (with(handler), begun)
}

async fn source(url: &str) -> JetStreamSource {
    JetStreamSource::builder(url, STREAM, CONSUMER).declare(["orders.>"]).connect().await.unwrap()
}

async fn ours(
    url: &str,
    executor: &Executor,
    handling: MessageHandler,
    begun: &OnceLock<Begun>,
    messages: u64,
) -> Consumed {
    let consumer = Consumer::builder(source(url).await, STREAM, executor).concurrency(PREFETCH).prefetch(PREFETCH);
    let consumer = consumer.build(handling).unwrap();
    let counters = consumer.counters();
    let mut consumed = None;
    let counts = consumer.run(async { consumed = Some(all(&counters, begun, messages).await) }).await.unwrap();
    assert_eq!((counts.acked, counts.received), (messages, messages), "{counts:?}");
    consumed.unwrap()
}

async fn all(counters: &ConsumerCounters, begun: &OnceLock<Begun>, messages: u64) -> Consumed {
    while counters.counts().acked < messages {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    begun.get().unwrap().ended()
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

/// Returns new numbers for messages.
pub fn numbers(messages: u64) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(messages, Relaxed)
}
