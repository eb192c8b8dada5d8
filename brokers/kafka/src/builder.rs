//! Builder of a [`KafkaSource`].
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idempotent_mq::SourceError;
use rdkafka::ClientConfig;
use rdkafka::consumer::{Consumer, StreamConsumer};
use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;

use crate::KafkaSource;
use crate::assignment::Assignment;
use crate::carrier::{ABORTS, Names};
use crate::connection_error::{ConnectionError, KeepsError};
use crate::error::{failure, fatal, transient};
use crate::group_events::GroupEvents;
use crate::member::Member;
use crate::message::LONGEST_NAME;
use crate::options::{self, Server};
use crate::producer::{Producer, QuietContext};
use crate::settler::KafkaSettler;
use crate::topics::{Declaration, Topics};
use crate::transactions::Transactions;

/// A builder for a [`KafkaSource`].
#[must_use]
pub struct KafkaSourceBuilder {
    server: Server,
    topic: Arc<str>,
    group: Arc<str>,
    partitions: Option<i32>,
    replicas: i32,
    start: StartPosition,
    member: Option<String>,
    session_timeout: Duration,
    max_in_flight: usize,
    dead: Option<String>,
    retry: Option<String>,
    transactions: Option<String>,
    utf8_header_names: bool,
}

/// The position of the first message of a group without committed offsets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum StartPosition {
    /// The first message that the topic contains.
    Beginning,
    /// The first message after the group has joined.
    New,
}

/// The default of `session_timeout`, which equals the client's default.
const SESSION: Duration = Duration::from_secs(45);
/// The property for the longest time in which the broker collects messages for an answer, in milliseconds.
const FETCH_WAIT: &str = "fetch.wait.max.ms";
/// The default of `max_in_flight`.
const IN_FLIGHT: usize = 10_000;

impl KafkaSourceBuilder {
    pub(crate) fn new(server: Server, topic: Arc<str>, group: Arc<str>) -> Self {
        Self {
            server,
            topic,
            group,
            partitions: None,
            replicas: 1,
            start: StartPosition::Beginning,
            member: None,
            session_timeout: SESSION,
            max_in_flight: IN_FLIGHT,
            dead: None,
            retry: None,
            transactions: None,
            utf8_header_names: false,
        }
    }

    /// Creates the topics that do not exist: the topic and the retry topic with this number of partitions, and the compacted topic of
    /// the dead letters with one. Existing ones stay unchanged.
    ///
    /// # Default
    /// All of them must exist
    pub fn declare(mut self, partitions: u32) -> Self {
        self.partitions = Some(i32::try_from(partitions).unwrap_or(i32::MAX));
        self
    }

    /// Sets the number of replicas of the topics that [`declare`](Self::declare) creates.
    ///
    /// # Default
    /// 1
    pub fn replicas(mut self, replicas: u16) -> Self {
        self.replicas = i32::from(replicas);
        self
    }

    /// Sets the first message of a group that has not committed an offset, or whose offset the log no longer contains.
    ///
    /// # Default
    /// [`StartPosition::Beginning`]
    pub fn start(mut self, start: StartPosition) -> Self {
        self.start = start;
        self
    }

    /// Makes the source a static member with this name (`group.instance.id`), such as the name of its pod: at most 249 letters, digits,
    /// `-`, `_` and `.`. A member that returns within the [session timeout](Self::session_timeout) gets its partitions back without a
    /// rebalance. Until then, no other member reads them, even after a drain. Each process needs a name of its own: the broker
    /// expels the older of two members with one name, whose source then fails.
    ///
    /// # Default
    /// A dynamic member, whose partitions are reassigned when it closes
    pub fn member(mut self, name: impl Into<String>) -> Self {
        self.member = Some(name.into());
        self
    }

    /// Sets the time after which the broker reassigns the partitions of a process without a heartbeat, at least 1 s.
    ///
    /// # Default
    /// 45 s
    pub fn session_timeout(mut self, time: Duration) -> Self {
        self.session_timeout = time;
        self
    }

    /// Sets the maximum number of messages of a partition between the oldest unsettled one and the last delivered one. The source then
    /// pauses the partition, and other partitions continue. After a crash, at most so many messages are delivered again.
    ///
    /// # Default
    /// 10,000
    pub fn max_in_flight(mut self, messages: usize) -> Self {
        self.max_in_flight = messages;
        self
    }

    /// Sets the topic for dead letters.
    ///
    /// # Default
    /// `TOPIC-dead`
    pub fn dead_letters(mut self, topic: impl Into<String>) -> Self {
        self.dead = Some(topic.into());
        self
    }

