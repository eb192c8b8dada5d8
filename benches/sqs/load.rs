//! The cost of messages over Amazon SQS: `cargo xtask bench sqs`.
//!
//! One queue for each slice, filled before it is consumed, in several ways: by a bare client that receives and deletes ten messages
//! at a time, and by the consumer runtime without keys, and with keys in memory and in Redis. Each figure is compared with the figure of
//! the bare client in the same round, measured alternately, so that a busy machine slows down both. Ratios are medians of the ratios
//! within a round. The server is moto, an emulator that takes most of the time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
#[path = "../mq/broker.rs"]
#[allow(dead_code, reason = "other benches use more of this module")]
mod broker;

use std::sync::Mutex;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName, SendMessageBatchRequestEntry,
};
use idempotent::sqs::SqsSource;
use idempotent_harness::servers::MotoServer;
use tokio::task::JoinSet;

use crate::broker::{Begun, Broker, COMPARED, Consumed, body};

/// The number of messages in a slice. moto is slow, and slower with more messages in a queue.
const MESSAGES: u64 = 200;
/// The queue for dead letters of all slices.
const DEAD: &str = "orders-dead";
/// The largest number of messages of one request.
const BATCH: u64 = 10;

fn main() {
    broker::bench("sqs", &COMPARED, MESSAGES, Sqs::start);
}

struct Sqs {
    server: MotoServer,
    client: Client,
    body: String,
    /// The URL of the queue that was filled last.
    queue: Mutex<Option<String>>,
}

impl Sqs {
    async fn start() -> Self {
        let server = MotoServer::start();
        let client = client(&server.address());
        client.create_queue().queue_name(DEAD).send().await.unwrap();
        Self { server, client, body: body(), queue: Mutex::default() }
    }

    fn queue(&self) -> String {
        self.queue.lock().unwrap().clone().expect("a filled queue")
    }
}

/// Returns a client of the emulator at this address.
fn client(address: &str) -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .endpoint_url(format!("http://{address}"));
    Client::from_conf(config.build())
}

/// Each slice has a queue of its own.
impl Broker for Sqs {
    type Source = SqsSource;

    fn url(&self) -> String {
        self.server.address()
    }

    async fn fill(&self, from: u64, messages: u64) {
        let created = self.client.create_queue().queue_name(format!("orders-{from}")).send().await.unwrap();
        let url = created.queue_url.unwrap();
        // The last poll of the previous consumer may still wait for messages of its queue.
        let old = self.queue.lock().unwrap().replace(url.clone());
        if let Some(old) = old {
            self.client.delete_queue().queue_url(old).send().await.unwrap();
        }
        for first in (0..messages).step_by(usize::try_from(BATCH).unwrap()) {
            let entry = |number: u64| {
                let entry = SendMessageBatchRequestEntry::builder().id(number.to_string()).message_body(&self.body);
                entry.build().unwrap()
            };
            let entries = (first..messages.min(first + BATCH)).map(entry).collect();
            let send = self.client.send_message_batch().queue_url(&url).set_entries(Some(entries));
            assert!(send.send().await.unwrap().failed.is_empty());
        }
    }

    async fn source(&self, address: &str) -> SqsSource {
        let source = SqsSource::builder(client(address), self.queue()).dead_letters(DEAD);
        source.long_poll(Duration::from_secs(1)).connect().await.unwrap()
    }

    /// Receives ten messages at a time, and deletes each ten by one request while it receives the next ones.
    async fn bare(&self, address: &str, _: bool, messages: u64) -> Consumed {
        let (client, queue) = (client(address), self.queue());
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
