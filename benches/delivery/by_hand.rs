//! The floors: the code without the library.
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use redis::aio::MultiplexedConnection;

/// The size of a typical order.
pub const BODY: usize = 300;

pub fn body() -> Vec<u8> {
    vec![b'x'; BODY]
}

/// Fills a sorted set with ids and a hash with bodies.
pub async fn fill(line: &mut MultiplexedConnection, messages: u64) {
    for number in 0..messages {
        let id = format!("message-{number}");
        let mut both = redis::pipe();
        both.cmd("ZADD").arg("raw:due").arg(number).arg(&id).cmd("HSET").arg("raw:body").arg(&id).arg(body());
        both.exec_async(line).await.unwrap();
    }
}

/// Takes all messages, `batch` at a time. With `each`, one command for each body, in one pipeline.
pub async fn drain(line: &mut MultiplexedConnection, messages: u64, batch: usize, each: bool) -> Duration {
    let began = Instant::now();
    let mut taken = 0;
    while taken < messages {
        let mut pop = redis::cmd("ZPOPMIN");
        pop.arg("raw:due").arg(batch);
        let ids: Vec<(String, f64)> = pop.query_async(line).await.unwrap();
        assert!(!ids.is_empty());
        if each {
            let mut get = redis::pipe();
            for (id, _) in &ids {
                get.cmd("HGET").arg("raw:body").arg(id);
            }
            let bodies: Vec<Vec<u8>> = get.query_async(line).await.unwrap();
            assert!(bodies.iter().all(|body| body.len() == BODY));
            taken += ids.len() as u64;
            continue;
        }
        let mut get = redis::cmd(if batch == 1 { "HGET" } else { "HMGET" });
        get.arg("raw:body").arg(ids.iter().map(|(id, _)| id).collect::<Vec<_>>());
        if batch == 1 {
            let body: Vec<u8> = get.query_async(line).await.unwrap();
            assert_eq!(body.len(), BODY);
        } else {
            let bodies: Vec<Vec<u8>> = get.query_async(line).await.unwrap();
            assert!(bodies.iter().all(|body| body.len() == BODY));
        }
        taken += ids.len() as u64;
    }
    began.elapsed()
}

/// Opens a channel with confirms, and declares a queue.
pub async fn channel(url: &str, queue: &str) -> (Connection, Channel) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.into(), durable, FieldTable::default()).await.unwrap();
    (connection, channel)
}

/// Publishes persistent messages, and waits for the confirms of each batch before the next.
pub async fn publish(channel: &Channel, queue: &str, messages: u64, batch: u64) -> Duration {
    let began = Instant::now();
    let body = body();
    for first in (0..messages).step_by(usize::try_from(batch).unwrap()) {
        let mut confirms = Vec::new();
        for number in first..(first + batch).min(messages) {
            let id = format!("message-{number}");
            let properties = BasicProperties::default().with_delivery_mode(2).with_message_id(id.into());
            let options = BasicPublishOptions::default();
            confirms.push(channel.basic_publish("".into(), queue.into(), options, &body, properties).await.unwrap());
        }
        assert!(join_all(confirms).await.into_iter().all(|confirm| confirm.unwrap().is_ack()));
    }
    began.elapsed()
}
