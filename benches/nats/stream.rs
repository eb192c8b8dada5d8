//! The stream, which is filled before it is consumed.
use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use futures_util::future::join_all;

pub const STREAM: &str = "ORDERS";
pub const CONSUMER: &str = "billing";
/// The maximum number of messages that a consumer holds.
pub const PREFETCH: usize = 256;

pub struct Queue {
    client: Context,
    body: String,
}

impl Queue {
    /// Messages of a few hundred bytes, like a typical order.
    pub fn new(client: Context) -> Self {
        let lines = (0..8).map(|line| format!(r#"{{"sku":"desk-{line}","qty":{line},"cents":12900}}"#));
        let body = format!(r#"{{"order":17,"customer":"c-8431","lines":[{}]}}"#, lines.collect::<Vec<_>>().join(","));
        Self { client, body }
    }

    /// Publishes and confirms `messages` messages. Their ids are their numbers, starting at `from`.
    pub async fn fill(&self, from: u64, messages: u64) {
        // Consumed messages would slow down the server during the whole run.
        self.client.get_stream(STREAM).await.unwrap().purge().await.unwrap();
        for first in (from..from + messages).step_by(1_000) {
            let last = (first + 1_000).min(from + messages);
            let mut confirmations = Vec::new();
            for number in first..last {
                let mut headers = HeaderMap::new();
                headers.insert("Nats-Msg-Id", format!("message-{number}"));
                let sent = self.client.publish_with_headers("orders.new", headers, self.body.clone().into()).await;
                confirmations.push(sent.unwrap().into_future());
            }
            join_all(confirmations).await.into_iter().for_each(|confirmed| drop(confirmed.unwrap()));
        }
    }
}