    /// Retries by a copy in this topic, which only this group may use. Later messages of the partition then do not wait for the retried
    /// one, and the attempts survive a rebalance.
    ///
    /// # Default
    /// The partition is paused until the retry is due, and read again from the retried message. The order of the partition is kept
    pub fn retry_topic(mut self, topic: impl Into<String>) -> Self {
        self.retry = Some(topic.into());
        self
    }

    /// Commits offsets in transactions, together with the messages that handlers add by [`KafkaSource::output`]. The id identifies
    /// this process to the broker: a process that starts with the same id ends the open transaction of the earlier one, which then
    /// fails. Each running process needs an id of its own, such as the name of its pod. Excludes [`retry_topic`](Self::retry_topic).
    ///
    /// # Default
    /// Offsets are committed without transactions
    pub fn transactions(mut self, id: impl Into<String>) -> Self {
        self.transactions = Some(id.into());
        self
    }

    /// States that all producers of the topic write the names of headers in UTF-8. A program that is built with `panic = "abort"` must
    /// state that, because the client panics for another name. Changes nothing in other programs.
    ///
    /// # Default
    /// A message with such a name is dead-lettered
    pub fn utf8_header_names(mut self) -> Self {
        self.utf8_header_names = true;
        self
    }

    /// Connects, creates or checks the topics, and joins the group.
    ///
    /// # Errors
    /// - `Fatal`: a setting is invalid, a topic does not exist, or the broker rejects the user.
    /// - `Transient`: the broker cannot be reached or does not answer.
    ///
    /// # Cancellation
    /// Some of the declared topics may have been created.
    pub async fn connect(self) -> Result<KafkaSource, SourceError> {
        self.check()?;
        let transactions =
            self.transactions.as_deref().map(|id| options::transactions(&self.server, id)).transpose()?;
        let setup = Setup { config: self.config()?, topics: self.topics(), transactions };
        let (dead, retry): (_, Option<Arc<str>>) = (setup.topics.dead.clone(), self.retry.map(Into::into));
        let assignment = Assignment::new(setup.transactions.is_some());
        let (requests, inbox) = mpsc::unbounded_channel();
        let names = Names::stated(self.utf8_header_names, ABORTS)?;
        let member = Member::new(assignment.clone(), inbox, self.max_in_flight, retry.clone(), names);
        start(member, setup).await?;
        let settler =
            KafkaSettler { assignment, producer: Producer::new(&self.server)?, group: self.group, dead, retry };
        Ok(KafkaSource::new(settler, requests))
    }

    /// Creates or checks the topics, and does not join the group. A producer can then use the topics before the first consumer starts.
    ///
    /// # Errors
    /// Same as [`connect`](Self::connect).
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime.
    ///
    /// # Cancellation
    /// Some of the declared topics may have been created.
    pub async fn prepare_topics(self) -> Result<(), SourceError> {
        self.check()?;
        let (config, topics) = (self.config()?, self.topics());
        // The client blocks its thread, also when it is dropped.
        let preparing = spawn_blocking(move || {
            runtime::Handle::current()
                .block_on(async { opened(&config, QuietContext::default(), &topics).await.map(drop) })
        });
        preparing.await.map_err(|error| transient("connecting", error))?
    }

    fn topics(&self) -> Topics {
        let retry = self.retry.as_deref().map(Arc::from);
        Topics {
            read: [self.topic.clone()].into_iter().chain(retry).collect(),
            dead: self.dead_topic().into(),
            declare: self.partitions.map(|partitions| Declaration { partitions, replicas: self.replicas }),
        }
    }

    fn dead_topic(&self) -> String {
        self.dead.clone().unwrap_or_else(|| format!("{}-dead", self.topic))
    }

    fn check(&self) -> Result<(), SourceError> {
        let doing = "checking the settings";
        let (dead, retry) = (self.dead_topic(), self.retry.as_deref());
        let member = self.member.as_deref();
        let names =
            [("topic", Some(&*self.topic)), ("dead_letters", Some(&*dead)), ("retry_topic", retry), ("member", member)];
        for (what, name) in names.into_iter().filter_map(|(what, name)| Some((what, name?))) {
            let is_valid = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
            if name.is_empty()
                || name.len() > LONGEST_NAME
                || !name.chars().all(is_valid)
                || name == "."
                || name == ".."
            {
                let text = format!("`{what}` is `{name}`; use at most 249 letters, digits, `-`, `_` and `.`");
                return Err(fatal(doing, &text));
            }
        }
        if self.group.is_empty() {
            return Err(fatal(doing, "the group is empty; name the consumer group"));
        }
        if *dead == *self.topic || retry.is_some_and(|retry| retry == dead || retry == &*self.topic) {
            return Err(fatal(doing, "two of the topics are the same; name different ones"));
        }
        if self.transactions.as_deref() == Some("") {
            return Err(fatal(doing, "the id of `transactions` is empty; name this process"));
        }
        if self.transactions.is_some() && retry.is_some() {
            let text = "`transactions` and `retry_topic` exclude each other, because a copy is no part of a transaction; remove one";
            return Err(fatal(doing, text));
        }
        if self.partitions == Some(0) || self.replicas == 0 || self.max_in_flight == 0 {
            return Err(fatal(doing, "`declare`, `replicas` and `max_in_flight` must be at least 1"));
        }
        if self.session_timeout < Duration::from_secs(1) {
            return Err(fatal(doing, "`session_timeout` is too short; set it to at least 1 s"));
        }
        Ok(())
    }

