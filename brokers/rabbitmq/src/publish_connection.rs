//! Publishing with confirms.
//!
//! The client assigns a returned message to the next confirm on its channel, while the broker confirms messages
//! together and in any order. With several unconfirmed messages on a channel, the client could therefore report a
//! returned message as stored.
//!
//! A channel has one unconfirmed message at a time, or a batch. The results of a batch are used only after all its
//! messages are confirmed: the broker returns a message before it confirms the message, so by then the ids of all
//! returned messages are known.
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::try_join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use tokio::sync::Semaphore;

use crate::error::{answered, is_final, is_node_down};
use crate::frame_limit::FrameLimit;

/// A connection with channels for publishing.
#[derive(Debug)]
pub(crate) struct PublishConnection {
    connection: Connection,
    /// One permit for each channel in use.
    permits: Semaphore,
    /// Open channels without unconfirmed messages.
    idle: Mutex<Vec<Channel>>,
    /// The limit for the headers of messages.
    pub(crate) limit: FrameLimit,
}

/// A message of a batch on one channel. The ids of a batch differ.
#[derive(Debug)]
pub(crate) struct BatchMessage<'a> {
    pub(crate) exchange: &'a str,
    pub(crate) key: &'a str,
    pub(crate) properties: BasicProperties,
    pub(crate) body: &'a [u8],
}

/// The reason why a message is not confirmed.
#[derive(Clone, Debug)]
pub(crate) enum PublishFailure {
    /// No queue is bound for the message, which the broker has returned.
    Unroutable,
    /// The broker has returned the message, although its queue exists. The error names the node that is down. Without
    /// an error, the queue is available again, or the broker did not respond in time.
    QueueDown(Option<lapin::Error>),
    /// The broker rejected the message for now, for example because the queue is full, or its node is down (RabbitMQ 4).
    Nacked,
    /// The channel or connection failed. The message may be stored, unless `is_final` holds for the error or the
    /// message is `unsent`.
    Broken { error: lapin::Error, unsent: bool },
}

impl PublishConnection {
    /// Creates a connection that uses at most this number of channels at a time.
    pub(crate) fn new(connection: Connection, max_channels: usize) -> Self {
        let limit = FrameLimit::new(&connection);
        Self { connection, limit, permits: Semaphore::new(max_channels), idle: Mutex::default() }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.connection.status().connected()
    }

    /// Publishes a message and returns when the message is in a queue. `prepare` runs on the same channel before that,
    /// for example to declare the queue.
    ///
    /// # Cancellation
    /// The message may be published. The channel is closed, since its confirm is outstanding.
    pub(crate) async fn publish(
        &self,
        to: (&str, &str),
        properties: BasicProperties,
        body: &[u8],
        prepare: impl AsyncFnOnce(&Channel) -> lapin::Result<()>,
    ) -> Result<(), PublishFailure> {
        let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        self.publish_with(mandatory, to, properties, body, prepare).await
    }

