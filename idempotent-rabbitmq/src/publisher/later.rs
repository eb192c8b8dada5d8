//! Publishing messages that are delivered later.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Clock, SystemClock, Timestamp};
use idempotent_mq::OutboundMessage;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use tokio::time::Instant;

use super::attempt::{Attempt, End, Knowledge};
use super::outbox::route;
use super::{Inner, PublishError, RabbitPublisher};
use crate::confirm::{Confirming, Unsent};
use crate::delays::Path;
use crate::error::{is_final, is_not_found};
use crate::field::table;
use crate::{DelayTopology, RabbitMessage, Route};

/// The time before which a message must not be delivered.
#[derive(Debug)]
pub(super) struct Due(Instant);

impl Due {
    fn after(delay: Duration, delays: &DelayTopology) -> Result<Self, PublishError> {
        let longest = delays.longest();
        match Instant::now().checked_add(delay).filter(|_| delay <= longest) {
            Some(due) => Ok(Self(due)),
            None if delays.is_plugin() => Err(PublishError::refused(
                "the plugin for delays takes up to 49 days: deliver it sooner, or build the publisher with \
                 DelayTopology::quorum(), which takes up to 13 years",
            )),
            None => Err(PublishError::refused("a delay is longer than 13 years: publish the message later")),
        }
    }

    /// Returns the way for what is left of the delay, if anything is.
    pub(super) fn path(&self, delays: &DelayTopology, to: &Route) -> Option<Path> {
        let left = self.0.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| delays.path(left, to))
    }
}

impl RabbitPublisher {
    /// Publishes a message that the broker delivers to its route after this delay, never earlier and at most 100 ms later
    /// than an idle broker would deliver an immediate message. Returns once the broker has confirmed that it keeps the
    /// message. The message waits in queues of the [`DelayTopology`] and survives a restart of the broker.
    ///
    /// The queue or exchange of the route must exist now, and is bound to the topology. An exchange routes the message when its
    /// time has come, by the bindings that it has then. Nothing calls a delayed message off: let the handler check whether it
    /// is still wanted.
    ///
    /// A delay of zero is an immediate [`publish`](Self::publish).
    ///
    /// # Errors
    /// As [`publish`](Self::publish). [`Refused`](super::PublishErrorKind::Refused) are a delay above 13 years (49 days for the
    /// plugin), a message that [expires](RabbitMessage::expires_after), a missing exchange, and a broker that cannot
    /// declare the topology. [`Unroutable`](super::PublishErrorKind::Unroutable) is a missing queue.
    ///
    /// # Cancellation
    /// As [`publish`](Self::publish).
    pub async fn publish_after(
        &self,
        to: &Route,
        message: &RabbitMessage,
        delay: Duration,
    ) -> Result<(), PublishError> {
        let due = Due::after(delay, &self.0.delays)?;
        // Its time begins with its turn.
        let _place = self.0.places.acquire().await;
        self.publish_due(Knowledge::default(), to, message, due, Instant::now() + self.0.give_up_after).await
    }

    /// Publishes a message that the broker delivers to its route at this time by this process's clock, or right away if that
    /// time has passed. Otherwise as [`publish_after`](Self::publish_after).
    ///
    /// # Errors
    /// As [`publish_after`](Self::publish_after).
    ///
    /// # Cancellation
    /// As [`publish_after`](Self::publish_after).
    pub async fn publish_at(&self, to: &Route, message: &RabbitMessage, at: Timestamp) -> Result<(), PublishError> {
        self.publish_after(to, message, at - SystemClock::new().wall()).await
    }

    /// Publishes a message of an outbox. Needs a place.
    pub(super) async fn publish_outbound(
        &self,
        known: Knowledge,
        message: &OutboundMessage,
        outgoing: &RabbitMessage,
        end: Instant,
    ) -> Result<(), PublishError> {
        let to = route(&message.topic);
        let Some(at) = message.deliver_at else { return self.publish_from(known, &to, outgoing, None, end).await };
        let due = Due::after(at - SystemClock::new().wall(), &self.0.delays)?;
        self.publish_due(known, &to, outgoing, due, end).await
    }

