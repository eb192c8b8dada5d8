//! Publishing with confirms and returns.
//!
//! The client assigns a returned message to the next confirm that arrives. The broker confirms several messages of a
//! channel at once and in any order, so the client could report a return for the wrong message. A channel therefore
//! has one message in flight, or one batch. The results of a batch are used after all its confirms have arrived: the
//! broker returns a message before it confirms the message. Ids tell which messages of a batch were returned.
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::try_join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use tokio::sync::Semaphore;

/// A connection that publishes with confirms.
#[derive(Debug)]
pub(crate) struct ConfirmedPublisher {
    connection: Connection,
    places: Semaphore,
    /// Channels without a message in flight.
    idle: Mutex<Vec<Channel>>,
}

/// A message of a batch on one channel. All ids of a batch differ.
#[derive(Debug)]
pub(crate) struct BatchMessage<'a> {
    pub(crate) exchange: &'a str,
    pub(crate) key: &'a str,
    pub(crate) properties: BasicProperties,
    pub(crate) body: &'a [u8],
}

/// The reason why a message is not known to be in a queue.
#[derive(Debug)]
pub(crate) enum PublishFailure {
    /// No queue is bound for the message. The broker did not store it.
    Unroutable,
    /// The broker could not store the message.
    Nacked,
    /// The state of the message is unknown, unless the error `is_final`, or occurred `before` the message was sent.
    Broken { error: lapin::Error, before: bool },
}

impl ConfirmedPublisher {
    /// Creates a publisher with at most `most` channels.
    pub(crate) fn new(connection: Connection, most: usize) -> Self {
        Self { connection, places: Semaphore::new(most), idle: Mutex::default() }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.connection.status().connected()
    }

    /// Publishes a message, and returns after the message is in a queue. `prepare` declares that queue.
    ///
    /// # Cancellation
    /// The message may have been published. The channel is not used again, because its confirm is outstanding.
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

    /// Publishes with these options. Without `mandatory`, a confirm does not mean that the message is in a queue.
    ///
    /// # Cancellation
    /// Same as [`publish`](Self::publish).
    pub(crate) async fn publish_with(
        &self,
        options: BasicPublishOptions,
        (exchange, key): (&str, &str),
        properties: BasicProperties,
        body: &[u8],
        prepare: impl AsyncFnOnce(&Channel) -> lapin::Result<()>,
    ) -> Result<(), PublishFailure> {
        let before = |error| PublishFailure::Broken { error, before: true };
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let channel = self.channel().await.map_err(before)?;
        prepare(&channel).await.map_err(before)?;
        let (exchange, key) = (ShortString::from(exchange), ShortString::from(key));
        let after = |error| PublishFailure::Broken { error, before: false };
        let sent = channel.basic_publish(exchange, key, options, body, properties).await.map_err(after)?;
        let answer = match sent.await.map_err(after)? {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(_)) => Err(PublishFailure::Unroutable),
            // The channel requests confirms, so the client never reports this result.
            Confirmation::Nack(_) | Confirmation::NotRequested => Err(PublishFailure::Nacked),
        };
        self.idle().push(channel);
        answer
    }

    /// Publishes these messages in order, and returns after the broker has answered all of them. Each result says
    /// whether the message is in a queue. The function sets `sent` before the first message leaves.
    ///
    /// # Errors
    /// Not all messages were answered. The state of each message that left is unknown.
    ///
    /// # Cancellation
    /// Any of the messages may have been published. The channel is not used again.
    pub(crate) async fn publish_all(
        &self,
        parcels: &[BatchMessage<'_>],
        sent: &AtomicBool,
    ) -> lapin::Result<Vec<Result<(), PublishFailure>>> {
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let channel = self.channel().await?;
        sent.store(true, SeqCst);
        let mut confirms = Vec::with_capacity(parcels.len());
        for parcel in parcels {
            let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
            let (exchange, key) = (ShortString::from(parcel.exchange), ShortString::from(parcel.key));
            let properties = parcel.properties.clone();
            confirms.push(channel.basic_publish(exchange, key, options, parcel.body, properties).await?);
        }
        let answers = try_join_all(confirms).await?;
        self.idle().push(channel);
        let returned: HashSet<_> = answers.iter().filter_map(returned_id).collect();
        let told = answers.iter().zip(parcels).map(|(answer, parcel)| match answer {
            Confirmation::Ack(_) if id(&parcel.properties).is_some_and(|id| returned.contains(id)) => {
                Err(PublishFailure::Unroutable)
            }
            Confirmation::Ack(_) => Ok(()),
            Confirmation::Nack(_) | Confirmation::NotRequested => Err(PublishFailure::Nacked),
        });
        Ok(told.collect())
    }

    /// Runs declarations on a channel.
    ///
    /// # Errors
    /// The broker refused a declaration, which closes the channel, or the connection failed.
    ///
    /// # Cancellation
    /// Some declarations may have been applied. The channel is not used again.
    pub(crate) async fn prepare(
        &self,
        declarations: impl AsyncFnOnce(&Channel) -> lapin::Result<()>,
    ) -> lapin::Result<()> {
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
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

/// Returns the id of the message that was returned with this confirm. It may be the id of another message.
fn returned_id(answer: &Confirmation) -> Option<&str> {
    match answer {
        Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned)) => id(&returned.delivery.properties),
        _ => None,
    }
}

fn id(properties: &BasicProperties) -> Option<&str> {
    properties.message_id().as_ref().map(ShortString::as_str)
}
