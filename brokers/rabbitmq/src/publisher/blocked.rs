//! A check for an alarm of the broker.
use idempotent_core::{Entropy, OsEntropy};
use idempotent_mq::{PublishError, PublishErrorKind};
use lapin::BasicProperties;
use tokio::time::timeout;

use super::RabbitPublisher;
use crate::publish_connection::PublishFailure;

const LOOKING: &str = "looking for an alarm of the broker";

impl RabbitPublisher {
    /// Returns the broker's reason for blocking publishers, such as `low on memory`, or `None` if the broker accepts messages.
    ///
    /// The broker reports an alarm only to a connection that publishes. This method publishes to a queue with a random name, which
    /// does not exist, so the broker returns the message and stores nothing. The user needs the right to write to the default
    /// exchange.
    ///
    /// # Errors
    /// The broker cannot be reached, refuses the message, or does not respond within the time for a confirm.
    ///
    /// # Cancellation
    /// Nothing is stored.
    pub async fn blocked(&self) -> Result<Option<String>, PublishError> {
        let failed = |text: &str| PublishError::new(PublishErrorKind::Unsent, format!("{LOOKING}: {text}"));
        let bits = OsEntropy.bits().map_err(|error| failed(&error.to_string()))?;
        let (name, shared) = (format!("idempotent.none.{bits:x}"), &self.0.connection);
        let look = async {
            let connection =
                shared.get().await.map_err(|error| failed(&shared.url.explain(&error)).with_cause(error))?;
            let sent = connection.publish(("", &name), BasicProperties::default(), b"-", async |_| Ok(()));
            let refused = "the connection failed, or the broker refuses the message; see the cause";
            tokio::select! {
                reason = shared.alarm.raised() => Ok(Some(reason.to_string())),
                // A broker with an alarm reads no body, so it does not return this message.
                returned = sent => match returned {
                    Err(PublishFailure::Broken { error, .. }) => Err(failed(refused).with_cause(error)),
                    _ => Ok(None),
                },
            }
        };
        let within = self.0.confirm_within;
        timeout(within, look).await.unwrap_or_else(|_| Err(failed(&format!("no answer within {within:?}"))))
    }
}
