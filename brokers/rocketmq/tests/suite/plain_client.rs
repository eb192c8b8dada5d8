//! A client without the adapter, which sends messages and collects the messages of a topic.
use std::sync::{Arc, Mutex};
use std::thread;

use rocketmq_client_rust::{
    ClientConfig, ClientResult, ClientRuntime, ClientRuntimeConfig, ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus, DefaultMQProducer, DefaultMQPushConsumer, MQPushConsumer, MessageListenerConcurrently,
    SendStatus, TelemetryHandle,
};
use rocketmq_model::common::consumer::consume_from_where::ConsumeFromWhere;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_single::Message;
use rocketmq_runtime::{RuntimeConfig, RuntimeOwner};
use tokio::sync::{mpsc, oneshot};

/// A client that ends with the drop of this value.
pub(crate) struct PlainClient {
    orders: mpsc::UnboundedSender<(Message, oneshot::Sender<ClientResult<SendStatus>>)>,
    collected: Arc<Mutex<Vec<MessageExt>>>,
}

struct Collector(Arc<Mutex<Vec<MessageExt>>>);

impl MessageListenerConcurrently for Collector {
    fn consume_message(
        &self,
        messages: &[&MessageExt],
        _: &ConsumeConcurrentlyContext,
    ) -> ClientResult<ConsumeConcurrentlyStatus> {
        self.0.lock().unwrap().extend(messages.iter().map(|message| (*message).clone()));
        Ok(ConsumeConcurrentlyStatus::ConsumeSuccess)
    }
}

impl PlainClient {
    /// Starts a client that collects all messages of this topic.
    pub(crate) async fn start(name_server: String, collect: String) -> Self {
        let (orders, commands) = mpsc::unbounded_channel();
        let collected = Arc::<Mutex<Vec<MessageExt>>>::default();
        let (into, (ready, started)) = (collected.clone(), oneshot::channel());
        thread::spawn(move || {
            let config = RuntimeConfig::for_parallelism("raw", 1);
            let owner = RuntimeOwner::plan(config).unwrap().build().unwrap();
            let scope = owner.root_context().component("raw");
            let runtime = ClientRuntime::try_new(scope, ClientRuntimeConfig::default(), TelemetryHandle::noop());
            owner.block_on(serve(runtime.unwrap(), name_server, collect, into, commands, ready));
            owner.shutdown_background();
        });
        started.await.unwrap();
        Self { orders, collected }
    }

    /// Sends a message with these properties, unchanged.
    pub(crate) async fn send<'a>(
        &self,
        topic: &str,
        body: &[u8],
        properties: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) {
        let mut message = Message::builder().topic(topic).body(body.to_vec()).build_unchecked();
        let named = properties.into_iter().map(|(name, value)| (name.into(), value.into()));
        message.properties_mut().as_map_mut().extend(named);
        let (answer, sent) = oneshot::channel();
        self.orders.send((message, answer)).unwrap();
        assert_eq!(sent.await.unwrap().unwrap(), SendStatus::SendOk);
    }

    /// Returns the collected messages that were not taken.
    pub(crate) fn collected(&self) -> Vec<MessageExt> {
        self.collected.lock().unwrap().clone()
    }

    pub(crate) fn take(&self) -> Vec<MessageExt> {
        std::mem::take(&mut *self.collected.lock().unwrap())
    }
}

async fn serve(
    runtime: Arc<ClientRuntime>,
    name_server: String,
    collect: String,
    into: Arc<Mutex<Vec<MessageExt>>>,
    mut commands: mpsc::UnboundedReceiver<(Message, oneshot::Sender<ClientResult<SendStatus>>)>,
    ready: oneshot::Sender<()>,
) {
    let config = |name: &str| {
        let mut config = ClientConfig::new();
        config.set_namesrv_addr(name_server.as_str().into());
        config.set_instance_name(format!("{name}-{collect}").into());
        config
    };
    let builder = DefaultMQProducer::builder(runtime.clone()).client_config(config("sends"));
    let mut producer = builder.name_server_addr(name_server.as_str()).producer_group("raw").build();
    producer.start().await.unwrap();
    let mut consumer = DefaultMQPushConsumer::builder(runtime.clone())
        .client_config(config("collects"))
        .name_server_addr(name_server.as_str())
        .consumer_group(format!("raw-{collect}"))
        .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
        .build();
    consumer.subscribe(collect.as_str(), "*").await.unwrap();
    consumer.register_message_listener_concurrently(Collector(into));
    consumer.start().await.unwrap();
    ready.send(()).unwrap();
    while let Some((message, answer)) = commands.recv().await {
        let sent = producer.send_with_timeout(message, 5_000).await;
        let _ = answer.send(sent.map(|result| result.unwrap().send_status));
    }
    consumer.shutdown().await;
    producer.shutdown().await;
    runtime.shutdown().await;
}