    async fn publish_due(
        &self,
        known: Knowledge,
        to: &Route,
        message: &RabbitMessage,
        due: Due,
        end: Instant,
    ) -> Result<(), PublishError> {
        if message.expires() {
            return Err(PublishError::refused(
                "a delayed message expires: the broker would deliver it as soon as it has expired, leave out \
                 expires_after()",
            ));
        }
        self.publish_from(known, to, message, Some(due), end).await
    }
}

impl Inner {
    /// Tries once; and once more where the broker lacks something that an earlier message has declared.
    pub(super) async fn attempt_twice(
        &self,
        to: &Route,
        path: Option<&Path>,
        properties: &BasicProperties,
        body: &[u8],
        end: Instant,
    ) -> End {
        let attempt = || {
            let properties = properties.clone();
            let properties = path.map_or_else(|| properties.clone(), |path| steered(&properties, path));
            self.attempt(Attempt { to, path, properties, body }, end)
        };
        let told = attempt().await;
        let is_missing = match &told {
            End::Unsent(Unsent::Unroutable) => true,
            End::Unsent(Unsent::Broken { error, .. }) => is_not_found(error),
            _ => false,
        };
        if is_missing && path.is_some() && self.connection.declared.forget() { attempt().await } else { told }
    }

    /// Sees to all that the message passes through, and to its destination.
    pub(super) async fn prepare(&self, connection: &Arc<Confirming>, path: &Path) -> Result<(), End> {
        if self.delays.is_plugin() {
            self.find_plugin(path).await?;
        }
        let declare = async |channel: &lapin::Channel| self.connection.declared.declare(path, channel).await;
        connection.prepare(declare).await.map_err(|error| {
            refused("the exchanges and queues for delays cannot be declared; the cause says what differs", error)
        })?;
        let bind = async |channel: &lapin::Channel| path.bind(channel).await;
        connection.prepare(bind).await.map_err(|error| match is_not_found(&error) && path.is_to_queue() {
            true => End::Unsent(Unsent::Unroutable),
            false => refused("the destination cannot be bound to the delays; the cause says what is missing", error),
        })
    }

    /// Declares the plugin's exchange by a connection of its own: a broker without the plugin closes that connection, and
    /// with it all that is on its way.
    async fn find_plugin(&self, path: &Path) -> Result<(), End> {
        if self.connection.declared.has_plugin() {
            return Ok(());
        }
        let declare = async {
            let connection = self.connection.address.connect("idempotent: delays").await?;
            path.declare_plugin(&connection.create_channel().await?).await
        };
        declare.await.map_err(|error| match is_unknown_type(&error) {
            true => End::Impossible {
                text: "the broker lacks the plugin rabbitmq_delayed_message_exchange: enable it there, or build the \
                       publisher with DelayTopology::quorum(), which needs no plugin",
                error,
            },
            false => refused("the exchange for delays cannot be declared; the cause says what differs", error),
        })?;
        self.connection.declared.note_plugin();
        Ok(())
    }
}

fn refused(text: &'static str, error: lapin::Error) -> End {
    if is_final(&error) { End::Impossible { text, error } } else { End::Unsent(Unsent::Broken { error, before: true }) }
}

/// An exchange of an unknown type is a `COMMAND_INVALID`.
fn is_unknown_type(error: &lapin::Error) -> bool {
    matches!(error.kind(), lapin::ErrorKind::ProtocolError(told) if told.get_id() == 503)
}

/// The message's properties, with the headers of its way. The broker drops a message that returns to a queue which its
/// `x-death` names, and a producer may have copied that header from another message.
fn steered(properties: &BasicProperties, path: &Path) -> BasicProperties {
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
