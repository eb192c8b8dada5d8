//! The queue, which is filled before it is consumed.
use futures_util::future::join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

use crate::broker::body;

pub const QUEUE: &str = "orders";

pub struct Queue {
    // The channel ends with its connection.
    _connection: Connection,
    channel: Channel,
    body: String,
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

    /// Publishes and confirms `messages` persistent messages. Their ids are derived by `name` from their numbers, starting at `from`.
    pub async fn fill(&self, from: u64, messages: u64, name: impl Fn(u64) -> u64) {
        for first in (from..from + messages).step_by(1_000) {
            let last = (first + 1_000).min(from + messages);
            let mut confirms = Vec::new();
            for number in first..last {
                let properties = BasicProperties::default()
                    .with_delivery_mode(2)
                    .with_message_id(format!("message-{}", name(number)).into());
                let options = BasicPublishOptions::default();
                let sent =
                    self.channel.basic_publish("".into(), QUEUE.into(), options, self.body.as_bytes(), properties);
                confirms.push(sent.await.unwrap());
            }
            assert!(join_all(confirms).await.into_iter().all(|confirm| confirm.unwrap().is_ack()));
        }
    }
}
