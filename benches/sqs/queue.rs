//! The queue of a slice, which is filled before it is consumed.
use std::sync::Mutex;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_sqs::types::SendMessageBatchRequestEntry;

/// The maximum number of messages that a consumer holds.
pub const PREFETCH: usize = 256;
/// The queue for dead letters of all slices.
pub const DEAD: &str = "orders-dead";
/// The largest number of messages of one request.
pub const BATCH: u64 = 10;

pub struct Queue {
    client: Client,
    body: String,
    /// The URL of the queue.
    queue: Mutex<Option<String>>,
}

/// Returns a client of the emulator at this address.
pub fn client(address: &str) -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .endpoint_url(format!("http://{address}"));
    Client::from_conf(config.build())
}

impl Queue {
    /// Messages of a few hundred bytes, like a typical order.
    pub async fn new(client: Client) -> Self {
        let lines = (0..8).map(|line| format!(r#"{{"sku":"desk-{line}","qty":{line},"cents":12900}}"#));
        let body = format!(r#"{{"order":17,"customer":"c-8431","lines":[{}]}}"#, lines.collect::<Vec<_>>().join(","));
        client.create_queue().queue_name(DEAD).send().await.unwrap();
        Self { client, body, queue: Mutex::default() }
    }

    /// Returns the URL of the queue that was filled last.
    pub fn url(&self) -> String {
        self.queue.lock().unwrap().clone().expect("a filled queue")
    }

    /// Sends `messages` messages to a new queue, whose name contains the number `from`.
    pub async fn fill(&self, from: u64, messages: u64) {
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
}
