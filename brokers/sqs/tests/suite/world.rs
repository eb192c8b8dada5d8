//! A queue per test, and helpers.
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use idempotent_core::{Executor, MemoryStore, Timestamp};
use idempotent_harness::servers::MotoServer;
use idempotent_mq::{
    Consumer, ConsumerCounts, Delivery, KeyFrom, MessageHandler, Messages, Received, Retry, Schedule, Settle,
    Settlement, Source, SourceError,
};
use idempotent_sqs::{SqsDeadLetters, SqsSource, SqsSourceBuilder, SqsTag};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

/// Limit for events that are certain to happen.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
pub(crate) const REGION: &str = "eu-west-1";

static SERVER: LazyLock<MotoServer> = LazyLock::new(MotoServer::start);
static QUEUES: AtomicU32 = AtomicU32::new(0);

pub(crate) type Held = (Delivery, SqsTag);

/// A queue with a queue of dead letters, and a client to inspect them.
pub(crate) struct World {
    /// The host and the port of the emulator.
    pub(crate) address: String,
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) executor: Executor,
}

/// A consumer that runs in a task.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<ConsumerCounts, SourceError>>,
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
        let builder = Consumer::builder(source, "billing", &self.executor).prefetch(8).concurrency(4);
        let builder = builder.schedule(Schedule::exponential(ms(50), ms(200)));
        Running::new(builder.grace(Duration::from_secs(10)).build(handling).unwrap())
    }
}

pub(crate) fn builder_of(client: Client, name: &str) -> SqsSourceBuilder {
    SqsSource::builder(client, name).visibility_timeout(ms(2_000)).long_poll(ms(2_000))
}

impl Running {
    fn new(consumer: Consumer<SqsSource>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(consumer.run(async { drop(stopped.await) }));
        Self { stop: Some(stop), task }
    }

    /// Waits until the consumer ends without a request.
    pub(crate) async fn ended_by_itself(self) -> Result<ConsumerCounts, SourceError> {
        tokio::time::timeout(LIMIT, self.task).await.unwrap().unwrap()
    }

    pub(crate) async fn ended(mut self) -> Result<ConsumerCounts, SourceError> {
        drop(self.stop.take());
        tokio::time::timeout(LIMIT, self.task).await.unwrap().unwrap()
    }
}

/// Returns a handler that counts its runs, one for each message.
pub(crate) fn counting() -> (MessageHandler, Arc<AtomicU32>) {
    let (handling, runs, gate) = gated();
    gate.close();
    (handling, runs)
}

/// Returns a handler that counts its runs, each of which waits for a permit.
pub(crate) fn gated() -> (MessageHandler, Arc<AtomicU32>, Arc<Semaphore>) {
    let (runs, gate) = (Arc::<AtomicU32>::default(), Arc::new(Semaphore::new(0)));
    let (counted, waits) = (runs.clone(), gate.clone());
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |_| {
        counted.fetch_add(1, SeqCst);
        let waits = waits.clone();
        async move {
            // Without an error, the permit is used up.
            let _ = waits.acquire().await.map(tokio::sync::SemaphorePermit::forget);
            Ok::<_, String>(())
        }
    });
    (handling, runs, gate)
}

/// Waits until there are messages.
pub(crate) async fn receive(source: &mut SqsSource, room: usize) -> Vec<Held> {
    let receiving = async {
        loop {
            let Received::Deliveries(some) = source.receive(room).await.unwrap() else { panic!("nothing is revoked") };
            if !some.is_empty() {
                return some;
            }
        }
    };
    tokio::time::timeout(LIMIT, receiving).await.unwrap()
}

pub(crate) async fn one(source: &mut SqsSource) -> Held {
    receive(source, 1).await.pop().unwrap()
}

pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !so().await {
        assert!(start.elapsed() < LIMIT, "still not: {what}");
        tokio::time::sleep(ms(20)).await;
    }
}

pub(crate) async fn settle(settler: &Arc<dyn Settle<SqsTag>>, held: &Held, how: Settlement) {
    settler.settle(&held.0, &held.1, &how).await.unwrap();
}

pub(crate) fn retry(after: Duration) -> Settlement {
    Settlement::Retry(Retry::after(after, Timestamp(1)))
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
