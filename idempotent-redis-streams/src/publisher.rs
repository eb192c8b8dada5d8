//! Adding entries, as an outbox's relay does.
mod entry;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use idempotent_mq::{
    Outbound, Position, Publish, PublishError, PublishErrorKind, Published, SourceError, SourceErrorKind, chains,
};
use redis::{RedisError, Value};

use self::entry::{Fields, Names, parts};
use crate::builder::client;
use crate::failure::failure;
use crate::link::{Link, Open};
use crate::scripts::ADD;

type Told = Result<Published, PublishError>;

/// Adds messages to streams and says where each lies: the sending half, for an outbox's relay. The topic is a stream.
///
/// A [source](crate::StreamsSource) reads what this writes if it knows the fields:
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
/// | of the message | becomes |
/// |---|---|
/// | `topic` | the stream, which is made if it is not there |
/// | `body` | the field `body`, the first of the entry |
/// | `id` | the field `id` |
/// | `business_key` | the field `key`; none where there is none |
/// | headers | fields in their order, those that come twice included. One with the name of a mark of dead letters, as `idempotent-reason`, is refused: consumers would take it for one |
/// | `aggregate` | nothing: a stream is one partition |
///
/// The [position](Published::position) is the entry's id, and can be compared: greater is later. Messages of different
/// aggregates are sent side by side over one connection, those of one aggregate by a script that ends where one is not added.
///
/// **What became of a message.** An answer that is lost, or has not come within 4 s, is
/// [`Unconfirmed`](PublishErrorKind::Unconfirmed); sent again, the message lies in the stream twice, under one id. A server that
/// cannot be reached (2 s), is loading, full, read-only or lacks replicas leaves it [`Unsent`](PublishErrorKind::Unsent).
/// Another type under that name, a right that is missing, a stream that has to [exist](Self::existing) and does not are
/// [`Refused`](PublishErrorKind::Refused). Each call asks `PING` first: what is to be sent over a connection that broke meanwhile
/// is not in doubt.
///
/// **What "added" is worth** is the server's to say: with `appendfsync everysec` a crash loses the last second, and a failover
/// what the new primary has not seen. A place that was lost is passed by later entries, whose ids are greater; so an outbox sends
/// the message again.
///
/// A user needs `~orders +ping +xadd +evalsha +script|load`. Nothing is trimmed.
#[must_use]
pub struct StreamsPublisher {
    link: Link,
    names: Names,
    existing: bool,
}

impl StreamsPublisher {
    /// One that connects when there is something to send. `url` is `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`.
    ///
    /// # Errors
    /// `Fatal` for a URL that cannot be read.
    pub fn new(url: impl AsRef<str>) -> Result<Self, SourceError> {
        let client = client(url.as_ref()).map_err(|error| failure("the url", error))?;
        Ok(Self { link: Link::new(client, Duration::ZERO), names: Names::default(), existing: false })
    }

    /// The field that the body goes into, as the source's [`body_field`](crate::StreamsSourceBuilder::body_field).
    ///
    /// # Default
    /// `body`
    pub fn body_field(mut self, name: impl Into<String>) -> Self {
        self.names.body = name.into();
        self
    }

    /// The field that the id goes into, as the source's [`id_field`](crate::StreamsSourceBuilder::id_field).
    ///
    /// # Default
    /// `id`
    pub fn id_field(mut self, name: impl Into<String>) -> Self {
        self.names.id = name.into();
        self
    }

    /// The field that the business key goes into, as the source's
    /// [`business_key_field`](crate::StreamsSourceBuilder::business_key_field).
    ///
    /// # Default
    /// `key`
    pub fn business_key_field(mut self, name: impl Into<String>) -> Self {
        self.names.business_key = name.into();
        self
    }

    /// Makes no streams: a message to one that is not there is refused, as one to a misspelt name should be.
    ///
    /// # Default
    /// A stream is made with its first message
    pub fn existing(mut self) -> Self {
        self.existing = true;
        self
    }

