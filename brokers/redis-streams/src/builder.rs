//! Builder of a [`StreamsSource`].
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use idempotent_mq::{SourceError, SourceErrorKind};

use crate::StreamsSource;
use crate::carrier::FieldMapping;
use crate::connection::{Connection, Server, client};
use crate::due_times::DueTimes;
use crate::options::{BLOCK, StartPosition, TrimPolicy};
use crate::settler::{ConsumerSettings, StreamsSettler};

/// A builder for a [`StreamsSource`].
#[must_use]
pub struct StreamsSourceBuilder {
    server: Server,
    stream: Arc<str>,
    group: Arc<str>,
    consumer: Option<Arc<str>>,
    declare: Option<StartPosition>,
    min_idle: Duration,
    body: String,
    id: Option<String>,
    business_key: Option<String>,
    dead: Option<Arc<str>>,
    keep: TrimPolicy,
}

/// Minimum of `min_idle`. A busy machine may pause for longer than shorter times.
const SHORTEST: Duration = Duration::from_millis(100);

impl StreamsSourceBuilder {
    pub(crate) fn new(server: Server, stream: Arc<str>, group: Arc<str>) -> Self {
        Self {
            server,
            stream,
            group,
            consumer: None,
            declare: None,
            min_idle: Duration::from_secs(60),
            body: "body".to_owned(),
            id: None,
            business_key: None,
            dead: None,
            keep: TrimPolicy::Everything,
        }
    }

    /// Creates the group, and the stream, if they do not exist. An existing group continues at its position.
    ///
    /// # Default
    /// The group must exist
    pub fn declare(mut self, start: StartPosition) -> Self {
        self.declare = Some(start);
        self
    }

    /// Sets the name of this consumer. Consumers that run at the same time must have different names.
    ///
    /// # Default
    /// A random name
    pub fn consumer(mut self, name: impl Into<Arc<str>>) -> Self {
        self.consumer = Some(name.into());
        self
    }

    /// Sets the idle time after which other consumers may take over an entry, at least 100 ms.
    ///
    /// This time determines how soon the entries of a dead consumer are taken over, and it is the longest delay in one
    /// piece. All consumers of a group should use the same value.
    ///
    /// # Default
    /// 60 s
    pub fn min_idle(mut self, time: Duration) -> Self {
        self.min_idle = time;
        self
    }

    /// Sets the field that contains the body. The other fields become headers.
    ///
    /// # Default
    /// `body`
    pub fn body_field(mut self, name: impl Into<String>) -> Self {
        self.body = name.into();
        self
    }

    /// Sets the field that contains the message id of the producer, which is the same if the message is sent twice.
    ///
    /// An entry without this field, or with bytes in it that are not UTF-8, has no id. The field remains among the
    /// headers.
    ///
    /// # Default
    /// Stream and entry id, `STREAM/ENTRY`, which is the same for a redelivery but not for a message that is sent twice
    pub fn id_field(mut self, name: impl Into<String>) -> Self {
        self.id = Some(name.into());
        self
    }

    /// Sets the field that contains the [business key](idempotent_mq::Delivery::business_key). The field remains among
    /// the headers.
    ///
    /// # Default
    /// No business key
    pub fn business_key_field(mut self, name: impl Into<String>) -> Self {
        self.business_key = Some(name.into());
        self
    }

    /// Sets the stream for dead letters.
    ///
    /// # Default
    /// `STREAM:dead`
    pub fn dead_letters(mut self, stream: impl Into<Arc<str>>) -> Self {
        self.dead = Some(stream.into());
        self
    }

    /// Sets which entries remain in the stream.
    ///
    /// # Default
    /// [`TrimPolicy::Everything`]
    pub fn keep(mut self, keep: TrimPolicy) -> Self {
        self.keep = keep;
        self
    }

    /// Connects and creates or checks the group.
    ///
    /// # Errors
    /// - `Fatal`: a setting is invalid, the group does not exist, or the server rejects a command.
    /// - `Transient`: the server cannot be reached.
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime.
    ///
    /// # Cancellation
    /// The group may have been created.
    pub async fn connect(self) -> Result<StreamsSource, SourceError> {
        let client = client(self.server)?;
        let declare = self.declare;
        let dead = self.dead.unwrap_or_else(|| format!("{}:dead", self.stream).into());
        let consumer = match self.consumer {
            Some(name) => name,
            None => random()?,
        };
        let (stream, group) = (self.stream, self.group);
        if stream.is_empty() || group.is_empty() || consumer.is_empty() || dead.is_empty() {
            return Err(refused("stream, group, consumer and dead letters must have a name"));
        }
        if stream == dead {
            return Err(refused("`dead_letters` is the stream itself; name another stream"));
        }
        if self.min_idle < SHORTEST {
            return Err(refused("`min_idle` is too short; set it to at least 100 ms"));
        }
        let layout =
            FieldMapping { stream: stream.clone(), body: self.body, id: self.id, business_key: self.business_key };
        let settings = ConsumerSettings { stream, group, consumer, dead, min_idle: self.min_idle, keep: self.keep };
        let reader = Connection::new(client.clone(), BLOCK);
        let connection = Connection::new(client, Duration::ZERO);
        let settler = StreamsSettler { settings, connection, due: DueTimes::default(), acked: AtomicBool::new(false) };
        match declare {
            Some(start) => make_group(&settler, start).await?,
            None => look_for_group(&settler).await?,
        }
        Ok(StreamsSource::new(settler, layout, reader))
    }
}

async fn make_group(settler: &StreamsSettler, start: StartPosition) -> Result<(), SourceError> {
    let from = match start {
        StartPosition::Beginning => "0",
        StartPosition::New => "$",
    };
    let mut create = redis::cmd("XGROUP");
    create.arg("CREATE").arg(&*settler.settings.stream).arg(&*settler.settings.group).arg(from).arg("MKSTREAM");
    match settler.connection.query("creating the group", &create).await {
        Err(error) if error.to_string().contains("BUSYGROUP") => Ok(()),
        made => made.map(drop),
    }
}

async fn look_for_group(settler: &StreamsSettler) -> Result<(), SourceError> {
    let mut pending = redis::cmd("XPENDING");
    pending.arg(&*settler.settings.stream).arg(&*settler.settings.group);
    settler.connection.query("checking the group", &pending).await.map(drop)
}

fn random() -> Result<Arc<str>, SourceError> {
    let bits = getrandom::u64()
        .map_err(|error| refused(&format!("no randomness for the consumer name; set `consumer`: {error}")))?;
    Ok(format!("{bits:016x}").into())
}

fn refused(why: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Fatal, why)
}

/// Shows nothing of the URL.
impl fmt::Debug for StreamsSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamsSourceBuilder")
            .field("stream", &self.stream)
            .field("group", &self.group)
            .field("min_idle", &self.min_idle)
            .finish_non_exhaustive()
    }
}
