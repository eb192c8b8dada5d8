//! The client's runtime, on a thread of its own, and sending by it.
//!
//! The client wants to be given a runtime of its own kind, and calls listeners on blocking threads of that. Each call waits
//! until its message is settled, so that runtime is never the caller's, and has a thread for each call.
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rocketmq_client_rust::{
    ClientConfig, ClientError, ClientResult, ClientRuntime, ClientRuntimeConfig, DefaultMQProducer, SendResult,
    SendStatus, TelemetryHandle,
};
use rocketmq_model::common::message::message_queue::MessageQueue;
use rocketmq_model::common::message::message_single::Message;
use rocketmq_runtime::{RuntimeConfig, RuntimeOwner, ShutdownDeadline};
use tokio::runtime::Handle;
use tokio::sync::RwLock;
use tracing::warn;

use crate::headers::Properties;
use crate::queues::{Choice, Place};

/// Beside those that wait in a listener.
const THREADS: usize = 8;
/// A listener's call lasts as long as its run. The client's default of 30 s would send the message back meanwhile.
const CALL: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// For what the client's own tasks still do at the end.
const END: Duration = Duration::from_secs(2);

/// Runs `life` on a runtime with so many threads for listeners, on a thread of its own. One worker thread: what
/// the client hands out in order, it then hands out in order.
pub(crate) fn live<F>(listeners: usize, life: impl FnOnce(Arc<ClientRuntime>) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let spawned = thread::Builder::new().name("idempotent-rocketmq".to_owned()).spawn(move || {
        if let Err(why) = lived(listeners, life) {
            warn!(target: "idempotent", why, "RocketMQ's client has no runtime");
        }
    });
    // Whoever waits for `life` sees that it was dropped.
    if let Err(error) = spawned {
        warn!(target: "idempotent", %error, "no thread for RocketMQ's client");
    }
}

fn lived<F>(listeners: usize, life: impl FnOnce(Arc<ClientRuntime>) -> F) -> Result<(), String>
where
    F: Future<Output = ()> + Send + 'static,
{
    let all = listeners + THREADS;
    let config = RuntimeConfig::for_parallelism("idempotent-rocketmq", 1).with_max_blocking_threads(all);
    let mut config = config.map_err(|e| e.to_string())?;
    let calls = &mut config.blocking_lane_policies.metadata_io;
    (calls.max_concurrency, calls.max_queue_depth, calls.task_timeout, calls.warn_after) = (all, 2 * all, CALL, CALL);
    let owner = RuntimeOwner::plan(config).map_err(|e| e.to_string())?.build().map_err(|e| e.to_string())?;
    let scope = owner.root_context().component("client");
    let runtime = ClientRuntime::try_new(scope, ClientRuntimeConfig::default(), TelemetryHandle::noop());
    let runtime = runtime.map_err(|e| e.to_string())?;
    let life = life(runtime.clone());
    owner.block_on(async move {
        // As a task it is on the worker thread, too.
        let _ = tokio::spawn(life).await;
        runtime.shutdown_until(ShutdownDeadline::after(END)).await;
    });
    owner.shutdown_runtime_blocking_with_timeout(END).map(drop).map_err(|e| e.to_string())
}

/// Settings of one client. Each has a name of its own: two clients of one name and group would take turns.
pub(crate) fn config(name_servers: &str) -> ClientConfig {
    static CLIENTS: AtomicU64 = AtomicU64::new(0);
    let mut config = ClientConfig::new();
    config.set_namesrv_addr(name_servers.into());
    let number = CLIENTS.fetch_add(1, Relaxed);
    config.set_instance_name(format!("idempotent-{}-{number}", std::process::id()).into());
    // What is acknowledged and not yet told comes twice after a crash. The default is 5 s.
    config.set_persist_consumer_offset_interval(1_000);
    config
}

/// A producer on the client's runtime.
pub(crate) struct Sender {
    producer: RwLock<Option<DefaultMQProducer>>,
    handle: Handle,
}

/// Why a message is not known to be in a topic.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// The broker has it, and not in the way that it should have.
    Weak(SendStatus),
    /// Nobody knows, unless the error does.
    Failed(ClientError),
    /// The client has ended.
    Ended,
}

/// A try, the client's own repetitions included.
pub(crate) const TRY_MS: u64 = 4_000;
/// The most the client allows: the broker's limit is the one that counts.
pub(crate) const LARGEST: u32 = 128 * 1024 * 1024;

impl Sender {
    /// On the client's runtime.
    pub(crate) async fn start(
        runtime: &Arc<ClientRuntime>,
        name_servers: &str,
        group: &str,
    ) -> Result<Self, ClientError> {
        let builder = DefaultMQProducer::builder(runtime.clone()).client_config(config(name_servers));
        let mut producer =
            builder.name_server_addr(name_servers).producer_group(group).max_message_size(LARGEST).build();
        producer.start().await?;
        Ok(Self { producer: RwLock::new(Some(producer)), handle: Handle::current() })
    }

