//! Redis Streams: a stream, read as one consumer of a group.
use std::time::Duration;

use anyhow::anyhow;
use idempotent::redis_streams::{StartPosition, StreamsSource};
use redis::aio::MultiplexedConnection;
use redis::{Client, RedisError};
use tokio::time::{Instant, sleep};

use super::outgoing::{Lines, Outgoing};
use super::url::SourceUrl;
use super::{Address, Place, Source, told};

#[derive(Debug)]
pub(crate) struct RedisStreams {
    pub(super) at: Address,
    group: String,
}

/// The field for the id of a message: the same for a line that is published twice.
const ID: &str = "id";
/// A worker that is killed costs as much as its leases do.
const MIN_IDLE: Duration = Duration::from_secs(5);
/// Entries of one trip.
const TOGETHER: usize = 64;
/// The time for which an unreachable server is retried.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

impl RedisStreams {
    pub(crate) fn of(mut source: SourceUrl) -> anyhow::Result<Self> {
        let (stream, group) = (source.need("stream", "stream")?, source.need("group", "group")?);
        let url = source.into_url("redis", "stream and group")?;
        Ok(Self { at: Address::new(url, "stream", stream), group })
    }
}

impl Place for RedisStreams {
    async fn source(&self) -> anyhow::Result<impl Source> {
        let source = StreamsSource::builder(&self.at.url, self.at.name.as_str(), self.group.as_str())
            .declare(StartPosition::Beginning)
            .min_idle(MIN_IDLE)
            .id_field(ID);
        let hint = "is Redis there, and may the user of --source use the stream?";
        source.connect().await.map_err(|error| self.at.unusable(&error, hint))
    }

    async fn publish(&self, mut lines: Lines) -> anyhow::Result<u64> {
        let mut publishing = Publishing { client: Client::open(self.at.url.as_str())?, connection: None };
        let (mut some, mut sent) = (Vec::new(), 0);
        while lines.recv_many(&mut some, TOGETHER).await > 0 {
            let messages = some.drain(..).collect::<anyhow::Result<Vec<_>>>()?;
            let first = messages.first().map_or(0, |message| message.number);
            let added = publishing.insist(&self.at.name, &messages).await;
            added.map_err(|error| anyhow!("line {first} and after it for {}: {}", self.at, told(&error)))?;
            sent += messages.len() as u64;
        }
        Ok(sent)
    }

    fn dead_letters(&self) -> String {
        format!("the stream {}:dead", self.at.name)
    }
}

struct Publishing {
    client: Client,
    connection: Option<MultiplexedConnection>,
}

impl Publishing {
    /// Again and again for a while. What went through unheard is then there twice, under one id.
    async fn insist(&mut self, stream: &str, messages: &[Outgoing]) -> Result<(), RedisError> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.add(stream, messages).await {
                Err(error) if Instant::now() + PAUSE < end && is_away(&error) => {
                    self.connection = None;
                    sleep(PAUSE).await;
                }
                done => return done,
            }
        }
    }

    async fn add(&mut self, stream: &str, messages: &[Outgoing]) -> Result<(), RedisError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.client.get_multiplexed_async_connection().await?),
        };
        let mut adding = redis::pipe();
        for Outgoing { id, body, .. } in messages {
            adding.cmd("XADD").arg(stream).arg("*").arg(ID).arg(id).arg("body").arg(body).ignore();
        }
        adding.query_async(connection).await
    }
}

fn is_away(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped() || error.is_timeout()
}
