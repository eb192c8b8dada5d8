//! Delayed messages, which the server keeps in their stream until they are due.
use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use async_nats::jetstream::consumer;
use async_nats::jetstream::context::{GetStreamByNameErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idempotent_core::Timestamp;
use idempotent_mq::{OutboundMessage, PublishError, PublishErrorKind};
use sha2::{Digest, Sha256};

use crate::connection::Connection;

/// The number of subjects whose streams are kept in memory.
const KEPT: usize = 1_000;
/// The last second that the server can count: its times are nanoseconds in 64 bits.
const LAST_SECOND: u64 = 9_223_372_036;
/// The margin for a server that sends a due message late. The stream drops older messages also if they are not due.
const LATENESS: Duration = Duration::from_secs(5);
/// The cause of a refusal, and its remedy.
const NO_SCHEDULES: &str = "it cannot delay messages; run NATS 2.12 or later, and create the stream by `declare` and `delays` on the builder \
                            of a source, or set its `allow_msg_schedules`";

/// Returns the subjects of the delayed messages in a stream.
pub(crate) fn delayed_subjects(stream: &str) -> String {
    format!("idempotent.delayed.{stream}.*")
}

/// Checks that a stream delays messages.
///
/// # Errors
/// The reason with the remedy.
pub(crate) fn check_stream(config: &Config) -> Result<(), String> {
    let delayed = delayed_subjects(&config.name);
    if !config.allow_message_schedules {
        return Err(NO_SCHEDULES.to_owned());
    }
    if !config.subjects.iter().any(|pattern| contains(pattern, &delayed)) {
        return Err(format!(
            "it has no subject for delayed messages; add `{delayed}` to its subjects, and filter its consumers"
        ));
    }
    match config.retention {
        // No consumer is interested in the subject of a delayed message.
        RetentionPolicy::Interest => {
            Err("its retention `interest` drops delayed messages; use `limits` or `workqueue`".to_owned())
        }
        _ => Ok(()),
    }
}

/// Returns the subjects of a stream without those of delayed messages, or none if the stream delays no messages.
pub(crate) fn undelayed_subjects(stream: &Config) -> Vec<String> {
    let delayed = delayed_subjects(&stream.name);
    let (delays, others): (Vec<_>, Vec<_>) =
        stream.subjects.iter().cloned().partition(|pattern| contains(pattern, &delayed));
    if delays.is_empty() || !stream.allow_message_schedules { Vec::new() } else { others }
}

/// Returns whether a consumer receives delayed messages before their time.
pub(crate) fn receives_delayed(stream: &Config, consumer: &consumer::Config) -> bool {
    let delayed = delayed_subjects(&stream.name);
    let single = Some(&consumer.filter_subject).filter(|filter| !filter.is_empty());
    let mut filters = single.into_iter().chain(&consumer.filter_subjects).peekable();
    let is_received = filters.peek().is_none() || filters.any(|filter| contains(filter, &delayed));
    is_received && stream.allow_message_schedules && stream.subjects.iter().any(|pattern| contains(pattern, &delayed))
}

/// Returns whether a pattern of subjects contains a subject. A wildcard of the subject is a token like any other.
pub(crate) fn contains(pattern: &str, subject: &str) -> bool {
    let mut tokens = subject.split('.');
    for part in pattern.split('.') {
        match (part, tokens.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (part, Some(token)) if part == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

/// A stream that delays messages.
#[derive(Clone, Debug)]
pub(crate) struct DelayStream {
    pub(crate) name: Arc<str>,
    max_age: Duration,
}

impl DelayStream {
    /// Returns the subject of a message until the message is due. A message that is sent again replaces the first one there.
    pub(crate) fn subject(&self, message: &OutboundMessage) -> String {
        let mut hash = Sha256::new();
        for field in [&message.topic, &message.id] {
            hash.update((field.len() as u64).to_le_bytes());
            hash.update(field);
        }
        format!("idempotent.delayed.{}.{}", self.name, URL_SAFE_NO_PAD.encode(hash.finalize()))
    }

    /// Returns the schedule of a message. The server counts whole seconds, so the time is rounded up.
    ///
    /// # Errors
    /// The stream would drop the message before its time, or the time is too late for the server.
    pub(crate) fn schedule(&self, at: Timestamp, now: Timestamp) -> Result<String, PublishError> {
        let seconds = at.0.div_ceil(1_000_000);
        if seconds > LAST_SECOND {
            return Err(refused("`deliver_at` is after the year 2262, which NATS cannot count; use an earlier time"));
        }
        if !self.max_age.is_zero() && Timestamp(seconds * 1_000_000) - now + LATENESS >= self.max_age {
            let text = format!(
                "the stream `{}` drops messages after {:?}, and delays them for at most {LATENESS:?} less; delay the message for a shorter \
                 time, or raise `max_age` of the stream",
                self.name, self.max_age
            );
            return Err(refused(text));
        }
        Ok(format!("@at {}", humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds))))
    }
}

/// The streams of the subjects to which messages were delayed.
#[derive(Debug, Default)]
pub(crate) struct DelayStreams(Mutex<HashMap<Box<str>, DelayStream>>);

impl DelayStreams {
    /// Returns the stream of a subject, and checks it at the first call.
    ///
    /// # Errors
    /// - `Refused`: no stream contains the subject, or the stream delays no messages.
    /// - `Unsent`: the server does not answer.
    pub(crate) async fn of(&self, connection: &Connection, subject: &str) -> Result<DelayStream, PublishError> {
        let known = self.locked().get(subject).cloned();
        if let Some(stream) = known {
            return Ok(stream);
        }
        let config = config_of(connection, subject).await?;
        check_stream(&config).map_err(|rule| refused(format!("the stream `{}`: {rule}", config.name)))?;
        let stream = DelayStream { name: config.name.into(), max_age: config.max_age };
        let mut streams = self.locked();
        if streams.len() >= KEPT {
            streams.clear();
        }
        streams.insert(subject.into(), stream.clone());
        Ok(stream)
    }

    /// Removes the stream of a subject, which may have changed.
    pub(crate) fn forget(&self, subject: &str) {
        self.locked().remove(subject);
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<Box<str>, DelayStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests the configuration of the stream that contains a subject.
async fn config_of(connection: &Connection, subject: &str) -> Result<Config, PublishError> {
    let jetstream = &connection.jetstream;
    let name = jetstream.stream_by_subject(subject).await.map_err(|error| match error.kind() {
        GetStreamByNameErrorKind::NotFound => {
            refused(format!("no stream contains `{subject}`; create a stream with this subject"))
        }
        GetStreamByNameErrorKind::InvalidSubject => refused(format!("`{subject}` is not a subject of NATS")),
        _ => unanswered(subject, error),
    })?;
    let stream = jetstream.get_stream(name).await.map_err(|error| match error.kind() {
        GetStreamErrorKind::JetStream(refusal) if refusal.code() != 503 => {
            refused(format!("opening the stream of `{subject}`: {refusal}"))
        }
        _ => unanswered(subject, error),
    })?;
    Ok(stream.cached_info().config.clone())
}

fn refused(text: impl Into<String>) -> PublishError {
    PublishError::new(PublishErrorKind::Refused, text.into())
}

fn unanswered(subject: &str, error: impl Error + Send + Sync + 'static) -> PublishError {
    let text = format!(
        "looking for the stream of `{subject}`: {error}; is JetStream enabled, and may the user publish to `$JS.API.>`?"
    );
    PublishError::new(PublishErrorKind::Unsent, text).with_cause(error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn stream(max_age: Duration) -> DelayStream {
        DelayStream { name: "ORDERS".into(), max_age }
    }

    #[test]
    fn a_pattern_contains_the_subjects_of_its_tokens() {
        for (pattern, subject, expected) in [
            ("orders.new", "orders.new", true),
            ("orders.*", "orders.new", true),
            ("orders.>", "orders.eu.new", true),
            (">", "orders", true),
            ("idempotent.>", "idempotent.delayed.ORDERS.*", true),
            ("idempotent.delayed.ORDERS.*", "idempotent.delayed.ORDERS.*", true),
            ("orders", "orders.new", false),
            ("orders.new", "orders", false),
            ("orders.>", "orders", false),
            ("orders.*", "orders.eu.new", false),
            ("orders.old", "orders.new", false),
        ] {
            assert_eq!(contains(pattern, subject), expected, "{pattern} {subject}");
        }
    }

    #[test]
    fn a_consumer_without_a_filter_receives_delayed_messages_of_a_stream_that_delays() {
        let config = |subjects: &[&str]| Config {
            name: "ORDERS".into(),
            subjects: subjects.iter().map(|subject| (*subject).to_owned()).collect(),
            allow_message_schedules: true,
            ..Config::default()
        };
        let (plain, delays) = (config(&["orders.>"]), config(&["orders.>", "idempotent.delayed.ORDERS.*"]));
        assert_eq!((undelayed_subjects(&plain), undelayed_subjects(&delays)), (vec![], vec!["orders.>".to_owned()]));
        let receives = |stream: &Config, single: &str, several: &[&str]| {
            let filter_subjects = several.iter().map(|subject| (*subject).to_owned()).collect();
            let consumer = consumer::Config { filter_subject: single.into(), filter_subjects, ..Default::default() };
            receives_delayed(stream, &consumer)
        };
        for (single, several, expected) in [
            ("", &[][..], true),
            (">", &[], true),
            ("", &["orders.>", "idempotent.>"], true),
            ("orders.>", &[], false),
            ("", &["orders.a", "orders.b"], false),
        ] {
            assert_eq!(receives(&delays, single, several), expected, "{single} {several:?}");
            assert!(!receives(&plain, single, several), "{single} {several:?}");
        }
        let wide = Config { allow_message_schedules: false, ..config(&[">"]) };
        assert!(!receives(&wide, "", &[]) && undelayed_subjects(&wide).is_empty(), "the stream delays nothing");
    }

    #[test]
    fn a_message_that_is_sent_again_has_the_subject_of_the_first_one() {
        let stream = stream(Duration::ZERO);
        let subject = |topic: &str, id: &str| stream.subject(&OutboundMessage::new(topic, id, "body"));
        assert_eq!(subject("orders.new", "m"), stream.subject(&OutboundMessage::new("orders.new", "m", "other")));
        assert!(contains(&delayed_subjects("ORDERS"), &subject("orders.new", "m . *\r\n")));
        let different = ["orders.new", "orders.ne"].map(|topic| ["m", "wm", ""].map(|id| subject(topic, id)));
        let different: std::collections::BTreeSet<_> = different.into_iter().flatten().collect();
        assert_eq!(different.len(), 6);
    }

    #[test]
    fn a_time_is_rounded_up_to_seconds_and_refused_if_the_message_would_be_lost() {
        let now = Timestamp(1_000_000);
        let schedule = |at: u64| stream(Duration::ZERO).schedule(Timestamp(at), now);
        assert_eq!(schedule(1_500_000_000_000_000).unwrap(), "@at 2017-07-14T02:40:00Z");
        assert_eq!(schedule(1_500_000_000_000_001).unwrap(), "@at 2017-07-14T02:40:01Z");
        assert_eq!(schedule(0).unwrap(), "@at 1970-01-01T00:00:00Z");
        assert_eq!(schedule(LAST_SECOND * 1_000_000).unwrap(), "@at 2262-04-11T23:47:16Z");
        for late in [LAST_SECOND * 1_000_000 + 1, u64::MAX] {
            assert!(schedule(late).unwrap_err().to_string().contains("2262"), "{late}");
        }
        let short = stream(Duration::from_secs(60));
        assert!(short.schedule(Timestamp(55_000_000), now).is_ok());
        // Rounded up, the delay and the margin are 60 s.
        let error = short.schedule(Timestamp(55_000_001), now).unwrap_err();
        assert!(error.to_string().contains("drops messages after 60s"), "{error}");
    }
}
