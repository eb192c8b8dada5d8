//! Publishing of entries, e.g. for the relay of an outbox.
mod entry;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use idempotent_mq::{
    OutboundMessage, Position, Publish, PublishError, PublishErrorKind, Published, SourceError, SourceErrorKind, chains,
};
use redis::{RedisError, Value};

use self::entry::{FieldNames, Fields, batches};
use crate::connection::{Connection, OpenConnection, Server, client};
use crate::error::failure;
use crate::scripts::ADD;

type PublishResult = Result<Published, PublishError>;

/// A publisher that adds messages to streams and returns their positions. The topic of a message names the stream.
///
/// A [source](crate::StreamsSource) needs the names of the fields to read the messages:
///
/// ```
/// use idempotent_redis_streams::{StreamsPublisher, StreamsSource};
///
/// # fn example() -> Result<(), idempotent_mq::SourceError> {
/// let publisher = StreamsPublisher::new("redis://127.0.0.1")?;
/// let source = StreamsSource::builder("redis://127.0.0.1", "orders", "billing").id_field("id").business_key_field("key");
/// # drop((publisher, source));
/// # Ok(())
/// # }
/// # example().unwrap();
/// ```
///
/// | message | entry |
/// |---|---|
/// | `topic` | the stream, which is created if it does not exist |
/// | `body` | the field `body`, the first of the entry |
/// | `id` | the field `id` |
/// | `business_key` | the field `key`, if the message has one |
/// | headers | fields in order, including repeated names. A header with the name of a dead-letter field, such as `idempotent-reason`, is refused, because consumers would misinterpret the field |
/// | `aggregate` | not stored: a stream has one partition |
///
/// The [position](Published::position) is the entry id. Positions are comparable: later entries have greater ids.
/// Messages of different aggregates are sent concurrently over one connection. Messages of one aggregate are sent by a
/// script that stops at the first error.
///
/// # Results
/// - [`Unconfirmed`](PublishErrorKind::Unconfirmed): the reply was lost or did not arrive within 4 s. If the message is
///   sent again, the stream may contain it twice, with the same id.
/// - [`Unsent`](PublishErrorKind::Unsent): the server cannot be reached within 2 s, is loading, full or read-only, or
///   lacks replicas.
/// - [`Refused`](PublishErrorKind::Refused): the key has another type, a permission is missing, a stream that must
///   [exist](Self::existing) does not, or a value is larger than `proto-max-bulk-len` of the server.
///
/// Each call sends `PING` first, so a connection that broke in the meantime does not lead to ambiguous results.
///
/// # Durability
/// The durability of an added entry depends on the server. With `appendfsync everysec`, a crash loses the last second.
/// A failover loses entries that the new primary has not received. Later entries have greater ids than a lost one, so
/// an outbox notices the loss and resends the message.
///
/// # Permissions
/// A user needs `~orders +ping +xadd +evalsha +script|load`. Without `+config|get`, a value that is too large is `Unconfirmed`. The
/// publisher never trims streams.
#[must_use]
pub struct StreamsPublisher {
    connection: Connection,
    names: FieldNames,
    existing: bool,
}

impl StreamsPublisher {
    /// Creates a publisher, which connects on first use.
    ///
    /// # Errors
    /// `Fatal` if the URL is invalid.
    pub fn new(server: impl Into<Server>) -> Result<Self, SourceError> {
        let client = client(server.into())?;
        Ok(Self { connection: Connection::new(client, Duration::ZERO), names: FieldNames::default(), existing: false })
    }

    /// Sets the field for the body, like the source's [`body_field`](crate::StreamsSourceBuilder::body_field).
    ///
    /// # Default
    /// `body`
    pub fn body_field(mut self, name: impl Into<String>) -> Self {
        self.names.body = name.into();
        self
    }

