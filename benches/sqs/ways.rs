//! The queue, consumed in several ways.
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName};
use idempotent::sqs::SqsSource;
use idempotent::{Executor, MemoryStore, RedisStore};
use idempotent_harness::servers::{MotoServer, RedisServer};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::consumed::{Begun, Consumed, TimedHandler};
use crate::queue::{BATCH, DEAD, PREFETCH, Queue, client};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// The bare client, which receives ten messages at a time, and deletes each ten by one request while it receives the next ones.
    Bare,
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
    /// The host and the port of the emulator.
    pub url: String,
    redis: Executor,
}

impl Place {
    pub fn new(moto: &MotoServer, redis: &RedisServer) -> Self {
        let runtime = crate::cpu::runtime();
        let (queue, store) = runtime.block_on(async {
            (Queue::new(client(&moto.address())).await, RedisStore::connect(redis.url()).await.unwrap())
        });
        Self { runtime, queue, url: moto.address(), redis: Executor::new(store) }
    }

    /// Consumes `messages` existing messages of the filled queue.
    pub fn consume(&self, way: Way, address: &str, messages: u64) -> Consumed {
        let (executor, handler) = match way {
            Way::Bare => return self.runtime.block_on(bare(client(address), self.queue.url(), messages)),
            Way::Unprotected => (Executor::new(MemoryStore::new()), TimedHandler::unprotected()),
            Way::Memory => (Executor::new(MemoryStore::new()), TimedHandler::keyed()),
            Way::Redis => (self.redis.clone(), TimedHandler::keyed()),
        };
        self.runtime.block_on(async {
            let source = SqsSource::builder(client(address), self.queue.url()).dead_letters(DEAD);
            let source = source.long_poll(Duration::from_secs(1)).connect().await.unwrap();
            handler.consume(source, &executor, PREFETCH, messages).await
        })
    }
}

async fn bare(client: Client, queue: String, messages: u64) -> Consumed {
    let (mut begun, mut received, mut deleting) = (None, 0, JoinSet::new());
    while received < messages {
        let receive = client.receive_message().queue_url(&queue).wait_time_seconds(1);
        let receive = receive.max_number_of_messages(i32::try_from(BATCH).unwrap()).visibility_timeout(30);
        // As the source, which needs them for headers and times.
        let receive = receive.message_attribute_names("All");
        let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
        let arrived = receive.send().await.unwrap().messages.unwrap_or_default();
        begun.get_or_insert_with(Begun::now);
        received += arrived.len() as u64;
        deleting.spawn(delete(client.clone(), queue.clone(), arrived));
    }
    deleting.join_all().await;
    begun.unwrap().ended()
}

async fn delete(client: Client, queue: String, messages: Vec<Message>) {
    let entry = |(number, message): (usize, Message)| {
        let entry = DeleteMessageBatchRequestEntry::builder().id(number.to_string());
        entry.set_receipt_handle(message.receipt_handle).build().unwrap()
    };
    let entries = messages.into_iter().enumerate().map(entry).collect();
    let delete = client.delete_message_batch().queue_url(queue).set_entries(Some(entries));
    assert!(delete.send().await.unwrap().failed.is_empty());
}
