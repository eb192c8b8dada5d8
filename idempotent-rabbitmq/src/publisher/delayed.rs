//! Publishing of delayed messages.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Clock, SystemClock, Timestamp};
use idempotent_mq::OutboundMessage;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use tokio::time::Instant;

use super::attempt::{AttemptResult, PublishAttempt, PublishState};
use super::outbox::route;
use super::{PublishError, PublisherInner, RabbitPublisher};
use crate::confirmed_publisher::{ConfirmedPublisher, PublishFailure};
use crate::delay_queues::DelayPath;
use crate::error::{is_final, is_not_found};
use crate::field::table;
use crate::{DelayTopology, RabbitMessage, Route};

/// The earliest time of delivery.
#[derive(Debug)]
pub(super) struct DeliveryTime(Instant);

impl DeliveryTime {
    fn after(delay: Duration, delays: &DelayTopology) -> Result<Self, PublishError> {
        let longest = delays.longest();
        match Instant::now().checked_add(delay).filter(|_| delay <= longest) {
            Some(due) => Ok(Self(due)),
            None if delays.is_plugin() => Err(PublishError::refused(
                "the delay exceeds 49 days, the limit of the plugin: use a shorter delay, or build the publisher with \
                 DelayTopology::quorum(), which takes up to 13 years",
            )),
            None => Err(PublishError::refused("a delay is longer than 13 years: publish the message later")),
        }
    }

    /// Returns the path for the rest of the delay, or `None` if the message is due.
    pub(super) fn path(&self, delays: &DelayTopology, to: &Route) -> Option<DelayPath> {
        let left = self.0.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| delays.path(left, to))
    }
}

impl RabbitPublisher {
    /// Publishes a message that the broker delivers to its route after this delay. The message is never early, and at
    /// most 100 ms later than an immediate message on an idle broker. Returns after the broker has confirmed the
    /// message. The message waits in queues of the [`DelayTopology`] and survives a restart of the broker.
    ///
    /// The queue or exchange of the route must exist, and is bound to the topology. An exchange routes the due message
    /// by the bindings that it has then. A delayed message cannot be cancelled: let the handler check whether the work
    /// is still wanted.
    ///
    /// A delay of zero is an immediate [`publish`](Self::publish).
    ///
    /// # Errors
    /// Same as [`publish`](Self::publish). [`Refused`](super::PublishErrorKind::Refused): a delay above 13 years (49
    /// days for the plugin), a message that [expires](RabbitMessage::expires_after), a missing exchange, or a broker
    /// that cannot declare the topology. [`Unroutable`](super::PublishErrorKind::Unroutable): a missing queue.
    ///
    /// # Cancellation
    /// Same as [`publish`](Self::publish).
    pub async fn publish_after(
        &self,
        to: &Route,
        message: &RabbitMessage,
        delay: Duration,
    ) -> Result<(), PublishError> {
        let due = DeliveryTime::after(delay, &self.0.delays)?;
        // The time limit begins when the call has a channel.
        let _place = self.0.places.acquire().await;
        self.publish_due(PublishState::default(), to, message, due, Instant::now() + self.0.give_up_after).await
    }

    /// Publishes a message that the broker delivers to its route at this time by the clock of this process, or
    /// immediately if the time has passed. See [`publish_after`](Self::publish_after).
    ///
    /// # Errors
    /// Same as [`publish_after`](Self::publish_after).
    ///
    /// # Cancellation
    /// Same as [`publish_after`](Self::publish_after).
    pub async fn publish_at(&self, to: &Route, message: &RabbitMessage, at: Timestamp) -> Result<(), PublishError> {
        self.publish_after(to, message, at - SystemClock::new().wall()).await
    }

    /// Publishes a message of an outbox. The caller holds a place.
    pub(super) async fn publish_outbound(
        &self,
        known: PublishState,
        message: &OutboundMessage,
        outgoing: &RabbitMessage,
        end: Instant,
    ) -> Result<(), PublishError> {
        let to = route(&message.topic);
        let Some(at) = message.deliver_at else { return self.publish_from(known, &to, outgoing, None, end).await };
        let due = DeliveryTime::after(at - SystemClock::new().wall(), &self.0.delays)?;
        self.publish_due(known, &to, outgoing, due, end).await
    }

