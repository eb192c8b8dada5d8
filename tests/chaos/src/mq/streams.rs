//! A Redis stream.
use std::time::Duration;

use anyhow::{Context, bail};
use async_trait::async_trait;
use idempotent::mq::Delivery;
use idempotent::redis_streams::{StartPosition, StreamsSource};
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::{RedisServer, Value};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use tokio::sync::Mutex;

use super::broker::{Broker, Letter, QUEUE};
use super::copy::Copy;
use crate::deadline::connected;
use crate::server::{self, Server};

pub(super) struct Streams {
    // Dropped in this order.
    line: Mutex<Option<MultiplexedConnection>>,
    proxy: Proxy,
    server: RedisServer,
}

const GROUP: &str = "billing";
pub(crate) const DEAD: &str = "orders:dead";
/// The field of the message id.
pub(crate) const ID: &str = "id";
const MARK: &str = "idempotent-";
/// The time for a response.
const SOON: Duration = Duration::from_secs(2);
/// The idle time after which another worker takes over the entries of a killed one.
const MIN_IDLE: Duration = Duration::from_secs(2);

/// Connects to the stream once the server can be reached.
pub(crate) async fn source(url: &str) -> StreamsSource {
    connected(|| {
        let source =
            StreamsSource::builder(url, QUEUE, GROUP).declare(StartPosition::Beginning).min_idle(MIN_IDLE).id_field(ID);
        source.connect()
    })
    .await
}

/// A dead letter as it must not be.
pub(super) async fn bury_bare(url: &str, delivery: &Delivery) -> anyhow::Result<()> {
    let mut line = connect(url).await?;
    let mut add = redis::cmd("XADD");
    add.arg(DEAD).arg("*").arg("body").arg(&delivery.body);
    Ok(add.exec_async(&mut line).await?)
}

async fn connect(url: &str) -> anyhow::Result<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(SOON)).set_response_timeout(Some(SOON));
    Ok(Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?)
}

/// Starts a server with the stream and its group.
pub(crate) async fn start() -> anyhow::Result<(RedisServer, Proxy)> {
    let (server, proxy) = server::start(|| RedisServer::builder().aof().start()).await?;
    server.command(&["XGROUP", "CREATE", QUEUE, GROUP, "0", "MKSTREAM"]);
    Ok((server, proxy))
}

/// Returns the numbers of pending and unread entries that are not 0.
pub(crate) fn left(server: &RedisServer) -> anyhow::Result<Vec<(String, u64)>> {
    let pending = server.command(&["XPENDING", QUEUE, GROUP]);
    let pending = pending.items().first().and_then(Value::integer).context("XPENDING does not count")?;
    let groups = server.command(&["XINFO", "GROUPS", QUEUE]);
    let group = groups.items().first().context("the group is gone")?;
    let read = info(group, "last-delivered-id");
    let last = info(&server.command(&["XINFO", "STREAM", QUEUE]), "last-generated-id");
    let pending = ("pending".to_owned(), u64::try_from(pending)?);
    let unread = ("unread".to_owned(), u64::from(read != last));
    Ok([pending, unread].into_iter().filter(|(_, count)| *count > 0).collect())
}

/// Returns the position and the message id of each entry. Positions sort in order of acceptance.
pub(crate) fn entries(server: &RedisServer, stream: &str) -> anyhow::Result<Vec<(String, String)>> {
    let entries = server.command(&["XRANGE", stream, "-", "+"]);
    let entry = |entry: &Value| {
        let [position, fields] = entry.items() else { bail!("{stream} has an entry without fields") };
        let (ms, number) = position.text().split_once('-').map(|(ms, n)| (ms.to_owned(), n.to_owned())).unzip();
        let (ms, number): (u64, u64) = (ms.unwrap_or_default().parse()?, number.unwrap_or_default().parse()?);
        Ok((format!("{ms:015}-{number:09}"), info(fields, ID)))
    };
    entries.items().iter().map(entry).collect()
}

/// Returns the value of a name in a list of names and values.
fn info(answer: &Value, name: &str) -> String {
    let pairs = answer.items().chunks_exact(2);
    pairs.filter(|pair| pair[0].text() == name).map(|pair| pair[1].text()).next().unwrap_or_default()
}

impl Streams {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let (server, proxy) = start().await?;
        Ok(Self { line: Mutex::new(None), proxy, server })
    }

    async fn line(&self) -> anyhow::Result<MultiplexedConnection> {
        let mut line = self.line.lock().await;
        if let Some(line) = &*line {
            return Ok(line.clone());
        }
        Ok(line.insert(connect(&self.url()).await?).clone())
    }
}

/// Name by name, one of them twice.
fn fields(copy: &Copy) -> Vec<(&'static str, &[u8])> {
    let id = copy.id.as_bytes();
    let forged = [("idempotent-deaths", &b"7"[..]), ("idempotent-reason", b"forged")];
    let forged = forged.into_iter().filter(|_| copy.forged);
    let fields = [
        (ID, id),
        ("body", &copy.body),
        ("copy", copy.name.as_bytes()),
        ("trace", &copy.trace),
        ("again", b"1"),
        ("again", b""),
    ];
    fields.into_iter().chain(forged).collect()
}

#[async_trait]
impl Broker for Streams {
    fn url(&self) -> String {
        self.proxy.url()
    }

    async fn publish(&self, copy: &Copy) -> anyhow::Result<bool> {
        let Ok(mut line) = self.line().await else { return Ok(false) };
        let mut add = redis::cmd("XADD");
        add.arg(QUEUE).arg("*");
        for (name, value) in fields(copy) {
            add.arg(name).arg(value);
        }
        let added = add.exec_async(&mut line).await.is_ok();
        if !added {
            *self.line.lock().await = None;
        }
        Ok(added)
    }

    fn letter(&self, copy: &Copy) -> Letter {
        let fields = fields(copy).into_iter();
        letter(fields.map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec())).collect())
    }

    fn left(&self) -> anyhow::Result<Vec<(String, u64)>> {
        left(&self.server)
    }

    async fn letters(&self) -> anyhow::Result<Vec<Letter>> {
        let entries = self.server.command(&["XRANGE", DEAD, "-", "+"]);
        let letters = entries.items().iter().map(|entry| {
            let fields = entry.items().get(1).context("an entry without fields")?;
            let pairs = fields.items().chunks_exact(2).map(|pair| (bytes(&pair[0]), bytes(&pair[1])));
            Ok(letter(pairs.collect()))
        });
        letters.collect()
    }

    fn place(&self) -> (&dyn Server, &Proxy) {
        (&self.server, &self.proxy)
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::Bytes(bytes) => bytes.clone(),
        other => other.text().into_bytes(),
    }
}

fn letter(fields: Vec<(Vec<u8>, Vec<u8>)>) -> Letter {
    let copy = fields.iter().find(|(name, _)| name == b"copy");
    let copy = copy.and_then(|(_, name)| String::from_utf8(name.clone()).ok());
    let kept = fields.iter().filter(|(name, _)| !name.starts_with(MARK.as_bytes()));
    let text = kept.map(|(name, value)| format!("{}={}", name.escape_ascii(), value.escape_ascii()));
    Letter { copy, content: text.collect::<Vec<_>>().join(" ") }
}