    fn config(&self) -> Result<ClientConfig, SourceError> {
        let mut config = options::client(&self.server)?;
        let session = self.session_timeout.as_millis();
        config.set("group.id", &*self.group);
        config.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
        config.set("session.timeout.ms", session.to_string());
        config.set("heartbeat.interval.ms", (session / 15).clamp(100, 3000).to_string());
        config.set("partition.assignment.strategy", "cooperative-sticky");
        // A partition that reads again from a retried message waits for the end of the running request.
        if config.get(FETCH_WAIT).is_none() {
            config.set(FETCH_WAIT, "100");
        }
        config.set(
            "auto.offset.reset",
            match self.start {
                StartPosition::Beginning => "earliest",
                StartPosition::New => "latest",
            },
        );
        if let Some(member) = &self.member {
            config.set("group.instance.id", member);
        }
        Ok(config)
    }
}

/// The configuration of a member.
struct Setup {
    config: ClientConfig,
    topics: Topics,
    /// The configuration of the producer of transactions.
    transactions: Option<ClientConfig>,
}

/// The time for which an idle thread is kept.
const ALWAYS: Duration = Duration::from_secs(24 * 3_600);

/// Starts the thread of a member, and waits until the member is connected.
async fn start(member: Member, setup: Setup) -> Result<(), SourceError> {
    let (connected, answer) = oneshot::channel();
    let spawned = std::thread::Builder::new().name("idempotent-kafka".into()).spawn(move || {
        let left = member.assignment.clone();
        let mut runtime = runtime::Builder::new_current_thread();
        // One thread for all commits. Starting one later could fail.
        match runtime.enable_time().max_blocking_threads(1).thread_keep_alive(ALWAYS).build() {
            Ok(runtime) => runtime.block_on(run(member, setup, connected)),
            Err(error) => drop(connected.send(Err(fatal("starting a thread", &error.to_string())))),
        }
        left.left.send_replace(true);
    });
    spawned.map_err(|error| fatal("starting a thread", &error.to_string()))?;
    answer.await.map_err(|_| fatal("connecting", "the thread of the client has ended"))?
}

async fn run(mut member: Member, setup: Setup, connected: oneshot::Sender<Result<(), SourceError>>) {
    let consumer = match join(&mut member, &setup).await {
        Ok(consumer) => Arc::new(consumer),
        Err(error) => return drop(connected.send(Err(error))),
    };
    if connected.send(Ok(())).is_ok() {
        member.run(&consumer).await;
    }
    // Leaves the group: the end of the client revokes all partitions, which commits their offsets.
    drop(consumer);
}

async fn join(member: &mut Member, setup: &Setup) -> Result<StreamConsumer<GroupEvents>, SourceError> {
    let consumer =
        opened(&setup.config, GroupEvents(member.assignment.clone(), ConnectionError::default()), &setup.topics)
            .await?;
    member.transactions = setup.transactions.as_ref().map(Transactions::open).transpose()?;
    let read: Vec<&str> = setup.topics.read.iter().map(|topic| &**topic).collect();
    consumer.subscribe(&read).map_err(|error| failure("joining the group", error))?;
    Ok(consumer)
}

/// Connects, and creates or checks the topics.
async fn opened<C: KeepsError>(
    config: &ClientConfig,
    context: C,
    topics: &Topics,
) -> Result<StreamConsumer<C>, SourceError> {
    let created = config.create_with_context(context);
    let consumer: StreamConsumer<C> = created.map_err(|error| failure("configuring the client", error))?;
    topics.prepare(&consumer, config).await?;
    Ok(consumer)
}

/// Shows nothing of the URL.
impl fmt::Debug for KafkaSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSourceBuilder")
            .field("topic", &self.topic)
            .field("group", &self.group)
            .field("retry_topic", &self.retry)
            .finish_non_exhaustive()
    }
}