    /// Sets the field for the id, like the source's [`id_field`](crate::StreamsSourceBuilder::id_field).
    ///
    /// # Default
    /// `id`
    pub fn id_field(mut self, name: impl Into<String>) -> Self {
        self.names.id = name.into();
        self
    }

    /// Sets the field for the business key, like the source's
    /// [`business_key_field`](crate::StreamsSourceBuilder::business_key_field).
    ///
    /// # Default
    /// `key`
    pub fn business_key_field(mut self, name: impl Into<String>) -> Self {
        self.names.business_key = name.into();
        self
    }

    /// Requires that streams exist. A message for a missing stream is refused, e.g. after a misspelt name.
    ///
    /// # Default
    /// A stream is created with its first message
    pub fn existing(mut self) -> Self {
        self.existing = true;
        self
    }

    /// Sends the messages of a chain. If a message fails, its error is the last result, and there are fewer results
    /// than messages.
    async fn send(&self, open: &OpenConnection<'_>, chain: &[&OutboundMessage]) -> Vec<PublishResult> {
        let (mut entries, mut refused) = (Vec::with_capacity(chain.len()), None);
        for message in chain {
            if message.deliver_at.is_some() {
                refused = Some(Err(PublishError::cannot_delay()));
                break;
            }
            match self.names.fields(message) {
                Ok(fields) => entries.push((message.topic.as_str(), fields)),
                Err(why) => {
                    refused = Some(Err(PublishError::new(PublishErrorKind::Refused, why)));
                    break;
                }
            }
        }
        let mut results = Vec::with_capacity(chain.len());
        for part in batches(&entries) {
            match part {
                [(stream, fields)] => results.push(self.add(open, stream, fields).await),
                part => results.extend(self.add_all(open, part).await),
            }
            if results.last().is_some_and(Result::is_err) {
                return results;
            }
        }
        results.extend(refused);
        results
    }

    async fn add(&self, open: &OpenConnection<'_>, stream: &str, fields: &Fields<'_>) -> PublishResult {
        let mut add = redis::cmd("XADD");
        add.arg(stream);
        if self.existing {
            add.arg("NOMKSTREAM");
        }
        add.arg("*");
        for (name, value) in fields {
            add.arg(*name).arg(*value);
        }
        match open.query(&add).await {
            Ok(Value::Nil) => Err(no_stream(stream)),
            Ok(id) => published_at(stream, id),
            Err(error) => Err(self.too_large(fields).await.unwrap_or_else(|| unpublished(error))),
        }
    }

    /// Returns the refusal of an entry with a value that is larger than the server accepts. The server ends the connection at such a
    /// value, often before its error can be read.
    async fn too_large(&self, fields: &Fields<'_>) -> Option<PublishError> {
        let largest = fields.iter().flat_map(|(name, value)| [name.len(), value.len()]).max()?;
        if largest <= SMALLEST_LIMIT {
            return None;
        }
        let open = self.connection.verified().await.ok()?;
        let limit = open.query(redis::cmd("CONFIG").arg("GET").arg(LIMIT)).await.ok()?;
        let limit: usize = redis::from_redis_value::<(String, String)>(limit).ok()?.1.parse().ok()?;
        let text =
            || format!("a value has {largest} bytes, and `{LIMIT}` of the server is {limit}; raise it, or send less");
        (largest > limit).then(|| PublishError::new(PublishErrorKind::Refused, text()))
    }

