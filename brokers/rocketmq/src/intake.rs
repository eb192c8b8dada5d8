//! The receiving end of a session, and the task that runs the session's client.
use std::sync::Arc;
use std::time::Duration;

use idempotent_mq::{Delivery, SourceError};
use rocketmq_client_rust::{ClientResult, ClientRuntime, DefaultMQPushConsumer, MQPushConsumer};
use rocketmq_model::common::consumer::consume_from_where::ConsumeFromWhere;
use tokio::sync::oneshot;
use tracing::info;

use crate::call_queue::{CallEvent, CallObserver};
use crate::client::{answer_of, client_config, spawn_client};
use crate::error::failure;
use crate::listener::SessionListener;
use crate::producer::MessageProducer;
use crate::session::{ConsumerSession, QueuedDelivery};
use crate::settings::SourceSettings;
use crate::settler::RocketTag;
use crate::topics::provide_own_topics;

/// The receiving end of a session. After a drop, the session ends when all taken deliveries are answered.
#[derive(Debug)]
pub(crate) struct SessionIntake(Arc<ConsumerSession>);

/// Interval of rebalancing. By default the client rebalances every 20 s and when the broker reports a change of the group,
/// which the broker's release 1.0 does not do.
const REBALANCE_INTERVAL: Duration = Duration::from_secs(2);
/// Time in ms that the client waits at shutdown for pending calls. Calls whose messages were never taken do not return.
const CALL_SHUTDOWN_MS: u64 = 500;
/// Time limit for the end of a session, which reports to all brokers.
const CLOSING_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of redeliveries by the broker, which must not dead-letter a message.
const MAX_REDELIVERIES: i32 = i32::MAX;
/// Time in minutes after which the client sends a message back to the broker while its listener runs: about a century. It would send
/// the body as it is stored, without the flag of its compression.
const CALL_TIMEOUT_MINUTES: u64 = 52_560_000;

