//! A relay that has to outlive outages of its database, as its operators see it.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idempotent_mq::OutboundMessage;
use idempotent_sqlx::{Outbox, Relay, RelayCounts};
use sqlx::pool::PoolOptions;
use sqlx::{Connection, Database, Pool};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::backend::{self, Db};
use crate::outbox::broker::Broker;
use crate::outbox::logs::{Told, until};

type Options = <<Db as Database>::Connection as Connection>::Options;

pub(crate) struct Outage {
    pub(crate) broker: Arc<Broker>,
    told: Told,
    looks: Arc<AtomicUsize>,
    stop: oneshot::Sender<()>,
    relay: JoinHandle<RelayCounts>,
    _telling: idempotent_harness::Logs,
}

/// Creates a pool with a short timeout.
pub(crate) async fn pool(options: Options) -> Pool<Db> {
    let pool = PoolOptions::new().max_connections(4).acquire_timeout(Duration::from_millis(700));
    pool.connect_with(options).await.unwrap()
}

pub(crate) async fn put(pool: &Pool<Db>, id: &str) {
    let outbox = Outbox::builder(pool.clone()).open().await.unwrap();
    let mut tx = pool.begin_with(backend::BEGIN).await.unwrap();
    outbox.enqueue(&mut tx, &OutboundMessage::new("orders", id, "")).await.unwrap();
    tx.commit().await.unwrap();
}

impl Outage {
    /// Creates a relay with these options, and records its logs from now on.
    pub(crate) async fn of(options: Options) -> Self {
        let told = Told::default();
        let telling = idempotent_harness::logs_to(told.0.clone());
        let looks = Arc::<AtomicUsize>::default();
        let counted = looks.clone();
        let builder = Outbox::builder(pool(options).await).create(true).__edit(move |name, text| {
            counted.fetch_add(usize::from(name == "plan"), Ordering::SeqCst);
            text
        });
        let outbox = builder.open().await.unwrap();
        let broker = Arc::new(Broker::new());
        let relay = Relay::new(&outbox, broker.clone()).poll(Duration::from_millis(50)).lease(Duration::from_secs(2));
        let (stop, stopped) = oneshot::channel::<()>();
        let relay = tokio::spawn(async move { relay.run(async { drop(stopped.await) }).await });
        Self { broker, told, looks, stop, relay, _telling: telling }
    }

    /// Ends once it was sent and written down: what is killed in between is sent again when its lease is over.
    pub(crate) async fn has_sent(&self, direct: &Pool<Db>, id: &str) {
        let written_down = async || {
            let unsent = "SELECT count(*) FROM idempotent_outbox WHERE sent_at IS NULL";
            sqlx::query_scalar::<_, i64>(unsent).fetch_one(direct).await.is_ok_and(|unsent| unsent == 0)
        };
        until(async || self.broker.ids().iter().any(|sent| sent == id) && written_down().await, id).await;
    }

    /// Writes a message; ends once it was sent.
    pub(crate) async fn sends(&self, direct: Pool<Db>, id: &str) {
        put(&direct, id).await;
        self.has_sent(&direct, id).await;
        direct.close().await;
    }

    /// Waits for this number of logged outages and recoveries.
    pub(crate) async fn has_told(&self, outages: usize, ends: usize) {
        self.told.comes_to((outages, ends)).await;
    }

    pub(crate) async fn tries_again_and_says_no_more(&self) {
        let (looks, told) = (self.looks.load(Ordering::SeqCst), self.told.counts());
        until(async || self.looks.load(Ordering::SeqCst) > looks + 3, "it tries again").await;
        assert_eq!(self.told.counts(), told);
    }

    /// Ends the relay, and checks that it has sent exactly these messages, in alphabetical order.
    pub(crate) async fn ends_with(self, sent: &[&str]) {
        self.stop.send(()).unwrap();
        // Its counts say less: a server that is killed may have written down what it does not answer.
        self.relay.await.unwrap();
        let mut ids = self.broker.ids();
        ids.sort();
        ids.dedup();
        assert_eq!(ids, sent);
    }
}
