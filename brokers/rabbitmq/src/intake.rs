//! The receiving end of a session.
use std::pin::pin;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use idempotent_core::{Clock, Timestamp};
use idempotent_mq::{Delivery, SourceError};
use lapin::Consumer;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;

use crate::error::failure;
use crate::retry_headers::RetryHeaders;
use crate::session::{ConsumerSession, REQUEUE, connect, declare_queues};
use crate::settings::SourceSettings;
use crate::settler::RabbitTag;

/// The receiving end of a session.
#[derive(Debug)]
pub(crate) struct SessionIntake {
    session: Arc<ConsumerSession>,
    consumer: Consumer,
    /// True if the subscription ended while `next` had a delivery to return.
    ended: bool,
}

impl SessionIntake {
    /// Connects, declares the queues and subscribes.
    pub(crate) async fn open(settings: &Arc<SourceSettings>, prefetch: usize) -> Result<Self, SourceError> {
        let connection = connect(settings).await?;
        let channel = declare_queues(settings, &connection).await?;
        let subscribe = async {
            let prefetch = u16::try_from(prefetch).unwrap_or(u16::MAX);
            channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
            let (queue, tag) = (settings.queue.name.as_str().into(), settings.consumer_tag.as_str().into());
            channel.basic_consume(queue, tag, BasicConsumeOptions::default(), FieldTable::default()).await
        };
        let consumer =
            subscribe.await.map_err(|error| failure("subscribing to the queue failed; see the cause", error))?;
        let session = ConsumerSession::new(settings.clone(), connection, channel);
        Ok(Self { session: Arc::new(session), consumer, ended: false })
    }

    /// Waits for deliveries and returns at least one and at most `room`, or `None` if the channel or the queue is gone.
    pub(crate) async fn next(&mut self, room: usize, clock: &dyn Clock) -> Option<Vec<(Delivery, RabbitTag)>> {
        if self.ended {
            return None;
        }
        let first = self.consumer.next().await?.ok()?;
        let mut taken = vec![self.decode(first, clock.wall())];
        while taken.len() < room
            && let Some(more) = self.consumer.next().now_or_never()
        {
            match more {
                Some(Ok(more)) => taken.push(self.decode(more, clock.wall())),
                // The client reports the end only one time. A further call would wait forever.
                _ => {
                    self.ended = true;
                    break;
                }
            }
        }
        Some(taken)
    }

    fn decode(&self, from: lapin::message::Delivery, now: Timestamp) -> (Delivery, RabbitTag) {
        let settings = &self.session.settings;
        let headers = RetryHeaders::decode(from.properties, &settings.queue, &settings.expiry, now);
        let mut delivery = headers.delivery(settings.position(), from.data);
        delivery.delivered = settings.queue.counts_deliveries().then_some(headers.delivered);
        delivery.redelivered = from.redelivered;
        (delivery, RabbitTag::new(self.session.clone(), from.acker, from.delivery_tag, headers))
    }

    /// Unsubscribes, and gives back the deliveries that the source has not taken.
    pub(crate) async fn close(&mut self) {
        // An error means that the channel is closed, so the broker redelivers all its messages.
        let cancelled = self.session.channel.basic_cancel(self.consumer.tag(), BasicCancelOptions::default());
        if cancelled.await.is_err() {
            return;
        }
        let mut rest = pin!(&mut self.consumer);
        while let Some(Some(Ok(delivery))) = rest.next().now_or_never() {
            let _ = delivery.acker.nack(REQUEUE).await;
        }
    }
}