impl SessionIntake {
    /// Opens a session, in one attempt.
    pub(crate) async fn open(settings: &Arc<SourceSettings>, prefetch: usize) -> Result<Self, SourceError> {
        let (ready, opened) = oneshot::channel();
        let settings = settings.clone();
        let listeners = prefetch.div_ceil(settings.batch);
        spawn_client(listeners, move |runtime| async move {
            match SessionTask::start(&runtime, settings, listeners).await {
                Ok(task) => {
                    // If the caller was cancelled, this drops the intake, which ends the session.
                    drop(ready.send(Ok(Self(task.session.clone()))));
                    task.run().await;
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
        answer_of("connecting", opened).await
    }

    /// Waits for deliveries and returns at least one and at most `room`.
    pub(crate) async fn next(&self, room: usize) -> Vec<(Delivery, RocketTag)> {
        let session = &self.0;
        let taken = session.calls.take(room).await;
        session.drain.add(taken.len());
        let tag =
            |QueuedDelivery { delivery, headers, answer }| (delivery, RocketTag::new(session.clone(), headers, answer));
        taken.into_iter().map(tag).collect()
    }

    /// Closes the session. If all taken deliveries are answered, waits for its end, or leaves the end to the background.
    pub(crate) async fn close(&self) {
        self.start_closing();
        if self.0.drain.all_answered() {
            let _ = tokio::time::timeout(CLOSING_LIMIT, self.0.drain.wait_for_end()).await;
        }
    }

    fn start_closing(&self) {
        self.0.drain.close();
        self.0.calls.close();
    }
}

impl Drop for SessionIntake {
    fn drop(&mut self) {
        self.start_closing();
    }
}

/// The task that runs a session's client.
struct SessionTask {
    session: Arc<ConsumerSession>,
    consumer: DefaultMQPushConsumer,
}

impl SessionTask {
    async fn start(
        runtime: &Arc<ClientRuntime>,
        settings: Arc<SourceSettings>,
        listeners: usize,
    ) -> Result<Self, SourceError> {
        let started = MessageProducer::start(runtime, &settings.client, &settings.group).await;
        let started =
            started.map_err(|error| failure("connecting: the producer for copies could not be started", error));
        let producer = Arc::new(started?);
        provide_own_topics(runtime, &producer, &settings).await?;
        let session = Arc::new(ConsumerSession::new(settings, producer));
        let consumer = consumer(&session, runtime, listeners);
        let mut consumer = consumer.map_err(|error| failure("connecting: the consumer could not be created", error))?;
        let SourceSettings { topic, retry_topic, .. } = &*session.settings;
        let subscribe = async {
            // Tags are selected by `ConsumerSession::wants`.
            consumer.subscribe(topic.as_str(), "*").await?;
            consumer.subscribe(retry_topic.as_str(), "*").await?;
            consumer.start().await
        };
        match subscribe.await {
            Ok(()) => Ok(Self { session, consumer }),
            Err(error) => {
                session.producer.shut_down().await;
                Err(failure("subscribing to the topic failed", error))
            }
        }
    }

    /// Runs until the session is closed and all taken deliveries are reported.
    async fn run(mut self) {
        let Self { session, consumer } = &mut self;
        let ConsumerSession { settings, drain, .. } = &**session;
        info!(target: "idempotent", topic = settings.topic, group = settings.group, "consuming started");
        let mut suspended = false;
        loop {
            if drain.is_closing() {
                if drain.all_reported() {
                    break;
                }
                if !std::mem::replace(&mut suspended, true) {
                    consumer.suspend().await;
                }
            }
            // Resuming a running client rebalances its queues.
            if tokio::time::timeout(REBALANCE_INTERVAL, drain.changed()).await.is_err() && !suspended {
                consumer.resume().await;
            }
        }
        // Reports the offsets to the broker and leaves the group.
        consumer.shutdown().await;
        drain.note_client_end();
        session.producer.shut_down().await;
        drain.note_end();
        info!(target: "idempotent", topic = settings.topic, group = settings.group, "consuming ended");
    }
}

/// Wakes all waiting threads and tasks, including after a panic.
impl Drop for SessionTask {
    fn drop(&mut self) {
        self.session.drain.note_client_end();
        self.session.drain.note_end();
    }
}

fn consumer(
    session: &Arc<ConsumerSession>,
    runtime: &Arc<ClientRuntime>,
    listeners: usize,
) -> ClientResult<DefaultMQPushConsumer> {
    let settings = &session.settings;
    let threads = u32::try_from(listeners).unwrap_or(u32::MAX);
    let mut builder = DefaultMQPushConsumer::builder(runtime.clone());
    if let Some(signer) = settings.client.signer() {
        builder = builder.rpc_hook(Some(signer));
    }
    let mut consumer = builder
        .client_config(client_config(&settings.client))
        .name_server_addr(settings.client.name_servers.as_str())
        .consumer_group(settings.group.as_str())
        // A new group starts with the oldest message, so messages that were published before are not lost.
        .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
        .consume_thread_min(threads)
        .consume_thread_max(threads)
        .consume_message_batch_max_size(u32::try_from(settings.batch).unwrap_or(1))
        .max_reconsume_times(MAX_REDELIVERIES)
        .consume_timeout(CALL_TIMEOUT_MINUTES)
        .await_termination_millis_when_shutdown(CALL_SHUTDOWN_MS)
        .build();
    let observed = session.clone();
    consumer.register_consume_message_hook(CallObserver(move |event| match event {
        CallEvent::Started(call) => observed.calls.announce(call),
        CallEvent::Ended(call) => observed.calls.finish(&call),
    }))?;
    let listener = SessionListener(session.clone());
    if settings.orderly {
        consumer.register_message_listener_orderly(listener);
    } else {
        consumer.register_message_listener_concurrently(listener);
    }
    Ok(consumer)
}