    /// Sends, and returns once the broker has stored it. Not from the client's own runtime alone: from any.
    ///
    /// # Cancellation
    /// It may have been sent, and may still be.
    pub(crate) async fn send(self: &Arc<Self>, outgoing: Outbound) -> Result<(), Unsent> {
        let own = self.clone();
        let sent = self.handle.spawn(async move {
            let producer = own.producer.read().await;
            let Some(producer) = producer.as_ref() else { return Err(Unsent::Ended) };
            stored(producer.send_with_timeout(outgoing.message(), TRY_MS).await).map(drop)
        });
        sent.await.unwrap_or(Err(Unsent::Ended))
    }

    /// As [`send`](Self::send), to this queue and without the client's repetitions, so that an error is of one try; and says
    /// where it lies.
    ///
    /// # Cancellation
    /// It may have been sent, and may still be.
    pub(crate) async fn put(
        self: &Arc<Self>,
        outgoing: Outbound,
        to: Choice,
        within: Duration,
    ) -> Result<Option<Place>, Unsent> {
        let own = self.clone();
        let ms = u64::try_from(within.as_millis()).map_or(TRY_MS, |ms| ms.min(TRY_MS));
        let sent = self.handle.spawn(async move {
            let producer = own.producer.read().await;
            let Some(producer) = producer.as_ref() else { return Err(Unsent::Ended) };
            let select = |queues: &[MessageQueue], message: &Message, to: &Choice| to.among(queues, message);
            let result = stored(producer.send_with_selector_timeout(outgoing.message(), select, to, ms).await)?;
            Ok(result.message_queue.and_then(|queue| Place::of(&queue, result.queue_offset)))
        });
        sent.await.unwrap_or(Err(Unsent::Ended))
    }

    /// From one of the client's blocking threads.
    pub(crate) fn send_blocking(self: &Arc<Self>, outgoing: Outbound) -> Result<(), Unsent> {
        self.handle.block_on(self.send(outgoing))
    }

    /// In how many queues a topic is.
    pub(crate) async fn queues(&self, topic: &str) -> Result<usize, ClientError> {
        // Beside what is being sent: the producer's own method would want it for itself.
        match self.producer.read().await.as_ref().and_then(DefaultMQProducer::default_mq_producer_impl) {
            Some(producer) => producer.fetch_publish_message_queues(&topic.into()).await.map(|queues| queues.len()),
            None => Err(ClientError::not_started()),
        }
    }

    /// On all brokers that have the topic `beside`.
    pub(crate) async fn create(&self, topic: &str, beside: &str, queues: u32) -> Result<(), ClientError> {
        let queues = i32::try_from(queues).unwrap_or(i32::MAX);
        match self.producer.write().await.as_mut() {
            Some(producer) => producer.create_topic(beside, topic, queues, Default::default()).await,
            None => Err(ClientError::not_started()),
        }
    }

    /// Waits for what is under way.
    pub(crate) async fn end(&self) {
        let producer = self.producer.write().await.take();
        if let Some(mut producer) = producer {
            producer.shutdown().await;
        }
    }
}

/// As its settings want it to be.
fn stored(sent: ClientResult<Option<SendResult>>) -> Result<SendResult, Unsent> {
    match sent {
        Ok(Some(result)) if result.send_status == SendStatus::SendOk => Ok(result),
        Ok(Some(result)) => Err(Unsent::Weak(result.send_status)),
        Ok(None) => Err(Unsent::Ended),
        Err(error) => Err(Unsent::Failed(error)),
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// A message, and where it goes.
#[derive(Clone)]
pub(crate) struct Outbound {
    pub(crate) topic: String,
    pub(crate) properties: Properties,
    pub(crate) flag: i32,
    /// 0: at once.
    pub(crate) level: i32,
    pub(crate) body: Vec<u8>,
}

impl Outbound {
    fn message(self) -> Message {
        // Never empty: the protocol has no such thing.
        let body = if self.body.is_empty() { vec![0] } else { self.body };
        let mut message = Message::builder().topic(self.topic).flag_bits(self.flag).body(body).build_unchecked();
        let properties = message.properties_mut().as_map_mut();
        properties.extend(self.properties.into_iter().map(|(name, value)| (name.into(), value.into())));
        if self.level > 0 {
            message.set_delay_time_level(self.level);
        }
        message
    }
}

/// Sizes only.
impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (topic, bytes) = (&self.topic, self.body.len());
        f.debug_struct("Outbound").field("topic", topic).field("bytes", &bytes).finish_non_exhaustive()
    }
}
