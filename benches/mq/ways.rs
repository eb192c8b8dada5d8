//! The queue, consumed in several ways.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use idempotent::mq::{Consumer, ConsumerCounters, HandlerResult, KeyFrom, Message, MessageHandler, Messages};
use idempotent::rabbitmq::{Queue as Ours, RabbitSource};
use idempotent::{Executor, MemoryStore, RedisStore};
use idempotent_harness::servers::{RabbitServer, RedisServer};
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use tokio::runtime::Runtime;

use crate::cpu;
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
    pub fn new(rabbit: &RabbitServer, redis: &RedisServer) -> Self {
        let runtime = crate::cpu::runtime();
        let (queue, store) =
            runtime.block_on(async { (Queue::declared(&rabbit.url()).await, RedisStore::connect(redis.url()).await) });
        Self { runtime, queue, url: rabbit.url(), redis: Executor::new(store.unwrap()) }
    }

    /// Consumes `messages` existing messages from the broker at this URL.
    pub fn consume(&self, way: Way, url: &str, messages: u64) -> Consumed {
        let keyed = |executor| {
            let key = KeyFrom::message_id();
            (executor, handling(|handler| Messages::raw().keyed(key).run(handler)))
        };
        let (executor, (handling, begun)) = match way {
            Way::Bare => return self.runtime.block_on(bare(url, messages)),
            Way::OneByOne => return self.runtime.block_on(one_by_one(url, messages)),
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

async fn ours(
    url: &str,
    executor: &Executor,
    handling: MessageHandler,
    begun: &OnceLock<Begun>,
    messages: u64,
) -> Consumed {
    let source = RabbitSource::builder(url, Ours::classic(QUEUE)).build().unwrap();
    let consumer = Consumer::builder(source, QUEUE, executor).concurrency(PREFETCH).prefetch(PREFETCH);
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

/// Returns new numbers for messages.
pub fn numbers(messages: u64) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(messages, Relaxed)
}
