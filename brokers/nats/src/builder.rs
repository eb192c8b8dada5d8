//! Builder of a [`JetStreamSource`].
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{self, RetentionPolicy, Stream};
use idempotent_mq::SourceError;

use crate::connection::Connection;
use crate::declare::{
    create_consumer, create_dead_letters, create_stream, dead_subject_of, existing_consumer, existing_stream,
};
use crate::delayed::{check_stream, contains, delayed_subjects, receives_delayed, undelayed_subjects};
use crate::error::fatal;
use crate::options::Server;
use crate::pulls::Pulls;
use crate::retry_marks::RetryMarks;
use crate::settler::JetStreamSettler;
use crate::unreadable::UnreadableMessages;
use crate::{JetStreamSource, StartPosition};

/// A builder for a [`JetStreamSource`].
#[must_use]
pub struct JetStreamSourceBuilder {
    server: Server,
    stream: Arc<str>,
    consumer: Arc<str>,
    subjects: Option<Vec<String>>,
    start: StartPosition,
    filter: Vec<String>,
    ack_wait: Option<Duration>,
    replicas: usize,
    delays: bool,
    dead: Option<String>,
}

/// Minimum of `ack_wait`. A busy machine may pause for longer than shorter times.
const SHORTEST: Duration = Duration::from_millis(100);
/// The default of `ack_wait`, which equals the server's default.
const ACK_WAIT: Duration = Duration::from_secs(30);

impl JetStreamSourceBuilder {
    pub(crate) fn new(server: Server, stream: Arc<str>, consumer: Arc<str>) -> Self {
        Self {
            server,
            stream,
            consumer,
            subjects: None,
            start: StartPosition::Beginning,
            filter: Vec::new(),
            ack_wait: None,
            replicas: 1,
            delays: false,
            dead: None,
        }
    }

