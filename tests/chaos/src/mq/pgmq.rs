//! PGMQ on PostgreSQL.
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use idempotent::mq::Delivery;
use idempotent::pgmq::PgmqSource;
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::PostgresServer;
use serde_json::{Value, json};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Row};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::broker::{Broker, Letter, QUEUE};
use super::copy::Copy;
use crate::deadline::connected;
use crate::server::Server;

pub(super) struct Pgmq {
    // Dropped in this order.
    publisher: PgPool,
    judge: PgPool,
    proxy: Proxy,
    server: PostgresServer,
    runtime: Handle,
}

const LEFT: &str = "SELECT count(*) FILTER (WHERE vt <= clock_timestamp()) AS ready, \
                    count(*) FILTER (WHERE vt > clock_timestamp()) AS hidden FROM pgmq.q_orders";
const LETTERS: &str = "SELECT message::text, headers::text FROM pgmq.q_orders_dead";
/// The object of the adapter's own data in the headers.
const OWN: &str = "idempotent";
/// The time for a confirmation.
const SOON: Duration = Duration::from_secs(2);
/// The time for a connection of the judge on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// The time after which another worker takes over the messages of a killed one.
const VISIBILITY: Duration = Duration::from_secs(2);

/// Connects to the queue once the server can be reached.
pub(crate) async fn source(url: &str) -> PgmqSource {
    connected(|| {
        let source = PgmqSource::builder(url, QUEUE).declare().visibility_timeout(VISIBILITY);
        source.connect()
    })
    .await
}

/// A dead letter as it must not be.
pub(super) async fn bury_bare(url: &str, delivery: &Delivery) -> anyhow::Result<()> {
    let bury = sqlx::query("SELECT pgmq.send('orders_dead', to_jsonb($1::text))").bind(BASE64.encode(&delivery.body));
    bury.execute(&connect(url)).await?;
    Ok(())
}

fn connect(url: &str) -> PgPool {
    let url = url.replacen("pgmq://", "postgres://", 1);
    let options = PgPoolOptions::new().max_connections(4).acquire_timeout(PATIENCE);
    options.connect_lazy(&url).unwrap_or_else(|error| unreachable!("a URL of the harness: {error}"))
}

impl Pgmq {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let started = tokio::task::spawn_blocking(|| {
            let server = PostgresServer::start();
            server.install_pgmq("postgres");
            server
        });
        let server = started.await.context("PostgreSQL does not start")?;
        let proxy = Proxy::start(&server.address()).await;
        let url = format!("pgmq://postgres@{}/postgres", proxy.address());
        drop(source(&url).await);
        let (publisher, judge) = (connect(&url), connect(&server.url()));
        Ok(Self { publisher, judge, proxy, server, runtime: Handle::current() })
    }

    async fn unsettled(&self) -> anyhow::Result<Vec<(String, u64)>> {
        let row = sqlx::query(LEFT).fetch_one(&self.judge).await?;
        let count = |name: &str| anyhow::Ok((name.to_owned(), u64::try_from(row.try_get::<i64, _>(name)?)?));
        Ok([count("ready")?, count("hidden")?].into_iter().filter(|(_, count)| *count > 0).collect())
    }
}

/// Returns the column `message` of a copy: its JSON, or its bytes in Base64.
fn message(copy: &Copy) -> (Value, bool) {
    match serde_json::from_slice(&copy.body) {
        Ok(body) => (body, false),
        Err(_) => (BASE64.encode(&copy.body).into(), true),
    }
}

/// Returns the column `headers` of a copy.
fn headers(copy: &Copy) -> Value {
    let mut own = json!({ "id": copy.id, "headers": [[BASE64.encode("trace"), BASE64.encode(&copy.trace)]] });
    if message(copy).1 {
        own["body"] = "base64".into();
    }
    if copy.forged {
        own["attempt"] = 1_000_000.into();
        own["queue"] = "elsewhere".into();
    }
    json!({ "copy": copy.name, "again": ["1", ""], OWN: own })
}

#[async_trait]
impl Broker for Pgmq {
    fn url(&self) -> String {
        format!("pgmq://postgres@{}/postgres", self.proxy.address())
    }

    async fn publish(&self, copy: &Copy) -> anyhow::Result<bool> {
        let send = sqlx::query("SELECT pgmq.send($1, $2::jsonb, $3::jsonb)").bind(QUEUE);
        let send = send.bind(message(copy).0.to_string()).bind(headers(copy).to_string());
        Ok(timeout(SOON, send.execute(&self.publisher)).await.is_ok_and(|sent| sent.is_ok()))
    }

    fn letter(&self, copy: &Copy) -> Letter {
        letter(&message(copy).0, &headers(copy))
    }

    fn left(&self) -> anyhow::Result<Vec<(String, u64)>> {
        self.runtime.block_on(self.unsettled())
    }

    async fn letters(&self) -> anyhow::Result<Vec<Letter>> {
        let rows = sqlx::query(LETTERS).fetch_all(&self.judge).await?;
        let parsed = |row: &sqlx::postgres::PgRow, column: usize| {
            anyhow::Ok(match row.try_get::<Option<String>, _>(column)? {
                Some(text) => serde_json::from_str(&text)?,
                None => Value::Null,
            })
        };
        rows.iter().map(|row| Ok(letter(&parsed(row, 0)?, &parsed(row, 1)?))).collect()
    }

    fn place(&self) -> (&dyn Server, &Proxy) {
        (&self.server, &self.proxy)
    }
}

/// Returns the message without the data of its death. jsonb keeps values and no order of members.
fn letter(message: &Value, headers: &Value) -> Letter {
    let members = |value: &Value| {
        let members = value.as_object().into_iter().flatten();
        members.map(|(name, value)| (name.clone(), value.clone())).collect::<BTreeMap<_, _>>()
    };
    let mut all = members(headers);
    let own = all.remove(OWN).unwrap_or_default();
    let body = message.as_str().map_or_else(|| format!("{:?}", members(message)), str::to_owned);
    let copy = all.get("copy").and_then(Value::as_str).map(str::to_owned);
    let content = format!("id={} body={body} headers={all:?} encoded={}", own["id"], own["headers"]);
    Letter { copy, content }
}
