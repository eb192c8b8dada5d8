//! One try, and what is known after some.
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use lapin::BasicProperties;
use lapin::options::BasicPublishOptions;
use tokio::time::{Instant, timeout};

use super::{Inner, PublishError, PublishErrorKind};
use crate::Route;
use crate::confirm::Unsent;
use crate::delays::Path;
use crate::error::is_final;

pub(super) struct Attempt<'a> {
    pub(super) to: &'a Route,
    /// The way through the delays; `None` for a message that is due.
    pub(super) path: Option<&'a Path>,
    pub(super) properties: BasicProperties,
    pub(super) body: &'a [u8],
}

/// How a try ended.
pub(super) enum End {
    Confirmed,
    Unsent(Unsent),
    /// The broker cannot take a message this way.
    Impossible {
        text: &'static str,
        error: lapin::Error,
    },
    /// There is no connection.
    Unconnected(lapin::Error),
    /// No answer in time.
    Silent {
        sent: bool,
    },
}

impl Inner {
    pub(super) async fn attempt(&self, attempt: Attempt<'_>, end: Instant) -> End {
        let left = || end.saturating_duration_since(Instant::now());
        let connection = match timeout(left(), self.connection.get()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return End::Unconnected(error),
            Err(_) => return End::Silent { sent: false },
        };
        let Attempt { to, path, properties, body } = attempt;
        if let Some(path) = path {
            match timeout(left(), self.prepare(&connection, path)).await {
                Ok(Ok(())) => {}
                Ok(Err(end)) => return end,
                Err(_) => return End::Silent { sent: false },
            }
        }
        let exchange = path.map_or_else(|| to.exchange.clone(), Path::entry);
        let mandatory = path.is_none_or(Path::is_routed);
        let options = BasicPublishOptions { mandatory, ..BasicPublishOptions::default() };
        let sent = AtomicBool::new(false);
        let prepare = async |_: &lapin::Channel| {
            sent.store(true, SeqCst);
            Ok(())
        };
        let published = connection.publish_with(options, (&exchange, &to.key), properties, body, prepare);
        let end = match timeout(self.confirm_within.min(left()), published).await {
            Ok(Ok(())) => return End::Confirmed,
            Ok(Err(unsent)) => End::Unsent(unsent),
            Err(_) => End::Silent { sent: sent.load(SeqCst) },
        };
        if matches!(end, End::Silent { .. }) {
            self.connection.discard(&connection).await;
        }
        end
    }
}

/// What is known of a message after some tries.
#[derive(Default)]
pub(super) struct Knowledge {
    /// A try that nobody answered may have arrived.
    unsure: bool,
    last: Option<lapin::Error>,
    text: &'static str,
}

impl Knowledge {
    /// The answer, if another try would not change it.
    pub(super) fn learn(&mut self, end: End) -> Option<Result<(), PublishError>> {
        let (text, error, sure) = match end {
            End::Confirmed => return Some(Ok(())),
            End::Unsent(Unsent::Unroutable) => {
                return Some(Err(self.definite(PublishErrorKind::Unroutable, "no queue takes it", None)));
            }
            End::Impossible { text, error } => {
                return Some(Err(self.definite(PublishErrorKind::Refused, text, Some(error))));
            }
            End::Unconnected(error) if is_final(&error) => {
                let refused = "the broker refuses the connection";
                let answer = self.definite(PublishErrorKind::Refused, refused, Some(error));
                return Some(Err(answer.without_connection()));
            }
            End::Unconnected(error) => ("the connection failed", Some(error), true),
            End::Unsent(Unsent::Nacked) => ("the broker could not keep it", None, true),
            End::Unsent(Unsent::Broken { error, .. }) if is_final(&error) => {
                return Some(Err(self.definite(PublishErrorKind::Refused, "the broker refuses it", Some(error))));
            }
            End::Unsent(Unsent::Broken { error, before }) => ("the connection failed", Some(error), before),
            End::Silent { sent } => ("no answer in time", None, !sent),
        };
        self.unsure |= !sure;
        (self.text, self.last) = (text, error);
        None
    }

    /// Of a try that it shared with others: what refused one of them says nothing of the rest.
    pub(super) fn shared(sent: bool, error: Option<lapin::Error>) -> Self {
        Self { unsure: sent, last: error, text: "not all that were sent with it were confirmed" }
    }

    /// Of a try that was not accepted for now.
    pub(super) fn nacked() -> Self {
        let mut known = Self::default();
        let _: Option<_> = known.learn(End::Unsent(Unsent::Nacked));
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
        let text = if self.text.is_empty() { "no turn came in time" } else { self.text };
        PublishError::new(kind, text, self.last)
    }

    /// A word on this try says nothing of those before it.
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
        let mut known = Knowledge::default();
        assert!(known.learn(End::Unsent(Unsent::Nacked)).is_none());
        assert_eq!(kind(known.learn(End::Unsent(Unsent::Unroutable))), Some(PublishErrorKind::Unroutable));
        assert!(known.learn(End::Silent { sent: true }).is_none());
        assert_eq!(kind(known.learn(End::Unsent(Unsent::Unroutable))), Some(PublishErrorKind::Unconfirmed));
        assert_eq!(known.given_up().kind(), PublishErrorKind::Unconfirmed);
    }

    #[test]
    fn a_refused_connection_after_an_unanswered_try_leaves_the_message_unconfirmed() {
        let no_access = AMQPError::new(AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED), "no access".into());
        let refused = || End::Unconnected(lapin::ErrorKind::ProtocolError(no_access.clone()).into());
        assert_eq!(kind(Knowledge::default().learn(refused())), Some(PublishErrorKind::Refused));
        let mut known = Knowledge::default();
        assert!(known.learn(End::Silent { sent: true }).is_none());
        assert_eq!(kind(known.learn(refused())), Some(PublishErrorKind::Unconfirmed));
    }

    #[test]
    fn what_never_left_this_process_is_known_not_to_have_arrived() {
        let mut known = Knowledge::default();
        assert!(known.learn(End::Silent { sent: false }).is_none());
        assert_eq!(known.given_up().kind(), PublishErrorKind::NotSent);
    }
}
