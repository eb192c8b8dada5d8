//! One try to publish, and the results of several tries.
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use lapin::BasicProperties;
use lapin::options::BasicPublishOptions;
use tokio::time::{Instant, timeout};

use super::{PublishError, PublishErrorKind, PublisherInner};
use crate::Route;
use crate::confirmed_publisher::PublishFailure;
use crate::delay_queues::DelayPath;
use crate::error::is_final;

pub(super) struct PublishAttempt<'a> {
    pub(super) to: &'a Route,
    /// The path through the delay levels, or `None` for a message that is due.
    pub(super) path: Option<&'a DelayPath>,
    pub(super) properties: BasicProperties,
    pub(super) body: &'a [u8],
}

/// The result of a try.
pub(super) enum AttemptResult {
    Confirmed,
    PublishFailure(PublishFailure),
    /// The broker cannot accept the message on this path.
    Impossible {
        text: &'static str,
        error: lapin::Error,
    },
    /// The publisher has no connection.
    Unconnected(lapin::Error),
    /// The broker did not answer in time.
    Silent {
        sent: bool,
    },
}

impl PublisherInner {
    pub(super) async fn attempt(&self, attempt: PublishAttempt<'_>, end: Instant) -> AttemptResult {
        let left = || end.saturating_duration_since(Instant::now());
        let connection = match timeout(left(), self.connection.get()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return AttemptResult::Unconnected(error),
            Err(_) => return AttemptResult::Silent { sent: false },
        };
        let PublishAttempt { to, path, properties, body } = attempt;
        if let Some(path) = path {
            match timeout(left(), self.prepare(&connection, path)).await {
                Ok(Ok(())) => {}
                Ok(Err(end)) => return end,
                Err(_) => return AttemptResult::Silent { sent: false },
            }
        }
        let exchange = path.map_or_else(|| to.exchange.clone(), DelayPath::entry);
        let mandatory = path.is_none_or(DelayPath::is_routed);
        let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
        let sent = AtomicBool::new(false);
        let prepare = async |_: &lapin::Channel| {
            sent.store(true, SeqCst);
            Ok(())
        };
        let published = connection.publish_with(options, (&exchange, &to.key), properties, body, prepare);
        let end = match timeout(self.confirm_within.min(left()), published).await {
            Ok(Ok(())) => return AttemptResult::Confirmed,
            Ok(Err(unsent)) => AttemptResult::PublishFailure(unsent),
            Err(_) => AttemptResult::Silent { sent: sent.load(SeqCst) },
        };
        if matches!(end, AttemptResult::Silent { .. }) {
            self.connection.discard(&connection).await;
        }
        end
    }
}

/// The known state of a message after several tries.
#[derive(Default)]
pub(super) struct PublishState {
    /// True if a try without an answer may have delivered the message.
    unsure: bool,
    last: Option<lapin::Error>,
    text: &'static str,
}

impl PublishState {
    /// Adds the result of a try. Returns the answer if another try would not change it.
    pub(super) fn learn(&mut self, end: AttemptResult) -> Option<Result<(), PublishError>> {
        let (text, error, sure) = match end {
            AttemptResult::Confirmed => return Some(Ok(())),
            AttemptResult::PublishFailure(PublishFailure::Unroutable) => {
                return Some(Err(self.definite(
                    PublishErrorKind::Unroutable,
                    "no queue is bound for the message",
                    None,
                )));
            }
            AttemptResult::Impossible { text, error } => {
                return Some(Err(self.definite(PublishErrorKind::Refused, text, Some(error))));
            }
            AttemptResult::Unconnected(error) if is_final(&error) => {
                let refused = "the broker refused the connection";
                let answer = self.definite(PublishErrorKind::Refused, refused, Some(error));
                return Some(Err(answer.without_connection()));
            }
            AttemptResult::Unconnected(error) => ("the connection failed", Some(error), true),
            AttemptResult::PublishFailure(PublishFailure::Nacked) => {
                ("the broker could not store the message", None, true)
            }
            AttemptResult::PublishFailure(PublishFailure::Broken { error, .. }) if is_final(&error) => {
                return Some(Err(self.definite(
                    PublishErrorKind::Refused,
                    "the broker refused the message",
                    Some(error),
                )));
            }
            AttemptResult::PublishFailure(PublishFailure::Broken { error, before }) => {
                ("the connection failed", Some(error), before)
            }
            AttemptResult::Silent { sent } => ("no answer in time", None, !sent),
        };
        self.unsure |= !sure;
        (self.text, self.last) = (text, error);
        None
    }

