//! One attempt to publish a message.
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use lapin::BasicProperties;
use lapin::options::BasicPublishOptions;
use lapin::types::FieldTable;
use tokio::time::{Instant, timeout};

use super::outcome::AttemptOutcome;
use super::state::PublisherState;
use crate::delay_queues::DelayPath;
use crate::error::is_not_found;
use crate::field_value::field_table;
use crate::message::EncodedMessage;
use crate::options::unanswered;
use crate::publish_connection::PublishFailure;

/// A message that is ready to be sent.
pub(super) struct PreparedMessage<'a> {
    /// The path of a delayed message, or `None` for a message that is due.
    pub(super) path: Option<&'a DelayPath>,
    pub(super) message: &'a EncodedMessage<'a>,
}

impl PublisherState {
    /// Tries to publish a message. If a delayed message fails because an exchange or queue of its path was deleted,
    /// there is a second attempt, which declares the path again.
    pub(super) async fn attempt(&self, message: &PreparedMessage<'_>, end: Instant) -> AttemptOutcome {
        let outcome = self.attempt_once(message, end).await;
        let is_missing = match &outcome {
            AttemptOutcome::Failed(PublishFailure::Unroutable) => true,
            AttemptOutcome::Failed(PublishFailure::Broken { error, .. }) => is_not_found(error),
            _ => false,
        };
        if is_missing && message.path.is_some() && self.connection.declared.clear() {
            self.attempt_once(message, end).await
        } else {
            outcome
        }
    }

    async fn attempt_once(&self, message: &PreparedMessage<'_>, end: Instant) -> AttemptOutcome {
        let left = || end.saturating_duration_since(Instant::now());
        let connection = match timeout(left(), self.connection.get()).await {
            Ok(Ok(connection)) => connection,
            failed => {
                let error = failed.ok().and_then(Result::err);
                let text = self.connection.url.explain(error.as_ref().unwrap_or(&unanswered()));
                return AttemptOutcome::Unconnected { text, error };
            }
        };
        let PreparedMessage { path, message: EncodedMessage { to, properties, body, .. } } = *message;
        if let Some(path) = path {
            match timeout(left(), self.prepare(&connection, path)).await {
                Ok(Ok(())) => {}
                Ok(Err(outcome)) => return outcome,
                Err(_) => return AttemptOutcome::TimedOut { sent: false },
            }
        }
        let properties = path.map_or_else(|| properties.clone(), |path| with_path_headers(properties, path));
        if !connection.limit.fits(&properties, path.map_or(0, DelayPath::added_bytes)) {
            return AttemptOutcome::TooLarge;
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
        match self.confirmed(published, end).await {
            Some(Ok(())) => AttemptOutcome::Confirmed,
            Some(Err(failure)) => AttemptOutcome::Failed(failure),
            None => {
                let (sent, is_blocked) = (sent.load(SeqCst), self.connection.alarm.reason().is_some());
                self.connection.discard(&connection).await;
                if is_blocked { AttemptOutcome::Blocked { sent } } else { AttemptOutcome::TimedOut { sent } }
            }
        }
    }

    /// Waits for a confirm, during an alarm of the broker until `end`: the broker stores the message after the alarm, and
    /// each further attempt would leave another copy.
    pub(super) async fn confirmed<T>(&self, published: impl Future<Output = T>, end: Instant) -> Option<T> {
        let mut published = pin!(published);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match timeout(self.confirm_within.min(left), &mut published).await {
                Ok(result) => return Some(result),
                Err(_) if left > self.confirm_within && self.connection.alarm.reason().is_some() => {}
                Err(_) => return None,
            }
        }
    }
}

/// Adds the headers of the path. `x-death` is removed: a producer may have copied this header from another message, and
/// the broker drops a message that returns to a queue in the header.
fn with_path_headers(properties: &BasicProperties, path: &DelayPath) -> BasicProperties {
    let mut headers = properties.headers().as_ref().map(|headers| headers.inner().clone()).unwrap_or_default();
    headers.remove("x-death");
    let added = field_table(&path.headers());
    headers.extend(added.inner().iter().map(|(name, value)| (name.clone(), value.clone())));
    properties.clone().with_headers(FieldTable::from(headers))
}