    /// Of those of one chain; fewer answers than messages if one was not accepted, and that is the last.
    async fn send(&self, open: &Open<'_>, chain: &[&Outbound]) -> Vec<Told> {
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
        let mut told = Vec::with_capacity(chain.len());
        for part in parts(&entries) {
            match part {
                [(stream, fields)] => told.push(self.add(open, stream, fields).await),
                part => told.extend(self.add_all(open, part).await),
            }
            if told.last().is_some_and(Result::is_err) {
                return told;
            }
        }
        told.extend(refused);
        told
    }

    async fn add(&self, open: &Open<'_>, stream: &str, fields: &Fields<'_>) -> Told {
        let mut add = redis::cmd("XADD");
        add.arg(stream);
        if self.existing {
            add.arg("NOMKSTREAM");
        }
        add.arg("*");
        for (name, value) in fields {
            add.arg(*name).arg(*value);
        }
        match open.ask(&add).await.map_err(unpublished)? {
            Value::Nil => Err(no_stream(stream)),
            id => lies_at(stream, id),
        }
    }

    async fn add_all(&self, open: &Open<'_>, entries: &[(&str, Fields<'_>)]) -> Vec<Told> {
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
        let said = match open.run(&add).await {
            Ok(said) => added(said),
            Err(error) => return vec![Err(unpublished(error))],
        };
        let Some((ids, error)) = said else { return vec![Err(strange())] };
        let mut told: Vec<_> = entries.iter().zip(ids).map(|((stream, _), id)| lies_at(stream, id)).collect();
        if let Some((stream, _)) = entries.get(told.len()).filter(|_| !error.is_empty()) {
            told.push(Err(not_added(stream, &error)));
        }
        told
    }
}

#[async_trait]
impl Publish for StreamsPublisher {
    async fn publish(&self, messages: &[Outbound]) -> Vec<Told> {
        let open = match self.link.answering().await {
            Ok(open) => open,
            Err(error) => {
                let unsent = |_| Err(PublishError::new(PublishErrorKind::Unsent, error.to_string()));
                return messages.iter().map(unsent).collect();
            }
        };
        let send = async |chain: Vec<usize>| {
            let of_it: Vec<_> = chain.iter().map(|at| &messages[*at]).collect();
            let mut told = self.send(&open, &of_it).await;
            told.resize_with(chain.len(), || Err(PublishError::kept_back()));
            chain.into_iter().zip(told)
        };
        let mut told: Vec<_> = join_all(chains(messages).into_iter().map(send)).await.into_iter().flatten().collect();
        told.sort_by_key(|(at, _)| *at);
        told.into_iter().map(|(_, told)| told).collect()
    }
}

/// Ids, and why the next one has none.
fn added(said: Value) -> Option<(Vec<Value>, String)> {
    let Value::Array(said) = said else { return None };
    let [Value::Array(ids), Value::BulkString(error)] = <[Value; 2]>::try_from(said).ok()? else { return None };
    Some((ids, String::from_utf8_lossy(&error).into_owned()))
}

fn lies_at(stream: &str, id: Value) -> Told {
    let id = match id {
        Value::BulkString(id) => String::from_utf8(id).ok(),
        _ => None,
    };
    id.map(|id| Published::at(Position::of(stream).offset(id))).ok_or_else(strange)
}

/// What the script was told for one of its entries.
fn not_added(stream: &str, error: &str) -> PublishError {
    if error == "NOSTREAM" {
        return no_stream(stream);
    }
    let (code, text) = error.trim_start_matches('-').split_once(' ').unwrap_or((error, ""));
    unpublished(redis::make_extension_error(code.to_owned(), Some(text.to_owned())))
}

/// What the server answered it has not done; without an answer nobody knows.
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
    let remedy = "make it, with its groups, or leave out `existing`";
    PublishError::new(PublishErrorKind::Refused, format!("there is no stream `{stream}`: {remedy}"))
}

fn strange() -> PublishError {
    PublishError::new(PublishErrorKind::Unconfirmed, "XADD: the server's answer is not understood")
}

/// Nothing of the URL.
impl fmt::Debug for StreamsPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamsPublisher")
            .field("names", &self.names)
            .field("existing", &self.existing)
            .finish_non_exhaustive()
    }
}
