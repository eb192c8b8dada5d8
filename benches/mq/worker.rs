//! The worker whose memory is measured.
use std::io::{Write, stdout};
use std::time::Duration;

use idempotent::mq::{Consumer, HandlerResult, KeyFrom, Message, Messages, Schedule};
use idempotent::rabbitmq::{Queue, RabbitSource};
use idempotent::store::CacheOptions;
use idempotent::{Executor, Lease, RedisStore};

use crate::broker::PREFETCH;
use crate::queue::QUEUE;

/// The first argument of a worker.
pub const WORD: &str = "worker";
/// The number of cached consumed keys, so that the cache is full long before the end of the first tenth.
const KEYS: usize = 20_000;

/// Consumes until the process is killed, and prints how many messages it has acknowledged.
pub fn run(rabbit: &str, redis: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut options = CacheOptions::default();
        // Without results, their space is also used for keys.
        (options.keys, options.result_bytes) = (KEYS, 0);
        let store = RedisStore::builder(redis).cache(options).connect().await.unwrap();
        let executor = Executor::new(store);
        let source = RabbitSource::builder(rabbit, Queue::classic(QUEUE)).build().unwrap();
        let handling = Messages::raw().keyed(KeyFrom::message_id()).run(handle);
        let consumer = Consumer::builder(source, QUEUE, &executor).concurrency(PREFETCH).prefetch(PREFETCH);
        let consumer = consumer.schedule(Schedule::list([Duration::from_millis(100)])).build(handling).unwrap();
        let counters = consumer.counters();
        let telling = async {
            let mut told = 0;
            loop {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let acked = counters.counts().acked;
                if acked > told {
                    told = acked;
                    // If the parent no longer reads, the process is about to be killed.
                    let _ = writeln!(stdout(), "{acked}");
                }
            }
        };
        consumer.run(telling).await.unwrap();
    });
}

/// One of ten messages fails at first.
async fn handle(message: Message<()>) -> HandlerResult {
    let number = message.delivery.id.as_deref().and_then(|id| id.rsplit('-').next()?.parse::<u64>().ok());
    let first = Lease::current().is_none_or(|lease| lease.attempt() == 1);
    match number {
        Some(number) if first && number % 10 == 7 => HandlerResult::Again { after: None, error: "not yet".into() },
        _ => HandlerResult::Done,
    }
}
