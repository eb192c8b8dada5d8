//! Publishing messages that the broker delivers later, through delay queues.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Clock, SystemClock, Timestamp};
use idempotent_mq::{OutboundMessage, PublishError, Published};

use super::RabbitPublisher;
use super::due_time::DueTime;
use super::outcome::AttemptOutcome;
use super::state::PublisherState;
use crate::delay_queues::DelayPath;
use crate::error::{is_final, is_not_found};
use crate::message::{EncodedMessage, RabbitProperties, refused};
use crate::publish_connection::{PublishConnection, PublishFailure};

impl RabbitPublisher {
    /// Publishes a message that the broker delivers to its route after this delay, in place of the message's
    /// [`deliver_at`](OutboundMessage::deliver_at). Returns when the broker has stored the message, which waits in
    /// queues of the [`DelayTopology`](crate::DelayTopology) and survives a restart of the broker. A delay of zero is an
    /// immediate [`publish`](Self::publish).
    ///
    /// The message is never early. On an idle broker it is at most 100 ms late.
    ///
    /// The queue or exchange of the route must exist, and the publisher binds it to the topology. An exchange routes
    /// the message by the bindings at the time of delivery. A delayed message cannot be cancelled. Its handler must
    /// check whether the work is still wanted.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish). The following are [`Refused`](idempotent_mq::PublishErrorKind::Refused):
    /// a delay of more than 13 years (49 days with the plugin), a message that
    /// [expires](RabbitProperties::expires_after), a missing queue or exchange, and a broker that cannot declare the
    /// topology.
    ///
    /// # Cancellation
    /// See [`publish`](Self::publish).
    pub async fn publish_after(&self, message: &OutboundMessage, delay: Duration) -> Result<Published, PublishError> {
        let due = Some(DueTime::after(delay, &self.0.delays)?);
        self.publish_encoded(EncodedMessage::new(message, &RabbitProperties::default())?, due).await
    }

    /// Returns the due time of a message, or `None` for immediate delivery.
    pub(super) fn due_time(&self, message: &OutboundMessage) -> Result<Option<DueTime>, PublishError> {
        message.deliver_at.map(|at| DueTime::after(remaining(at), &self.0.delays)).transpose()
    }
}

/// Checks that a delayed message does not expire.
pub(super) fn check_expiry(message: &EncodedMessage<'_>, due: Option<&DueTime>) -> Result<(), PublishError> {
    if due.is_some() && message.expires() {
        return Err(refused(
            "expires_after: not possible for a delayed message, which the broker would deliver at its expiry; remove \
             expires_after()",
        ));
    }
    Ok(())
}

impl PublisherState {
    /// Declares the exchanges and queues of a path, and binds its destination.
    pub(super) async fn prepare(
        &self,
        connection: &Arc<PublishConnection>,
        path: &DelayPath,
    ) -> Result<(), AttemptOutcome> {
        if self.delays.is_plugin() {
            self.declare_plugin(path).await?;
        }
        let declare = async |channel: &lapin::Channel| self.connection.declared.declare(path, channel).await;
        connection.prepare(declare).await.map_err(|error| {
            let text = "declaring the exchanges and queues for delays failed; the cause shows what differs";
            declaration_failed(text, error)
        })?;
        let bind = async |channel: &lapin::Channel| path.bind(channel).await;
        connection.prepare(bind).await.map_err(|error| match is_not_found(&error) && path.is_to_queue() {
            true => AttemptOutcome::Failed(PublishFailure::Unroutable),
            false => declaration_failed(
                "binding the destination to the exchange for delays failed; the cause shows what is missing",
                error,
            ),
        })
    }

    /// Declares the plugin's exchange over a separate connection. RabbitMQ 3 without the plugin closes that connection,
    /// which must not affect other messages.
    async fn declare_plugin(&self, path: &DelayPath) -> Result<(), AttemptOutcome> {
        if self.connection.declared.has_plugin() {
            return Ok(());
        }
        let declare = async {
            let connection = self.connection.url.connect("idempotent: delays").await?;
            path.declare_plugin(&connection.create_channel().await?).await
        };
        declare.await.map_err(|error| match is_unknown_type(&error) {
            true => AttemptOutcome::Refused {
                text: "delay: the broker has no plugin rabbitmq_delayed_message_exchange; enable the plugin, or use \
                       DelayTopology::quorum(), which needs no plugin",
                error,
            },
            false => {
                let text = "declaring the exchange for delays failed; the cause shows what differs";
                declaration_failed(text, error)
            }
        })?;
        self.connection.declared.note_plugin();
        Ok(())
    }
}

fn declaration_failed(text: &'static str, error: lapin::Error) -> AttemptOutcome {
    match is_final(&error) {
        true => AttemptOutcome::Refused { text, error },
        false => AttemptOutcome::Failed(PublishFailure::Broken { error, unsent: true }),
    }
}

/// Returns whether the type of an exchange is unknown. RabbitMQ 3 reports this as `COMMAND_INVALID`, and RabbitMQ 4.3 as
/// `PRECONDITION_FAILED`.
fn is_unknown_type(error: &lapin::Error) -> bool {
    let lapin::ErrorKind::ProtocolError(refused) = error.kind() else { return false };
    refused.get_message().as_str().contains("unknown exchange type")
}

/// Returns the time until `at`, or zero for a past time.
fn remaining(at: Timestamp) -> Duration {
    at - SystemClock::new().wall()
}
