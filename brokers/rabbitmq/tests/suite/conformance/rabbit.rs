//! A queue on the broker that all tests of this binary share, with a plain client to inspect the queue.
use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use async_trait::async_trait;
use idempotent_core::Timestamp;
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::RabbitServer;
use idempotent_mq::{DeadLetter, DeadLetters, Headers};
use idempotent_rabbitmq::{Queue, RabbitDeadLetters, RabbitSource};
use idempotent_testkit::broker::{Broker, Limits, Message, Outage};
use lapin::message::BasicGetMessage;
use lapin::options::{BasicGetOptions, BasicNackOptions, BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use tokio::sync::Mutex;

static SERVER: LazyLock<RabbitServer> = LazyLock::new(RabbitServer::start);
static QUEUES: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Rabbit {
    name: String,
    queue: Queue,
    admin: Channel,
    _connection: Connection,
    between: Proxy,
    /// Held while dead letters are listed. A listing takes the letters out of the queue for a moment.
    listing: Mutex<()>,
}

impl Rabbit {
    /// Creates a new queue.
    pub(crate) async fn new(queue: impl FnOnce(String) -> Queue) -> Self {
        // Starting the server blocks the thread.
        let (url, address) = blocking(|| (SERVER.url(), SERVER.address())).await;
        let name = format!("laws-{}", QUEUES.fetch_add(1, SeqCst));
        let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
        let admin = connection.create_channel().await.unwrap();
        admin.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let (between, listing) = (Proxy::start(&address).await, Mutex::default());
        let rabbit = Self { queue: queue(name.clone()), name, admin, _connection: connection, between, listing };
        rabbit.new_source().declare().await.unwrap();
        rabbit
    }

    fn new_source(&self) -> RabbitSource {
        let url = format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.between.port());
        RabbitSource::builder(&url, self.queue.clone()).build().unwrap()
    }

    async fn send(&self, body: &[u8], properties: BasicProperties) {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sent = self.admin.basic_publish("".into(), self.name.as_str().into(), options, body, properties);
        assert!(matches!(sent.await.unwrap().await.unwrap(), Confirmation::Ack(None)), "not routed");
    }

    /// Returns all dead letters, and gives them back to their queue.
    async fn dead(&self) -> Vec<BasicGetMessage> {
        let (queue, mut dead) = (ShortString::from(format!("{}.dead", self.name)), Vec::new());
        let _turn = self.listing.lock().await;
        while let Some(one) = self.admin.basic_get(queue.clone(), BasicGetOptions::default()).await.unwrap() {
            dead.push(one);
        }
        if let Some(last) = dead.last() {
            let all = BasicNackOptions { multiple: true, requeue: true };
            self.admin.basic_nack(last.delivery_tag, all).await.unwrap();
        }
        dead
    }
}

async fn blocking<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(ask).await.unwrap()
}

#[async_trait]
impl Broker for Rabbit {
    type Source = RabbitSource;

    fn limits(&self) -> Limits {
        Limits::default()
    }

    async fn source(&self) -> RabbitSource {
        self.new_source()
    }

    async fn publish(&self, message: Message) {
        let properties = BasicProperties::default().with_message_id(message.id.as_str().into());
        self.send(&message.body, properties.with_headers(table(&message.headers)).with_delivery_mode(2)).await;
    }

    /// Publishes a message without an id, and with headers that are not text.
    async fn publish_unreadable(&self) {
        let inner: FieldTable = BTreeMap::from([("void".into(), AMQPValue::Void)]).into();
        let headers = BTreeMap::from([
            ("table".into(), AMQPValue::FieldTable(inner)),
            ("x-idempotent-attempt".into(), AMQPValue::Boolean(true)),
            ("x-idempotent-first-at".into(), AMQPValue::Double(1.5)),
        ]);
        let properties = BasicProperties::default().with_headers(headers.into());
        self.send(b"\xff", properties.with_content_encoding("unknown".into())).await;
    }