    async fn add_all(&self, open: &OpenConnection<'_>, entries: &[(&str, Fields<'_>)]) -> Vec<PublishResult> {
        let mut streams: Vec<&str> = entries.iter().map(|(stream, _)| *stream).collect();
        streams.sort_unstable();
        streams.dedup();
        let mut add = ADD.prepare_invoke();
        for stream in &streams {
            add.key(*stream);
        }
        add.arg(if self.existing { "existing" } else { "any" });
        for (stream, fields) in entries {
            let key = streams.partition_point(|known| known < stream) + 1;
            add.arg(key).arg(fields.len() * 2);
            for (name, value) in fields {
                add.arg(*name).arg(*value);
            }
        }
        let reply = match open.run_script(&add).await {
            Ok(reply) => parse_added(reply),
            Err(error) => return vec![Err(unpublished(error))],
        };
        let Some((ids, error)) = reply else { return vec![Err(unexpected_reply())] };
        let mut results: Vec<_> = entries.iter().zip(ids).map(|((stream, _), id)| published_at(stream, id)).collect();
        if let Some((stream, _)) = entries.get(results.len()).filter(|_| !error.is_empty()) {
            results.push(Err(entry_error(stream, &error)));
        }
        results
    }
}

/// The setting of the server that limits a value, and its smallest value.
const LIMIT: &str = "proto-max-bulk-len";
const SMALLEST_LIMIT: usize = 1 << 20;

#[async_trait]
impl Publish for StreamsPublisher {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<PublishResult> {
        let open = match self.connection.verified().await {
            Ok(open) => open,
            Err(error) => {
                let unsent = |_| Err(PublishError::new(PublishErrorKind::Unsent, error.to_string()));
                return messages.iter().map(unsent).collect();
            }
        };
        let send = async |chain: Vec<usize>| {
            let chained: Vec<_> = chain.iter().map(|at| &messages[*at]).collect();
            let mut results = self.send(&open, &chained).await;
            results.resize_with(chain.len(), || Err(PublishError::kept_back()));
            chain.into_iter().zip(results)
        };
        let mut results: Vec<_> =
            join_all(chains(messages).into_iter().map(send)).await.into_iter().flatten().collect();
        results.sort_by_key(|(at, _)| *at);
        results.into_iter().map(|(_, results)| results).collect()
    }
}

/// Parses the ids of a script reply, and the error of the next entry.
fn parse_added(reply: Value) -> Option<(Vec<Value>, String)> {
    let Value::Array(reply) = reply else { return None };
    let [Value::Array(ids), Value::BulkString(error)] = <[Value; 2]>::try_from(reply).ok()? else { return None };
    Some((ids, String::from_utf8_lossy(&error).into_owned()))
}

fn published_at(stream: &str, id: Value) -> PublishResult {
    let id = match id {
        Value::BulkString(id) => String::from_utf8(id).ok(),
        _ => None,
    };
    id.map(|id| Published::at(Position::of(stream).offset(id))).ok_or_else(unexpected_reply)
}

/// Converts the script's error for one entry.
fn entry_error(stream: &str, error: &str) -> PublishError {
    if error == "NOSTREAM" {
        return no_stream(stream);
    }
    let (code, text) = error.trim_start_matches('-').split_once(' ').unwrap_or((error, ""));
    unpublished(redis::make_extension_error(code.to_owned(), Some(text.to_owned())))
}

/// Converts an error. A server error means that the entry was not added; without a reply the result is unknown.
fn unpublished(error: RedisError) -> PublishError {
    let answered = error.code().is_some();
    let failure = failure("adding an entry", error);
    let kind = match (answered, failure.kind()) {
        (false, _) => PublishErrorKind::Unconfirmed,
        (true, SourceErrorKind::Fatal) => PublishErrorKind::Refused,
        (true, _) => PublishErrorKind::Unsent,
    };
    PublishError::new(kind, failure.to_string()).with_cause(failure)
}

fn no_stream(stream: &str) -> PublishError {
    let remedy = "create it with its groups, or leave out `existing`";
    PublishError::new(PublishErrorKind::Refused, format!("stream `{stream}` does not exist; {remedy}"))
}

fn unexpected_reply() -> PublishError {
    PublishError::new(PublishErrorKind::Unconfirmed, "XADD: unexpected reply")
}

/// Shows nothing of the URL.
impl fmt::Debug for StreamsPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamsPublisher")
            .field("names", &self.names)
            .field("existing", &self.existing)
            .finish_non_exhaustive()
    }
}
