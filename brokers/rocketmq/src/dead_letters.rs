//! Listing, redriving and removing the dead letters of a group.
mod broker_log;
mod log;
mod open_session;
mod session;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{ContentIds, DeadLetter, Delivery, LetterBox, MessagePlace, ServerUrl, SourceError};
use tokio::sync::oneshot;

use self::log::StoredLetter;
use self::open_session::{OpenSession, Reply, SessionStep};
use self::session::Handling;
use crate::SettingError;
use crate::carrier::RetryHeaders;
use crate::client::ClientSettings;
use crate::error::transient;
use crate::settings::check_name;

/// The dead letters of a consumer group in `GROUP-dead`, for [`Redrive`](idempotent_mq::Redrive).
///
/// Each letter is sent to the topic of this handle, and counts as handled after the broker has confirmed the message. All groups of the topic
/// receive the message again. Groups that have handled the message recognize it by its key.
///
/// # Handled letters
///
/// RocketMQ removes no single message. The committed offset of the group `GROUP-dead-operator` therefore separates handled letters
/// from dead letters, and [`put_back`](idempotent_mq::DeadLetters::put_back) and [`discard`](idempotent_mq::DeadLetters::discard) move this offset. Before the offset
/// passes skipped letters, these are copied to the end of the topic, with their ids, headers and deaths. A session that only reads
/// changes nothing.
///
/// A process that dies between two of these steps loses no letter. Some letters may then exist twice: in their topic and as dead
/// letters, or as two dead letters. A broker that crashes may forget the offsets of the last seconds, and the letters return.
///
/// A broker deletes old messages, including dead letters, after its `fileReservedTime` (72 h by default). A copy is a new
/// message.
///
/// ```no_run
/// use idempotent_mq::Redrive;
/// use idempotent_rocketmq::RocketDeadLetters;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut letters = RocketDeadLetters::new("rocketmq://localhost", "orders", "billing")?;
/// let redriven = Redrive::new().limit(10).run(&mut letters).await;
/// println!("{} put back", redriven.put_back);
/// redriven.failed.map_or(Ok(()), |failed| Err(failed.into()))
/// # }
/// ```
pub struct RocketDeadLetters {
    settings: LetterSettings,
    /// The session, which opens on first use.
    open: Option<OpenSession>,
    /// The ids of the letters that the session has read. A letter that others pass is copied to another offset.
    ids: ContentIds,
    listed: Option<()>,
}

/// A builder for [`RocketDeadLetters`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RocketDeadLettersBuilder {
    settings: LetterSettings,
}

#[derive(Clone, Debug)]
struct LetterSettings {
    client: ClientSettings,
    topic: String,
    /// The topic that the operator names.
    to: Option<String>,
    group: String,
    dead_topic: String,
    operator_group: String,
}

impl RocketDeadLetters {
    /// Creates a handle to the dead letters of this group, with the default settings. The arguments are those of
    /// [`RocketSource::builder`](crate::RocketSource::builder).
    ///
    /// # Errors
    /// The URL or a name is invalid.
    pub fn new(
        server: impl Into<ServerUrl>,
        topic: impl Into<String>,
        group: impl Into<String>,
    ) -> Result<Self, SettingError> {
        Self::builder(server, topic, group).build()
    }

    /// Returns a builder for a handle to the dead letters of this group.
    pub fn builder(
        server: impl Into<ServerUrl>,
        topic: impl Into<String>,
        group: impl Into<String>,
    ) -> RocketDeadLettersBuilder {
        let group = group.into();
        RocketDeadLettersBuilder {
            settings: LetterSettings {
                client: ClientSettings::new(&server.into()),
                topic: topic.into(),
                to: None,
                dead_topic: format!("{group}-dead"),
                operator_group: format!("{group}-dead-operator"),
                group,
            },
        }
    }
}

impl RocketDeadLettersBuilder {
    /// Sets the topic of the dead letters, as in
    /// [`RocketSourceBuilder::dead_letter_topic`](crate::RocketSourceBuilder::dead_letter_topic).
    ///
    /// # Default
    /// The group's name with the suffix `-dead`
    pub fn dead_letter_topic(mut self, topic: impl Into<String>) -> Self {
        self.settings.dead_topic = topic.into();
        self
    }

    /// Puts all letters back to this topic, whatever topic they name.
    ///
    /// # Default
    /// The topic of the handle. A letter of another topic is [`Refused`](idempotent_mq::SourceErrorKind::Refused)
    pub fn putting_back_to(mut self, topic: impl Into<String>) -> Self {
        self.settings.to = Some(topic.into());
        self
    }

