//! The outcome of an attempt, and the known state of a message after several attempts.
use std::borrow::Cow;

use idempotent_mq::{PublishError, PublishErrorKind};

use crate::error::is_final;
use crate::publish_connection::PublishFailure;

/// The outcome of an attempt.
pub(super) enum AttemptOutcome {
    Confirmed,
    Failed(PublishFailure),
    /// The broker can never accept the message in this way.
    Refused {
        text: &'static str,
        error: lapin::Error,
    },
    /// The headers and properties exceed the largest frame of the broker.
    TooLarge,
    /// There is no connection. Without an error, the call ends before the attempt.
    Unconnected {
        text: String,
        error: Option<lapin::Error>,
    },
    /// The broker did not respond in time.
    TimedOut {
        sent: bool,
    },
    /// The broker blocks publishers, because its memory or disk is short.
    Blocked {
        sent: bool,
    },
}

/// The known state of a message after some attempts.
#[derive(Default)]
pub(super) struct KnownState {
    /// True if an attempt without a response may have stored the message.
    may_be_stored: bool,
    last_error: Option<lapin::Error>,
    text: Cow<'static, str>,
}

const CONNECTION_FAILED: &str = "the connection failed; see the cause";

impl KnownState {
    /// Adds an attempt. Returns the result of the message if further attempts would not change this result.
    pub(super) fn add(&mut self, outcome: AttemptOutcome) -> Option<Result<(), PublishError>> {
        let (text, error, may_be_stored): (Cow<'static, str>, _, _) = match outcome {
            AttemptOutcome::Confirmed => return Some(Ok(())),
            AttemptOutcome::Failed(PublishFailure::Unroutable) => {
                return Some(Err(self.final_error(PublishErrorKind::Refused, UNROUTABLE, None)));
            }
            AttemptOutcome::Refused { text, error } => {
                return Some(Err(self.final_error(PublishErrorKind::Refused, text, Some(error))));
            }
            AttemptOutcome::TooLarge => return Some(Err(self.final_error(PublishErrorKind::Refused, TOO_LARGE, None))),
            AttemptOutcome::Unconnected { text, error: Some(error) } if is_final(&error) => {
                // A wrong password must not use up the attempts of an outbox message.
                return Some(Err(self.final_error(PublishErrorKind::Unsent, &text, Some(error))));
            }
            // The attempt before shows more than one that was cut short.
            AttemptOutcome::Unconnected { error: None, .. } if self.has_attempts() => return None,
            AttemptOutcome::Unconnected { text, error } => (text.into(), error, false),
            AttemptOutcome::Failed(PublishFailure::Nacked) => (
                "the broker rejected the message for now, for example because the queue is full or its node is down"
                    .into(),
                None,
                false,
            ),
            AttemptOutcome::Failed(PublishFailure::QueueDown(error)) => {
                ("the broker returned the message, because the node of its queue is down".into(), error, false)
            }
            AttemptOutcome::Failed(PublishFailure::Broken { error, .. }) if is_final(&error) => {
                let text = "the broker refuses the message; the cause shows what is missing";
                return Some(Err(self.final_error(PublishErrorKind::Refused, text, Some(error))));
            }
            AttemptOutcome::Failed(PublishFailure::Broken { error, unsent }) => {
                (CONNECTION_FAILED.into(), Some(error), !unsent)
            }
            AttemptOutcome::TimedOut { sent } => ("the broker did not respond in time".into(), None, sent),
            AttemptOutcome::Blocked { sent } => (BLOCKED.into(), None, sent),
        };
        self.may_be_stored |= may_be_stored;
        (self.text, self.last_error) = (text, error);
        None
    }

    /// Creates the state after a failed batch. The cause may be another message of the batch.
    pub(super) fn after_batch(sent: bool, error: Option<lapin::Error>) -> Self {
        Self { may_be_stored: sent, last_error: error, text: "not all messages of the batch were confirmed".into() }
    }

    /// Returns whether there was an attempt.
    pub(super) fn has_attempts(&self) -> bool {
        !self.text.is_empty()
    }

    /// Returns the error text of the last attempt.
    pub(super) fn last_text(&self) -> &str {
        &self.text
    }

