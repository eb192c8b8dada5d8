//! Publishing, and knowing what became of it.
//!
//! The client tells a message that was returned by the next confirm that comes in, and the broker confirms several messages
//! of a channel at once and in any order: the one that was returned could be taken for the one that was not, and be lost. So
//! a channel has one message under way; or several at a time, of which none is believed before all are answered, since a
//! message is returned before it is confirmed. Which ones were returned is then told by their ids.
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::try_join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use tokio::sync::Semaphore;

/// A connection to publish by.
#[derive(Debug)]
pub(crate) struct Confirming {
    connection: Connection,
    places: Semaphore,
    /// Channels with nothing under way.
    idle: Mutex<Vec<Channel>>,
}

/// One of several messages that share a channel; their ids differ.
#[derive(Debug)]
pub(crate) struct Parcel<'a> {
    pub(crate) exchange: &'a str,
    pub(crate) key: &'a str,
    pub(crate) properties: BasicProperties,
    pub(crate) body: &'a [u8],
}

/// Why a message is not known to be in a queue.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// No queue takes it; nothing was kept.
    Unroutable,
    /// The broker could not keep it.
    Nacked,
    /// Nobody knows, unless `is_final` of it, or it was `before` it was sent.
    Broken { error: lapin::Error, before: bool },
}

impl Confirming {
    /// `most` messages side by side.
    pub(crate) fn new(connection: Connection, most: usize) -> Self {
        Self { connection, places: Semaphore::new(most), idle: Mutex::default() }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.connection.status().connected()
    }

    /// Publishes, and returns once it is in a queue. `prepare` makes sure that there is one.
    ///
    /// # Cancellation
    /// It may have been published. The channel is not used again, since its confirm is still to come.
    pub(crate) async fn publish(
        &self,
        to: (&str, &str),
        properties: BasicProperties,
        body: &[u8],
        prepare: impl AsyncFnOnce(&Channel) -> lapin::Result<()>,
    ) -> Result<(), Unsent> {
        let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        self.publish_with(mandatory, to, properties, body, prepare).await
    }

    /// Publishes with these options: without `mandatory`, a confirm says nothing of a queue.
    ///
    /// # Cancellation
    /// As [`publish`](Self::publish).
    pub(crate) async fn publish_with(
        &self,
        options: BasicPublishOptions,
        (exchange, key): (&str, &str),
        properties: BasicProperties,
        body: &[u8],
        prepare: impl AsyncFnOnce(&Channel) -> lapin::Result<()>,
    ) -> Result<(), Unsent> {
        let before = |error| Unsent::Broken { error, before: true };
        // Never closed.
        let _place = self.places.acquire().await;
        let channel = self.channel().await.map_err(before)?;
        prepare(&channel).await.map_err(before)?;
        let (exchange, key) = (ShortString::from(exchange), ShortString::from(key));
        let after = |error| Unsent::Broken { error, before: false };
        let sent = channel.basic_publish(exchange, key, options, body, properties).await.map_err(after)?;
        let answer = match sent.await.map_err(after)? {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(_)) => Err(Unsent::Unroutable),
            // Never asked for that.
            Confirmation::Nack(_) | Confirmation::NotRequested => Err(Unsent::Nacked),
        };
        self.idle().push(channel);
        answer
    }

    /// Publishes these one behind the other, and returns once all are answered: of each, whether it is in a queue. `sent` is
    /// set before the first leaves.
    ///
    /// # Errors
    /// Not all were answered, and nothing is known of any that left.
    ///
    /// # Cancellation
    /// Any of them may have been published. The channel is not used again.
    pub(crate) async fn publish_all(
        &self,
        parcels: &[Parcel<'_>],
        sent: &AtomicBool,
    ) -> lapin::Result<Vec<Result<(), Unsent>>> {
        // Never closed.
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
                Err(Unsent::Unroutable)
            }
            Confirmation::Ack(_) => Ok(()),
            Confirmation::Nack(_) | Confirmation::NotRequested => Err(Unsent::Nacked),
        });
        Ok(told.collect())
    }

    /// Runs declarations on a channel.
    ///
    /// # Errors
    /// The broker refused one, which ends the channel, or the connection failed.
    ///
    /// # Cancellation
    /// Some may have been applied. The channel is not used again.
    pub(crate) async fn prepare(
        &self,
        declarations: impl AsyncFnOnce(&Channel) -> lapin::Result<()>,
    ) -> lapin::Result<()> {
        // Never closed.
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

/// Of the message that came back with this confirm, which may be another's.
fn returned_id(answer: &Confirmation) -> Option<&str> {
    match answer {
        Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned)) => id(&returned.delivery.properties),
        _ => None,
    }
}

fn id(properties: &BasicProperties) -> Option<&str> {
    properties.message_id().as_ref().map(ShortString::as_str)
}
