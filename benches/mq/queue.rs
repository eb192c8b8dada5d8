//! The queue, which is filled before it is consumed.
use futures_util::future::join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

pub const QUEUE: &str = "orders";
/// The maximum number of messages that a consumer holds.
pub const PREFETCH: usize = 256;

/// Returns a few hundred bytes, like a typical order.
pub fn body() -> Vec<u8> {
    let lines = (0..8).map(|line| format!(r#"{{"sku":"desk-{line}","qty":{line},"cents":12900}}"#));
    format!(r#"{{"order":17,"customer":"c-8431","lines":[{}]}}"#, lines.collect::<Vec<_>>().join(",")).into_bytes()
}

pub struct Queue {
    // The channel ends with its connection.
    _connection: Connection,
    channel: Channel,
    body: Vec<u8>,
}

impl Queue {
    /// Declares the queue like the source.
    pub async fn declared(url: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(QUEUE.into(), durable, FieldTable::default()).await.unwrap();
        Self { _connection: connection, channel, body: body() }
    }

    /// Publishes and confirms `messages` persistent messages. Their ids are their numbers, starting at `from`.
    #[allow(dead_code, reason = "the soak has copies among them")]
    pub async fn fill(&self, from: u64, messages: u64) {
        self.fill_as(from, messages, |number| number).await;
    }

    /// Publishes messages like [`fill`](Self::fill), with ids that `name` derives from the numbers.
    pub async fn fill_as(&self, from: u64, messages: u64, name: impl Fn(u64) -> u64) {
        for first in (from..from + messages).step_by(1_000) {
            let last = (first + 1_000).min(from + messages);
            let mut confirms = Vec::new();
            for number in first..last {
                let properties = BasicProperties::default()
                    .with_delivery_mode(2)
                    .with_message_id(format!("message-{}", name(number)).into());
                let options = BasicPublishOptions::default();
                let sent = self.channel.basic_publish("".into(), QUEUE.into(), options, &self.body, properties);
                confirms.push(sent.await.unwrap());
            }
            assert!(join_all(confirms).await.into_iter().all(|confirm| confirm.unwrap().is_ack()));
        }
    }
}
