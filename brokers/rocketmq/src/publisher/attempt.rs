//! One attempt to publish a message.
use std::sync::Arc;
use std::time::Duration;

use idempotent_mq::{PublishError, PublishErrorKind};
use rocketmq_client_rust::ClientError;
use tokio::time::{Instant, timeout_at};

use super::PublisherState;
use crate::client::ClientSettings;
use crate::error::{is_final, is_not_stored, rejection};
use crate::name_servers::{NoAnswer, look_up, silence};
use crate::producer::{MessageProducer, PreparedMessage, SendFailure};
use crate::queue_choice::QueueChoice;
use crate::queue_position::QueuePosition;
use crate::topics::{ON_EACH_BROKER, TEMPLATE};

/// Minimum time for an attempt. The client counts whole ms.
const MIN_TIMEOUT: Duration = Duration::from_millis(2);

/// A failed attempt.
pub(super) struct FailedAttempt {
    pub(super) text: Box<str>,
    cause: Option<ClientError>,
    /// True if the message may be stored.
    pub(super) may_be_stored: bool,
    /// True if each further attempt fails the same way.
    pub(super) is_final: bool,
}

impl PublisherState {
    /// Tries once to publish a message, until `end` at the latest.
    pub(super) async fn attempt(
        &self,
        message: PreparedMessage,
        choice: QueueChoice,
        end: Instant,
    ) -> Result<Option<QueuePosition>, FailedAttempt> {
        let ready = timeout_at(end, self.ready(&message.topic)).await;
        let too_late = || FailedAttempt::unanswered(format!("connecting to {}", silence(&self.settings)), None);
        let producer = ready.unwrap_or_else(|_| Err(too_late()))?;
        let left = end.saturating_duration_since(Instant::now());
        if left < MIN_TIMEOUT {
            return Err(too_late());
        }
        let topic = message.topic.clone();
        // The client's timeout is the shorter one, because its error has more details.
        let sent = timeout_at(end, producer.send_once(message, choice, left * 9 / 10)).await;
        let failed = match sent {
            Ok(Ok(position)) => return Ok(position),
            Ok(Err(failure)) => FailedAttempt::of(&topic, failure),
            Err(_) => FailedAttempt::timed_out(&topic),
        };
        if !failed.may_be_stored {
            // The topic may have been deleted.
            self.known_topics().insert(topic, false);
        }
        Err(failed)
    }

    /// Returns a producer after a check that the topic accepts messages. If this fails, nothing was sent.
    async fn ready(&self, topic: &str) -> Result<Arc<MessageProducer>, FailedAttempt> {
        let producer = self.producer().await.map_err(|error| FailedAttempt::before_sending(topic, error))?;
        if !self.knows(topic) {
            // One task checks, and the others wait for the result.
            let _checking = self.checking.lock().await;
            if !self.knows(topic) {
                let was_known = self.known_topics().contains_key(topic);
                check_topic(&producer, &self.settings, topic)
                    .await
                    .map_err(|failed| FailedAttempt { is_final: failed.is_final && !was_known, ..failed })?;
                self.known_topics().insert(topic.to_owned(), true);
            }
        }
        Ok(producer)
    }
}

/// Checks that a topic exists, or that brokers create topics on demand.
async fn check_topic(producer: &MessageProducer, settings: &ClientSettings, topic: &str) -> Result<(), FailedAttempt> {
    let look_up = async |topic| {
        let found = look_up(producer, settings, topic).await;
        found.map_err(|NoAnswer { text, cause }| FailedAttempt::unanswered(text, cause))
    };
    let Err(error) = look_up(topic).await? else { return Ok(()) };
    // A broker with this template creates the topic for the first message.
    if look_up(TEMPLATE).await?.is_ok() {
        return Ok(());
    }
    // Without a running broker, the name server knows no topic at all.
    if look_up(ON_EACH_BROKER).await?.is_ok() {
        return Err(FailedAttempt::missing_topic(topic, error));
    }
    Err(FailedAttempt::before_sending(topic, error))
}

impl FailedAttempt {
    fn of(topic: &str, failure: SendFailure) -> Self {
        let (text, cause): (Box<str>, _) = match failure {
            SendFailure::Incomplete(status) => {
                (format!("not flushed or replicated as the broker is configured ({status:?})").into(), None)
            }
            SendFailure::Unanswered => return Self::timed_out(topic),
            SendFailure::Ended => ("the client has shut down".into(), None),
            SendFailure::Failed(error) => {
                let text = match rejection(&error) {
                    Some(remedy) => format!("`{topic}`: {remedy}"),
                    None => format!("sending to `{topic}` failed: {error}"),
                };
                (text.into(), Some(error))
            }
        };
        let is_final = cause.as_ref().is_some_and(is_final);
        let may_be_stored = !cause.as_ref().is_some_and(is_not_stored);
        Self { text, cause, may_be_stored, is_final }
    }

    /// Creates the failure of a step before sending.
    fn before_sending(topic: &str, error: ClientError) -> Self {
        Self { may_be_stored: false, ..Self::of(topic, SendFailure::Failed(error)) }
    }

    fn missing_topic(topic: &str, error: ClientError) -> Self {
        let text =
            format!("the topic `{topic}` is missing, and the brokers do not create topics; create the topic first");
        Self { text: text.into(), cause: Some(error), may_be_stored: false, is_final: true }
    }

    fn timed_out(topic: &str) -> Self {
        let text = format!("`{topic}`: the broker did not respond in time; check that it is running, and the network");
        Self { text: text.into(), cause: None, may_be_stored: true, is_final: false }
    }

    /// Creates the failure of a request to the name servers.
    fn unanswered(text: String, cause: Option<ClientError>) -> Self {
        Self { text: text.into(), cause, may_be_stored: false, is_final: false }
    }

    /// Converts to the error of a message. With `may_be_stored`, this or an earlier attempt may have stored the message.
    pub(super) fn into_error(self, may_be_stored: bool) -> PublishError {
        let kind = match (may_be_stored, self.is_final) {
            (true, _) => PublishErrorKind::Unconfirmed,
            (false, true) => PublishErrorKind::Refused,
            (false, false) => PublishErrorKind::Unsent,
        };
        let error = PublishError::new(kind, self.text);
        match self.cause {
            Some(cause) => error.with_cause(cause),
            None => error,
        }
    }
}
