//! A queue per test, and helpers.
use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use idempotent_core::{Executor, MemoryStore};
use idempotent_harness::servers::MotoServer;
use idempotent_mq::MessageHandler;
use idempotent_sqs::{SqsDeadLetters, SqsSource, SqsSourceBuilder};
use idempotent_testkit::broker::testing::billing;
pub(crate) use idempotent_testkit::broker::testing::{
    LIMIT, Running, counting, gated, one, receive, retry, settle, until,
};

pub(crate) const REGION: &str = "eu-west-1";

static SERVER: LazyLock<MotoServer> = LazyLock::new(MotoServer::start);
static QUEUES: AtomicU32 = AtomicU32::new(0);

/// A queue with a queue of dead letters, and a client to inspect them.
pub(crate) struct World {
    /// The host and the port of the emulator.
    pub(crate) address: String,
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) executor: Executor,
}

/// Returns a client of the emulator at this address, or of a proxy.
pub(crate) fn client(address: &str) -> Client {
    client_in(address, REGION)
}

pub(crate) fn client_in(address: &str, region: &'static str) -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(region))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .endpoint_url(format!("http://{address}"));
    Client::from_conf(config.build())
}

/// Returns the address of the emulator that all tests share.
pub(crate) async fn server() -> String {
    // Starting the emulator blocks the thread.
    tokio::task::spawn_blocking(|| SERVER.address()).await.unwrap()
}

impl World {
    /// Creates two standard queues.
    pub(crate) async fn new() -> Self {
        Self::with("", []).await
    }

    /// Creates two FIFO queues.
    pub(crate) async fn fifo() -> Self {
        Self::with(".fifo", [(QueueAttributeName::FifoQueue, "true")]).await
    }

    async fn with<const N: usize>(suffix: &str, attributes: [(QueueAttributeName, &str); N]) -> Self {
        let address = server().await;
        let (client, number) = (client(&address), QUEUES.fetch_add(1, SeqCst));
        let attributes: HashMap<_, _> = attributes.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        for part in ["", "-dead"] {
            let create = client.create_queue().queue_name(format!("orders-{number}{part}{suffix}"));
            create.set_attributes(Some(attributes.clone())).send().await.unwrap();
        }
        let name = format!("orders-{number}{suffix}");
        Self { address, client, name, executor: Executor::new(MemoryStore::new()) }
    }

    /// Returns the name of the queue of the dead letters.
    pub(crate) fn dead(&self) -> String {
        match self.name.strip_suffix(".fifo") {
            Some(name) => format!("{name}-dead.fifo"),
            None => format!("{}-dead", self.name),
        }
    }

    pub(crate) async fn url(&self, name: &str) -> String {
        self.client.get_queue_url().queue_name(name).send().await.unwrap().queue_url.unwrap()
    }

    /// Returns a builder for the queue, which redelivers after 2 s.
    pub(crate) fn builder(&self) -> SqsSourceBuilder {
        builder_of(self.client.clone(), &self.name)
    }

    pub(crate) async fn source(&self) -> SqsSource {
        self.builder().connect().await.unwrap()
    }

    pub(crate) fn letters(&self) -> SqsDeadLetters {
        SqsDeadLetters::new(self.client.clone(), &*self.name)
    }

    /// Sends a message as another program does.
    pub(crate) async fn send(&self, body: &str) {
        let send = self.client.send_message().queue_url(self.url(&self.name).await).message_body(body);
        send.send().await.unwrap();
    }

    /// Sends a message to a group of a FIFO queue.
    pub(crate) async fn send_to(&self, group: &str, body: &str) {
        let send = self.client.send_message().queue_url(self.url(&self.name).await).message_body(body);
        send.message_group_id(group).message_deduplication_id(body).send().await.unwrap();
    }

    /// Returns the numbers of messages that are ready, and that are hidden or delayed.
    pub(crate) async fn numbers(&self, name: &str) -> (u32, u32) {
        let get = self.client.get_queue_attributes().queue_url(self.url(name).await);
        let all = get.attribute_names(QueueAttributeName::All).send().await.unwrap().attributes.unwrap();
        let number = |name| all[&name].parse::<u32>().unwrap();
        let hidden = number(QueueAttributeName::ApproximateNumberOfMessagesNotVisible);
        let delayed = number(QueueAttributeName::ApproximateNumberOfMessagesDelayed);
        (number(QueueAttributeName::ApproximateNumberOfMessages), hidden + delayed)
    }

    /// Returns the number of messages that are not acknowledged.
    pub(crate) async fn open(&self) -> u32 {
        let (ready, hidden) = self.numbers(&self.name).await;
        ready + hidden
    }

    /// Returns at most ten messages of a queue without hiding them.
    pub(crate) async fn peek(&self, name: &str) -> Vec<Message> {
        let receive = self.client.receive_message().queue_url(self.url(name).await).max_number_of_messages(10);
        let receive = receive.visibility_timeout(0).message_attribute_names("All");
        let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
        receive.send().await.unwrap().messages.unwrap_or_default()
    }

    pub(crate) fn run(&self, source: SqsSource, handling: MessageHandler) -> Running {
        Running::new(billing(source, &self.executor).build(handling).unwrap())
    }
}

pub(crate) fn builder_of(client: Client, name: &str) -> SqsSourceBuilder {
    SqsSource::builder(client, name).visibility_timeout(ms(2_000)).long_poll(ms(2_000))
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