    /// Sets the group whose committed offset separates handled letters from dead letters. All operators need the same group, and no
    /// consumer may use it.
    ///
    /// # Default
    /// The name of the consumers' group with the suffix `-dead-operator`
    pub fn operator_group(mut self, group: impl Into<String>) -> Self {
        self.settings.operator_group = group.into();
        self
    }

    /// Builds the handle, which connects on first use.
    ///
    /// # Errors
    /// The URL or a name is invalid, or the certificates cannot be read.
    pub fn build(self) -> Result<RocketDeadLetters, SettingError> {
        let LetterSettings { client, topic, to, group, dead_topic, operator_group } = &self.settings;
        client.check()?;
        if let Some(to) = to {
            check_name("putting back to", to)?;
        }
        for (what, name) in
            [("topic", topic), ("group", group), ("dead letter topic", dead_topic), ("operator group", operator_group)]
        {
            check_name(what, name)?;
        }
        if operator_group == group {
            return Err(SettingError::new(
                "operator_group: must differ from the group of the consumers; choose another name",
            ));
        }
        Ok(RocketDeadLetters { settings: self.settings, open: None, ids: ContentIds::default(), listed: None })
    }
}

/// The calls of `put_back` and `discard` continue in the background after a cancellation, unless the process ends.
#[async_trait]
impl LetterBox for RocketDeadLetters {
    /// The session knows the letter that it read last.
    type Letter = ();

    fn listed(&mut self) -> &mut Option<()> {
        &mut self.listed
    }

    /// Returns `None`: the session limits each request, and continues a step after its caller has gone.
    fn time_limit(&self) -> Option<Duration> {
        None
    }

    async fn number(&mut self) -> Result<u64, SourceError> {
        self.ask(SessionStep::Count).await
    }

    async fn fetch(&mut self) -> Result<Option<(idempotent_mq::StoredLetter, ())>, SourceError> {
        let next = self.ask(SessionStep::Next).await?;
        Ok(next.map(|letter| {
            let (delivery, letter) = self.settings.decode(letter);
            let id = self.ids.next(&delivery, letter.as_ref());
            (idempotent_mq::StoredLetter::new(id, delivery, letter), ())
        }))
    }

    /// Puts the letter back into the topic of this handle, or into the one that the operator has named.
    async fn revive(&mut self, (): &()) -> Result<bool, SourceError> {
        let LetterSettings { topic, to, .. } = &self.settings;
        let handling = match to {
            Some(to) => Handling::PutAllBack { topic: to.clone() },
            None => Handling::PutBack { topic: topic.clone() },
        };
        self.ask(|reply| SessionStep::Handle(handling, reply)).await
    }

    /// Commits the offset after the letter.
    async fn remove(&mut self, (): &()) -> Result<bool, SourceError> {
        self.ask(|reply| SessionStep::Handle(Handling::Discard, reply)).await
    }

    async fn leave(&mut self) {
        self.ids = ContentIds::default();
        if let Some(open) = self.open.take() {
            open.close().await;
        }
    }
}

impl RocketDeadLetters {
    /// Runs a step of the session, which opens first if necessary.
    async fn ask<T>(&mut self, step: impl FnOnce(Reply<T>) -> SessionStep) -> Result<T, SourceError> {
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(OpenSession::open(&self.settings).await?),
        };
        let (reply, replied) = oneshot::channel();
        let is_sent = open.steps.send(step(reply)).is_ok();
        match replied.await {
            Ok(result) if is_sent => result,
            _ => {
                (self.open, self.ids) = (None, ContentIds::default());
                Err(transient("the client for the dead letters has ended; see the log"))
            }
        }
    }
}

impl LetterSettings {
    /// Decodes a letter as a consumer of its topic would receive it.
    fn decode(&self, letter: StoredLetter) -> (Delivery, Option<DeadLetter>) {
        let StoredLetter { position, properties, flag, body, .. } = letter;
        let all = properties.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers = RetryHeaders::decode(all, flag, MessagePlace::DeadLetters);
        let body = if headers.has_empty_body() { Vec::new() } else { body };
        let delivery = headers.delivery(position.position(&self.dead_topic), body);
        (delivery, headers.envelope.letter)
    }
}

/// Shows no credentials.
impl fmt::Debug for RocketDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LetterSettings { client, group, .. } = &self.settings;
        f.debug_struct("RocketDeadLetters").field("client", client).field("group", group).finish_non_exhaustive()
    }
}