    /// Creates what does not exist: the stream with these subjects, the consumer, the stream of the dead letters, and the
    /// key-value bucket with the attempts of retried messages. Existing ones stay unchanged.
    ///
    /// # Default
    /// All of them must exist
    pub fn declare<S: Into<String>>(mut self, subjects: impl IntoIterator<Item = S>) -> Self {
        self.subjects = Some(subjects.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the number of replicas of what [`declare`](Self::declare) creates, from 1 to 5. A message survives the loss of a
    /// minority of its replicas.
    ///
    /// # Default
    /// 1
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Lets publishers delay messages in the stream ([`deliver_at`](idempotent_mq::OutboundMessage::deliver_at)). Requires NATS 2.12 or
    /// later.
    ///
    /// A stream that [`declare`](Self::declare) creates gets the additional subject `idempotent.delayed.STREAM.*`, under which the server keeps
    /// delayed messages. A consumer that `declare` creates has a [`filter`](Self::filter), because it would otherwise receive delayed
    /// messages before their time. An existing stream or consumer without these settings is refused.
    ///
    /// # Default
    /// The stream refuses delayed messages
    pub fn delays(mut self) -> Self {
        self.delays = true;
        self
    }

    /// Sets the first message of a consumer that [`declare`](Self::declare) creates.
    ///
    /// # Default
    /// [`StartPosition::Beginning`]
    pub fn start(mut self, start: StartPosition) -> Self {
        self.start = start;
        self
    }

    /// Sets the subjects of a consumer that [`declare`](Self::declare) creates, such as `orders.*.paid`.
    ///
    /// # Default
    /// All subjects of the stream, without those of messages that are being delayed
    pub fn filter<S: Into<String>>(mut self, subjects: impl IntoIterator<Item = S>) -> Self {
        self.filter = subjects.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the time after which the server delivers an unacknowledged message again, at least 100 ms. The source extends this
    /// time while a message is held, so it determines how soon the messages of a dead process are taken over.
    ///
    /// # Default
    /// 30 s, or the value of an existing consumer
    pub fn ack_wait(mut self, time: Duration) -> Self {
        self.ack_wait = Some(time);
        self
    }

    /// Sets the name of the stream for dead letters. Letters have the subject `idempotent.dead.NAME`, or the first plain subject of an
    /// existing stream without that one.
    ///
    /// # Default
    /// `STREAM-dead`
    pub fn dead_letters(mut self, stream: impl Into<String>) -> Self {
        self.dead = Some(stream.into());
        self
    }

    /// Connects, and creates or checks the stream and the consumer.
    ///
    /// # Errors
    /// - `Fatal`: a setting is invalid, something does not exist, the server rejects the user, or the consumer has settings with
    ///   which messages would be lost.
    /// - `Transient`: the server cannot be reached or does not answer.
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime.
    ///
    /// # Cancellation
    /// Some of the declared objects may have been created.
    pub async fn connect(self) -> Result<JetStreamSource, SourceError> {
        let dead = self.dead.clone().unwrap_or_else(|| format!("{}-dead", self.stream));
        self.check(&dead)?;
        let connection = Connection::open(&self.server).await?;
        let stream = match &self.subjects {
            Some(subjects) => create_stream(&connection, self.stream_config(subjects)).await?,
            None => existing_stream(&connection, &self.stream).await?,
        };
        if self.delays {
            check_stream(&stream.cached_info().config).map_err(|rule| fatal("checking the stream", &rule))?;
        }
        let consumer = self.consumer(&stream).await?;
        let dead = match &self.subjects {
            Some(_) => create_dead_letters(&connection, &dead, self.replicas).await?,
            None => existing_stream(&connection, &dead).await?,
        };
        let dead_subject = dead_subject(&dead)?;
        let create = self.subjects.as_ref().map(|_| self.replicas);
        let marks = RetryMarks::open(&connection, &self.stream, &self.consumer, create).await?;
        let ack_wait = consumer.cached_info().config.ack_wait;
        let settler = JetStreamSettler {
            connection: connection.clone(),
            stream: self.stream,
            dead: dead_subject.into(),
            dead_limit: dead.cached_info().config.max_message_size,
            keeps_settled: stream.cached_info().config.retention == RetentionPolicy::Limits,
            marks,
        };
        let unreadable = UnreadableMessages::new(self.server, self.consumer.to_string());
        Ok(JetStreamSource::new(settler, Pulls::new(connection, consumer).await?, unreadable, ack_wait))
    }

    fn check(&self, dead: &str) -> Result<(), SourceError> {
        let doing = "checking the settings";
        for (what, name) in [("stream", &*self.stream), ("consumer", &*self.consumer), ("dead_letters", dead)] {
            let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if name.is_empty() || !name.chars().all(is_valid) {
                return Err(fatal(doing, &format!("`{what}` is `{name}`; use letters, digits, `-` and `_` only")));
            }
        }
        if *self.stream == *dead {
            return Err(fatal(doing, "`dead_letters` is the stream itself; name another stream"));
        }
        if self.ack_wait.is_some_and(|time| time < SHORTEST) {
            return Err(fatal(doing, "`ack_wait` is too short; set it to at least 100 ms"));
        }
        Ok(())
    }

    fn stream_config(&self, subjects: &[String]) -> stream::Config {
        let delayed = self.delays.then(|| delayed_subjects(&self.stream));
        stream::Config {
            name: self.stream.to_string(),
            subjects: subjects.iter().cloned().chain(delayed).collect(),
            num_replicas: self.replicas,
            // The server then also allows rollups, by which a delayed message that is sent again replaces the first one.
            allow_message_schedules: self.delays,
            ..stream::Config::default()
        }
    }

    /// Creates or opens the consumer.
    async fn consumer(&self, stream: &Stream) -> Result<PullConsumer, SourceError> {
        let found = match self.subjects {
            Some(_) => create_consumer(stream, &self.consumer, self.consumer_config(stream)).await?,
            None => existing_consumer(stream, &self.consumer).await?,
        };
        let config = &found.cached_info().config;
        let doing = "checking the consumer";
        if config.ack_policy != AckPolicy::Explicit {
            return Err(fatal(
                doing,
                "it acknowledges on its own, so messages would be lost; create it with `--ack explicit`",
            ));
        }
        if config.max_deliver > 0 {
            let text = "`max_deliver` limits its deliveries, and the server drops a message after the last one; set it to -1 by \
                        `nats consumer edit`";
            return Err(fatal(doing, text));
        }
        if !config.backoff.is_empty() {
            return Err(fatal(doing, "it has a `backoff`, which replaces the delays of retries; create it without"));
        }
        if receives_delayed(&stream.cached_info().config, config) {
            let subjects = delayed_subjects(&self.stream);
            let text = format!(
                "it receives delayed messages before their time; filter it by `nats consumer edit`, without `{subjects}`"
            );
            return Err(fatal(doing, &text));
        }
        if let Some(wanted) = self.ack_wait.filter(|wanted| *wanted != config.ack_wait) {
            let text = format!(
                "its `ack_wait` is {:?} and not {wanted:?}; change it by `nats consumer edit`, or leave `ack_wait` out",
                config.ack_wait
            );
            return Err(fatal(doing, &text));
        }
        Ok(found)
    }

    fn consumer_config(&self, stream: &Stream) -> pull::Config {
        pull::Config {
            durable_name: Some(self.consumer.to_string()),
            ack_wait: self.ack_wait.unwrap_or(ACK_WAIT),
            // Delayed messages count, and must not hold up the others. The source bounds its own deliveries.
            max_ack_pending: -1,
            deliver_policy: match self.start {
                StartPosition::Beginning => DeliverPolicy::All,
                StartPosition::New => DeliverPolicy::New,
            },
            filter_subjects: match self.filter.is_empty() {
                true => undelayed_subjects(&stream.cached_info().config),
                false => self.filter.clone(),
            },
            ..pull::Config::default()
        }
    }
}

/// Returns the subject of a stream for dead letters: the subject of a stream that this crate creates, if the stream has it, or
/// the first one that is no pattern.
fn dead_subject(stream: &Stream) -> Result<String, SourceError> {
    let stream::Config { name, subjects, .. } = &stream.cached_info().config;
    let own = dead_subject_of(name);
    if subjects.iter().any(|pattern| contains(pattern, &own)) {
        return Ok(own);
    }
    subjects.iter().find(|subject| !subject.contains(['*', '>'])).cloned().ok_or_else(|| {
        fatal(
            "checking the dead letters",
            &format!("their stream has only patterns as subjects; add the subject `{own}`"),
        )
    })
}

/// Shows nothing of the URL.
impl fmt::Debug for JetStreamSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JetStreamSourceBuilder")
            .field("stream", &self.stream)
            .field("consumer", &self.consumer)
            .field("ack_wait", &self.ack_wait)
            .finish_non_exhaustive()
    }
}
