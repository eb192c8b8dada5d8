//! Incidents of messages that no handler can process.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idempotent::mq::{Consumer, ConsumerCounters, HandlerResult, KeyFrom, Message, Messages};
use idempotent::redis_streams::{StartPosition, StreamsSource};
use idempotent::{Executor, Policy, Scene};
use idempotent_harness::servers::RedisServer;
use serde_json::Value;

use crate::handbook::incident::Incident;

/// A consumer of the stream `orders` without retries, whose handler fails until its cause is repaired.
pub(crate) struct Service {
    pub(crate) server: RedisServer,
    is_repaired: Arc<AtomicBool>,
    counters: ConsumerCounters,
}

impl Service {
    pub(crate) async fn start() -> Self {
        let (server, is_repaired) = (RedisServer::start(), Arc::new(AtomicBool::new(false)));
        let source = StreamsSource::builder(server.url(), "orders", "billing").declare(StartPosition::Beginning);
        let store = idempotent::connect(server.url()).await.unwrap();
        let executor = Executor::builder(store).policy(Scene::Mq, Policy::new().max_retries(0)).build().unwrap();
        let key = KeyFrom::message("body", |message: &Message<()>| message.delivery.body.clone());
        let stock = is_repaired.clone();
        let handling = Messages::raw().keyed(key).run(move |_: Message<()>| {
            let stock = stock.clone();
            async move {
                match stock.load(Ordering::SeqCst) {
                    true => HandlerResult::Done,
                    false => HandlerResult::Again { after: None, error: "no stock".into() },
                }
            }
        });
        let consumer =
            Consumer::builder(source.connect().await.unwrap(), "billing", &executor).build(handling).unwrap();
        let counters = consumer.counters();
        tokio::spawn(async move { consumer.run(std::future::pending()).await.map(drop) });
        Self { server, is_repaired, counters }
    }

    pub(crate) fn send(&self, body: &str) {
        self.server.command(&["XADD", "orders", "*", "body", body]);
    }

    /// Waits for this number of acknowledged messages and of dead letters.
    pub(crate) async fn has_settled(&self, acked: u64, dead_lettered: u64) {
        let is_settled = || {
            let counts = self.counters.counts();
            (counts.acked, counts.dead_lettered) == (acked, dead_lettered)
        };
        let wait = async {
            while !is_settled() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
    }
}

/// Returns the key and the id of the first letter.
pub(crate) fn first_letter(listed: &str) -> (String, String) {
    let letter: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    (letter["key"].as_str().unwrap().to_owned(), letter["id"].as_str().unwrap().to_owned())
}

/// Two messages are dead letters: the cause of the first one is repaired, and the second one is wrong.
pub(crate) async fn poison(incident: &mut Incident) {
    let service = Service::start().await;
    let url = service.server.url();
    incident.set("IDEMPOTENT_STORE", &url);
    incident.set("IDEMPOTENT_QUEUE", url.replacen("redis://", "redis+stream://", 1));
    let listing = "idempotent dead list --name orders";
    service.send("order 4711");
    service.has_settled(0, 1).await;
    let (key, id) = first_letter(&incident.shows(listing, &["no stock"]));
    incident.value("ID", format!("'{id}'"));
    incident.key(&key);
    incident.shows("idempotent dead show --name orders --id ID --show-body", &["no stock", "order 4711"]);
    incident.shows("idempotent inspect KEY", &["\"state\":\"dead\"", "no stock"]);

    service.is_repaired.store(true, Ordering::SeqCst);
    let redrive = "idempotent dead redrive --name orders --id ID --let-go --reason …";
    incident.changes(redrive, &["\"put_back\":1", "the key can be claimed"]);
    service.has_settled(1, 1).await;
    incident.shows("idempotent inspect KEY", &["\"state\":\"consumed\""]);
    incident.shows(listing, &["0 found; read 0 of 0"]);

    service.is_repaired.store(false, Ordering::SeqCst);
    service.send("order 4712");
    service.has_settled(1, 2).await;
    let (_, id) = first_letter(&incident.shows(listing, &["no stock"]));
    incident.value("ID", format!("'{id}'"));
    incident.changes("idempotent dead discard --name orders --id ID --reason …", &["\"discarded\":1"]);
    incident.shows(listing, &["0 found; read 0 of 0"]);
}