    /// Publishes a message with these options. Without `mandatory`, the broker also confirms a message that is in no
    /// queue.
    ///
    /// # Cancellation
    /// See [`publish`](Self::publish).
    pub(crate) async fn publish_with(
        &self,
        options: BasicPublishOptions,
        (exchange, key): (&str, &str),
        properties: BasicProperties,
        body: &[u8],
        prepare: impl AsyncFnOnce(&Channel) -> lapin::Result<()>,
    ) -> Result<(), PublishFailure> {
        let before = |error| PublishFailure::Broken { error, unsent: true };
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let channel = self.channel().await.map_err(before)?;
        prepare(&channel).await.map_err(before)?;
        let after = |error| PublishFailure::Broken { error, unsent: false };
        let sent =
            channel.basic_publish(exchange.into(), key.into(), options, body, properties).await.map_err(after)?;
        let result = match sent.await.map_err(after)? {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(_)) if exchange.is_empty() => return Err(self.returned(channel, key).await),
            Confirmation::Ack(Some(_)) => Err(PublishFailure::Unroutable),
            // All channels are in confirm mode, so `NotRequested` does not occur.
            Confirmation::Nack(_) | Confirmation::NotRequested => Err(PublishFailure::Nacked),
        };
        self.idle().push(channel);
        result
    }

    /// Publishes messages in order on one channel, and returns when all are confirmed. Each result shows whether the
    /// message is in a queue. A returned message is [`Unroutable`](PublishFailure::Unroutable), for which
    /// [`explain_return`](Self::explain_return) finds the reason. `sent` is set before the first message is sent.
    ///
    /// # Errors
    /// Not all messages were confirmed. The state of all sent messages is unknown.
    ///
    /// # Cancellation
    /// Any of the messages may be published. The channel is closed.
    pub(crate) async fn publish_batch(
        &self,
        messages: &[BatchMessage<'_>],
        sent: &AtomicBool,
    ) -> lapin::Result<Vec<Result<(), PublishFailure>>> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let channel = self.channel().await?;
        sent.store(true, SeqCst);
        let mut confirms = Vec::with_capacity(messages.len());
        for message in messages {
            let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
            let (exchange, key) = (ShortString::from(message.exchange), ShortString::from(message.key));
            let properties = message.properties.clone();
            confirms.push(channel.basic_publish(exchange, key, options, message.body, properties).await?);
        }
        let confirmed = try_join_all(confirms).await?;
        self.idle().push(channel);
        let returned: HashSet<_> = confirmed.iter().filter_map(returned_id).collect();
        let results = confirmed.iter().zip(messages).map(|(confirmation, message)| match confirmation {
            Confirmation::Ack(_) if id(&message.properties).is_some_and(|id| returned.contains(id)) => {
                Err(PublishFailure::Unroutable)
            }
            Confirmation::Ack(_) => Ok(()),
            Confirmation::Nack(_) | Confirmation::NotRequested => Err(PublishFailure::Nacked),
        });
        Ok(results.collect())
    }

    /// Returns the reason why the broker has returned messages of a batch to this queue.
    ///
    /// # Cancellation
    /// The channel is closed.
    pub(crate) async fn explain_return(&self, queue: &str) -> PublishFailure {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        match self.channel().await {
            Ok(channel) => self.returned(channel, queue).await,
            Err(error) => PublishFailure::Broken { error, unsent: true },
        }
    }

    /// Returns the reason why the broker has returned a message to this queue. The broker returns a message for a
    /// missing queue and for a queue whose node is down in the same way. Only a passive declaration shows the
    /// difference, and closes the channel in both cases.
    async fn returned(&self, channel: Channel, queue: &str) -> PublishFailure {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        match answered(channel.queue_declare(queue.into(), options, FieldTable::default())).await {
            Ok(found) => {
                self.idle().push(channel);
                // A declaration ignores line breaks in the name, and an empty name is that of another queue.
                let is_same = found.name().as_str() == queue;
                if is_same { PublishFailure::QueueDown(None) } else { PublishFailure::Unroutable }
            }
            Err(error) if is_node_down(&error) => PublishFailure::QueueDown(Some(error)),
            Err(error) if is_final(&error) => PublishFailure::Unroutable,
            Err(error) => PublishFailure::Broken { error, unsent: true },
        }
    }

    /// Runs declarations on a channel.
    ///
    /// # Errors
    /// The broker rejected a declaration, which closes the channel, or the connection failed.
    ///
    /// # Cancellation
    /// Some declarations may be applied. The channel is closed.
    pub(crate) async fn prepare(
        &self,
        declarations: impl AsyncFnOnce(&Channel) -> lapin::Result<()>,
    ) -> lapin::Result<()> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let channel = self.channel().await?;
        declarations(&channel).await?;
        self.idle().push(channel);
        Ok(())
    }

    async fn channel(&self) -> lapin::Result<Channel> {
        let idle = self.idle().pop();
        if let Some(channel) = idle.filter(|channel| channel.status().connected()) {
            return Ok(channel);
        }
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Channel>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the id of the returned message in this confirm, which may belong to another message.
fn returned_id(confirmation: &Confirmation) -> Option<&str> {
    match confirmation {
        Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned)) => id(&returned.delivery.properties),
        _ => None,
    }
}

fn id(properties: &BasicProperties) -> Option<&str> {
    properties.message_id().as_ref().map(ShortString::as_str)
}