    /// Creates the state after a batch that failed: the refusal of one message says nothing about the others.
    pub(super) fn shared(sent: bool, error: Option<lapin::Error>) -> Self {
        Self { unsure: sent, last: error, text: "not all messages of the batch were confirmed" }
    }

    /// Creates the state after a try that the broker refused temporarily.
    pub(super) fn nacked() -> Self {
        let mut known = Self::default();
        let _: Option<_> = known.learn(AttemptResult::PublishFailure(PublishFailure::Nacked));
        known
    }

    pub(super) fn is_some(&self) -> bool {
        !self.text.is_empty()
    }

    pub(super) fn last(&self) -> &'static str {
        self.text
    }

    pub(super) fn given_up(self) -> PublishError {
        let kind = if self.unsure { PublishErrorKind::Unconfirmed } else { PublishErrorKind::NotSent };
        let text = if self.text.is_empty() { "no channel became free in time" } else { self.text };
        PublishError::new(kind, text, self.last)
    }

    /// Creates the error of a definite answer, which says nothing about earlier tries.
    fn definite(&self, kind: PublishErrorKind, text: &'static str, error: Option<lapin::Error>) -> PublishError {
        PublishError::new(if self.unsure { PublishErrorKind::Unconfirmed } else { kind }, text, error)
    }
}

#[cfg(test)]
mod tests {
    use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPSoftError};

    use super::*;

    fn kind(answer: Option<Result<(), PublishError>>) -> Option<PublishErrorKind> {
        answer.and_then(Result::err).map(|error| error.kind())
    }

    #[test]
    fn a_word_on_the_last_try_is_none_on_a_try_that_nobody_answered() {
        let mut known = PublishState::default();
        assert!(known.learn(AttemptResult::PublishFailure(PublishFailure::Nacked)).is_none());
        assert_eq!(
            kind(known.learn(AttemptResult::PublishFailure(PublishFailure::Unroutable))),
            Some(PublishErrorKind::Unroutable)
        );
        assert!(known.learn(AttemptResult::Silent { sent: true }).is_none());
        assert_eq!(
            kind(known.learn(AttemptResult::PublishFailure(PublishFailure::Unroutable))),
            Some(PublishErrorKind::Unconfirmed)
        );
        assert_eq!(known.given_up().kind(), PublishErrorKind::Unconfirmed);
    }

    #[test]
    fn a_refused_connection_after_an_unanswered_try_leaves_the_message_unconfirmed() {
        let no_access = AMQPError::new(AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED), "no access".into());
        let refused = || AttemptResult::Unconnected(lapin::ErrorKind::ProtocolError(no_access.clone()).into());
        assert_eq!(kind(PublishState::default().learn(refused())), Some(PublishErrorKind::Refused));
        let mut known = PublishState::default();
        assert!(known.learn(AttemptResult::Silent { sent: true }).is_none());
        assert_eq!(kind(known.learn(refused())), Some(PublishErrorKind::Unconfirmed));
    }

    #[test]
    fn what_never_left_this_process_is_known_not_to_have_arrived() {
        let mut known = PublishState::default();
        assert!(known.learn(AttemptResult::Silent { sent: false }).is_none());
        assert_eq!(known.given_up().kind(), PublishErrorKind::NotSent);
    }
}