    async fn publish_due(
        &self,
        known: PublishState,
        to: &Route,
        message: &RabbitMessage,
        due: DeliveryTime,
        end: Instant,
    ) -> Result<(), PublishError> {
        if message.expires() {
            return Err(PublishError::refused(
                "a delayed message expires: the broker would deliver the message when it expires; leave out \
                 expires_after()",
            ));
        }
        self.publish_from(known, to, message, Some(due), end).await
    }
}

impl PublisherInner {
    /// Tries once, and a second time if an object that an earlier message declared is missing.
    pub(super) async fn attempt_twice(
        &self,
        to: &Route,
        path: Option<&DelayPath>,
        properties: &BasicProperties,
        body: &[u8],
        end: Instant,
    ) -> AttemptResult {
        let attempt = || {
            let properties = properties.clone();
            let properties = path.map_or_else(|| properties.clone(), |path| steered(&properties, path));
            self.attempt(PublishAttempt { to, path, properties, body }, end)
        };
        let told = attempt().await;
        let is_missing = match &told {
            AttemptResult::PublishFailure(PublishFailure::Unroutable) => true,
            AttemptResult::PublishFailure(PublishFailure::Broken { error, .. }) => is_not_found(error),
            _ => false,
        };
        if is_missing && path.is_some() && self.connection.declared.forget() { attempt().await } else { told }
    }

    /// Declares all objects on the path of the message, and binds the destination.
    pub(super) async fn prepare(
        &self,
        connection: &Arc<ConfirmedPublisher>,
        path: &DelayPath,
    ) -> Result<(), AttemptResult> {
        if self.delays.is_plugin() {
            self.find_plugin(path).await?;
        }
        let declare = async |channel: &lapin::Channel| self.connection.declared.declare(path, channel).await;
        connection.prepare(declare).await.map_err(|error| {
            refused("cannot declare the exchanges and queues for delays; the cause names the difference", error)
        })?;
        let bind = async |channel: &lapin::Channel| path.bind(channel).await;
        connection.prepare(bind).await.map_err(|error| match is_not_found(&error) && path.is_to_queue() {
            true => AttemptResult::PublishFailure(PublishFailure::Unroutable),
            false => refused(
                "cannot bind the destination to the exchange for delays; the cause names the missing object or right",
                error,
            ),
        })
    }

    /// Declares the plugin's exchange on a connection of its own: a broker without the plugin closes the connection,
    /// with all messages in flight.
    async fn find_plugin(&self, path: &DelayPath) -> Result<(), AttemptResult> {
        if self.connection.declared.has_plugin() {
            return Ok(());
        }
        let declare = async {
            let connection = self.connection.address.connect("idempotent: delays").await?;
            path.declare_plugin(&connection.create_channel().await?).await
        };
        declare.await.map_err(|error| match is_unknown_type(&error) {
            true => AttemptResult::Impossible {
                text: "the broker lacks the plugin rabbitmq_delayed_message_exchange: enable it there, or build the \
                       publisher with DelayTopology::quorum(), which needs no plugin",
                error,
            },
            false => refused("cannot declare the exchange for delays; the cause names the difference", error),
        })?;
        self.connection.declared.note_plugin();
        Ok(())
    }
}

fn refused(text: &'static str, error: lapin::Error) -> AttemptResult {
    if is_final(&error) {
        AttemptResult::Impossible { text, error }
    } else {
        AttemptResult::PublishFailure(PublishFailure::Broken { error, before: true })
    }
}

/// Returns whether the error is `COMMAND_INVALID`, as for an exchange of an unknown type.
fn is_unknown_type(error: &lapin::Error) -> bool {
    matches!(error.kind(), lapin::ErrorKind::ProtocolError(told) if told.get_id() == 503)
}

/// Returns the properties of the message with the headers of its path. The broker drops a message that returns to a
/// queue in its `x-death`, and a producer may have copied that header from another message.
fn steered(properties: &BasicProperties, path: &DelayPath) -> BasicProperties {
    let mut headers = properties.headers().as_ref().map(|headers| headers.inner().clone()).unwrap_or_default();
    headers.remove("x-death");
    headers.extend(
        table(&path.headers())
            .inner()
            .iter()
            .map(|(name, value): (&ShortString, &AMQPValue)| (name.clone(), value.clone())),
    );
    properties.clone().with_headers(FieldTable::from(headers))
}