    /// Returns the error for a message without further attempts.
    pub(super) fn into_error(self) -> PublishError {
        let kind = if self.may_be_stored { PublishErrorKind::Unconfirmed } else { PublishErrorKind::Unsent };
        let text = if self.text.is_empty() { "no channel was free in time; raise in_flight" } else { &self.text };
        publish_error(kind, text, self.last_error)
    }

    /// Returns the error of a final outcome. The outcome shows nothing about earlier attempts without a response.
    fn final_error(&self, kind: PublishErrorKind, text: &str, error: Option<lapin::Error>) -> PublishError {
        publish_error(if self.may_be_stored { PublishErrorKind::Unconfirmed } else { kind }, text, error)
    }
}

/// The error text of a message whose headers are too large.
const TOO_LARGE: &str = "headers: they exceed the broker's frame_max; send less in headers, and more in the body";
/// The error text during an alarm of the broker.
const BLOCKED: &str = "the broker blocks publishers because its memory or disk is short; free it";
/// The error text of a message that the broker has returned.
const UNROUTABLE: &str = "unroutable: no queue is bound for the message; declare the queue, or bind one";

fn publish_error(kind: PublishErrorKind, text: &str, cause: Option<lapin::Error>) -> PublishError {
    let error = PublishError::new(kind, text);
    match cause {
        Some(cause) => error.with_cause(cause),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPSoftError};

    use super::*;

    fn kind(result: Option<Result<(), PublishError>>) -> Option<PublishErrorKind> {
        result.and_then(Result::err).map(|error| error.kind())
    }

    #[test]
    fn a_final_outcome_shows_nothing_about_an_earlier_attempt_without_a_response() {
        let unroutable = || AttemptOutcome::Failed(PublishFailure::Unroutable);
        let mut known = KnownState::default();
        assert!(known.add(AttemptOutcome::Failed(PublishFailure::Nacked)).is_none());
        assert_eq!(kind(known.add(unroutable())), Some(PublishErrorKind::Refused));
        assert!(known.add(AttemptOutcome::TimedOut { sent: true }).is_none());
        assert_eq!(kind(known.add(unroutable())), Some(PublishErrorKind::Unconfirmed));
        assert_eq!(known.into_error().kind(), PublishErrorKind::Unconfirmed);
    }

    #[test]
    fn a_refused_connection_after_an_unanswered_attempt_leaves_the_message_unconfirmed() {
        let no_access = AMQPError::new(AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED), "no access".into());
        let refused = || AttemptOutcome::Unconnected {
            text: String::new(),
            error: Some(lapin::ErrorKind::ProtocolError(no_access.clone()).into()),
        };
        assert_eq!(kind(KnownState::default().add(refused())), Some(PublishErrorKind::Unsent));
        let mut known = KnownState::default();
        assert!(known.add(AttemptOutcome::TimedOut { sent: true }).is_none());
        assert_eq!(kind(known.add(refused())), Some(PublishErrorKind::Unconfirmed));
    }

    #[test]
    fn a_message_that_was_never_sent_or_was_returned_is_known_not_to_be_stored() {
        let mut known = KnownState::default();
        assert!(known.add(AttemptOutcome::TimedOut { sent: false }).is_none());
        assert!(known.add(AttemptOutcome::Failed(PublishFailure::QueueDown(None))).is_none());
        assert_eq!(known.into_error().kind(), PublishErrorKind::Unsent);
    }

    #[test]
    fn a_message_that_was_sent_over_a_broken_connection_or_in_a_batch_may_be_stored() {
        for (unsent, expected) in [(true, PublishErrorKind::Unsent), (false, PublishErrorKind::Unconfirmed)] {
            let mut known = KnownState::default();
            let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset).into();
            assert!(known.add(AttemptOutcome::Failed(PublishFailure::Broken { error, unsent })).is_none());
            assert_eq!(known.into_error().kind(), expected);
            let batch = KnownState::after_batch(!unsent, None);
            assert!(batch.has_attempts());
            assert_eq!(batch.into_error().kind(), expected);
        }
    }
}