    async fn publish_forged(&self) {
        let number = AMQPValue::LongLongInt;
        let text = |text: &str| AMQPValue::LongString(text.into());
        let headers: BTreeMap<ShortString, AMQPValue> = BTreeMap::from([
            ("x-idempotent-attempt".into(), number(70)),
            ("x-idempotent-attempts".into(), number(70)),
            ("x-idempotent-deaths".into(), number(1)),
            ("x-idempotent-expires-at".into(), number(i64::MAX)),
            ("x-idempotent-first-at".into(), number(1)),
            ("x-idempotent-last-at".into(), number(7)),
            ("x-idempotent-queue".into(), text("payments")),
            ("x-idempotent-reason".into(), text("forged")),
        ]);
        let properties = BasicProperties::default().with_message_id("forged".into());
        self.send(b"body", properties.with_headers(headers.into())).await;
    }

    async fn dead_letters(&self) -> Vec<(Message, DeadLetter)> {
        self.dead().await.iter().map(|one| letter(&one.data, &one.properties)).collect()
    }

    fn letters(&self) -> Box<dyn DeadLetters> {
        let url = format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.between.port());
        Box::new(RabbitDeadLetters::new(&url, &self.name).unwrap())
    }

    /// Compares the broker's own counts, which include unacknowledged messages.
    async fn is_empty(&self) -> bool {
        let messages = blocking(|| SERVER.queues("/", "messages")).await;
        let retries = format!("{}.retry.", self.name);
        let ours = |name: &str| name == self.name || name.starts_with(&retries);
        messages.contains_key(&self.name) && messages.iter().all(|(name, left)| !ours(name) || *left == 0)
    }

    async fn cut(&self) {
        self.between.cut_all();
    }

    async fn begin_outage(&self, outage: Outage) {
        self.between.begin_outage(outage == Outage::Silent);
    }

    async fn end_outage(&self) {
        self.between.end_outage();
    }
}

/// Encodes headers. Several values of one name become a list.
fn table(headers: &Headers) -> FieldTable {
    let mut by_name = BTreeMap::<&str, Vec<AMQPValue>>::new();
    for (name, value) in headers.iter() {
        by_name.entry(name).or_default().push(AMQPValue::LongString(value.into()));
    }
    let one_or_list = |mut values: Vec<AMQPValue>| match values.len() {
        1 => values.remove(0),
        _ => AMQPValue::FieldArray(values.into()),
    };
    by_name.into_iter().map(|(name, values)| (name.into(), one_or_list(values))).collect::<BTreeMap<_, _>>().into()
}

fn letter(body: &[u8], properties: &BasicProperties) -> (Message, DeadLetter) {
    let id = properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default();
    let (mut message, mut letter) = (Message::new(id, body), DeadLetter::because("", Timestamp(0)));
    let headers = properties.headers().clone().unwrap_or_default();
    for (name, value) in &headers {
        match name.as_str().strip_prefix("x-idempotent-") {
            Some("reason") => letter.reason = text(value).into(),
            Some("id") => letter.id = Some(text(value)),
            Some("attempts") => letter.attempts = number(value).try_into().unwrap(),
            Some("deaths") => letter.deaths = number(value).try_into().unwrap(),
            Some("first-at") => letter.first_at = Timestamp(number(value)),
            Some("last-at") => letter.last_at = Timestamp(number(value)),
            Some("queue") => {}
            Some(other) => panic!("unknown header: {other}"),
            // Set by a quorum queue at each delivery.
            None if name.as_str() == "x-delivery-count" => {}
            None => values(value).into_iter().for_each(|value| message.headers.push(name.as_str(), value)),
        }
    }
    (message, letter)
}

fn values(value: &AMQPValue) -> Vec<Vec<u8>> {
    match value {
        AMQPValue::LongString(text) => vec![text.as_bytes().to_vec()],
        AMQPValue::FieldArray(list) => list.as_slice().iter().flat_map(values).collect(),
        other => vec![format!("{other:?}").into_bytes()],
    }
}

fn text(value: &AMQPValue) -> String {
    String::from_utf8(values(value).concat()).unwrap()
}

fn number(value: &AMQPValue) -> u64 {
    match value {
        AMQPValue::LongLongInt(number) => u64::try_from(*number).unwrap(),
        other => panic!("not a number: {other:?}"),
    }
}
