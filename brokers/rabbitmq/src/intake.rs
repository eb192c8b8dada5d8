//! The receiving end of a session.
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use futures_util::{FutureExt, StreamExt};
use idempotent_core::{Clock, Timestamp};
use idempotent_mq::{Delivery, SourceError};
use lapin::Consumer;
use lapin::options::{BasicCancelOptions, BasicQosOptions};
use tokio::task::JoinHandle;
use tracing::warn;

use crate::carrier::RetryHeaders;
use crate::copies::CopyStore;
use crate::error::{answered, failure};
use crate::session::{ConsumerSession, REQUEUE, connect, declare_queues};
use crate::settings::SourceSettings;
use crate::settler::RabbitTag;

/// The receiving end of a session.
#[derive(Debug)]
pub(crate) struct SessionIntake {
    session: Arc<ConsumerSession>,
    consumer: Consumer,
    /// The end of the subscription, if `next` had a delivery to return. The client reports an end only one time, and a
    /// further call would wait forever.
    end: Option<SubscriptionEnd>,
    /// The task that subscribes again. The task outlives a cancelled `next`.
    subscribing: Option<JoinHandle<lapin::Result<Consumer>>>,
    /// True if a new subscription has not delivered anything yet.
    is_unproven: bool,
}

/// The end of a subscription.
#[derive(Debug)]
enum SubscriptionEnd {
    /// The broker has cancelled the subscription, and keeps the channel.
    Cancelled,
    Failed(lapin::Error),
}

impl SessionIntake {
    /// Connects, declares the queues and subscribes.
    pub(crate) async fn open(
        copies: Arc<CopyStore>,
        settings: Arc<SourceSettings>,
        prefetch: usize,
    ) -> Result<Self, SourceError> {
        let connection = connect(&settings).await?;
        let channel = declare_queues(&settings, &connection).await?;
        let session = Arc::new(ConsumerSession::new(copies, settings, connection, channel));
        let subscribe = async {
            let prefetch = u16::try_from(prefetch).unwrap_or(u16::MAX);
            session.channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
            session.subscribe().await
        };
        let consumer = answered(subscribe)
            .await
            .map_err(|error| failure("subscribing to the queue failed; see the cause", error))?;
        Ok(Self { session, consumer, end: None, subscribing: None, is_unproven: false })
    }

    /// Waits for deliveries and returns at least one and at most `room`.
    ///
    /// # Errors
    /// The channel or the queue is gone. The error is the client's, if the client reports one.
    pub(crate) async fn next(
        &mut self,
        room: usize,
        clock: &dyn Clock,
    ) -> Result<Vec<(Delivery, RabbitTag)>, Option<lapin::Error>> {
        let first = loop {
            match self.end.take() {
                Some(SubscriptionEnd::Failed(error)) => return Err(Some(error)),
                Some(SubscriptionEnd::Cancelled) => self.subscribe_again().await?,
                None => match self.consumer.next().await {
                    Some(Ok(first)) => break first,
                    ended => self.end = Some(SubscriptionEnd::new(ended)),
                },
            }
        };
        self.is_unproven = false;
        let mut taken = vec![self.decode(first, clock.wall())];
        while taken.len() < room
            && let Some(more) = self.consumer.next().now_or_never()
        {
            match more {
                Some(Ok(more)) => taken.push(self.decode(more, clock.wall())),
                ended => {
                    self.end = Some(SubscriptionEnd::new(ended));
                    break;
                }
            }
        }
        Ok(taken)
    }

    /// Subscribes again over the same channel, so that held deliveries can still be settled: the broker also cancels a
    /// subscription when one delivery is held too long (RabbitMQ 4.3), or its queue moves to another node.
    ///
    /// # Cancellation
    /// The task continues, and the next call waits for it.
    async fn subscribe_again(&mut self) -> Result<(), Option<lapin::Error>> {
        self.end = Some(SubscriptionEnd::Cancelled);
        // A subscription that is cancelled each time without a delivery needs a pause.
        if self.is_unproven || !self.session.channel.status().connected() {
            return Err(None);
        }
        let settings = &self.session.settings;
        warn!(target: "idempotent", broker = %settings.url, queue = settings.queue.name,
            "the broker cancelled the subscription; subscribing again");
        let subscribe = || tokio::spawn(answered(self.session.clone().subscribe_again()));
        let subscribed = self.subscribing.get_or_insert_with(subscribe).await;
        self.subscribing = None;
        // The task fails without an error of the client if its runtime shuts down.
        self.consumer = subscribed.map_err(|_| None)?.map_err(Some)?;
        (self.end, self.is_unproven) = (None, true);
        Ok(())
    }

    /// Returns the number of acknowledged deliveries.
    pub(crate) fn settled(&self) -> u64 {
        self.session.settled.load(SeqCst)
    }

    /// Returns whether there may be more unsettled deliveries than this number.
    pub(crate) fn holds_more_than(&self, deliveries: usize) -> bool {
        Arc::strong_count(&self.session) > 1 + deliveries
    }

    fn decode(&self, from: lapin::message::Delivery, now: Timestamp) -> (Delivery, RabbitTag) {
        let settings = &self.session.settings;
        let headers = RetryHeaders::decode(from.properties, &settings.queue, &settings.expiry, now);
        let mut delivery = headers.delivery(settings.position(), from.data);
        delivery.delivered = settings.queue.counts_deliveries().then_some(headers.delivered);
        delivery.redelivered = from.redelivered;
        (delivery, RabbitTag::new(self.session.clone(), from.acker, from.delivery_tag, headers))
    }

    /// Unsubscribes, and gives back the deliveries that the source has not taken. With a single active consumer, both
    /// happen when the last delivery is settled and the session closes.
    pub(crate) async fn close(mut self) {
        if self.session.settings.queue.is_single_active() {
            return;
        }
        // An error means that the channel is closed, so the broker redelivers all its messages.
        let cancelled = self.session.channel.basic_cancel(self.consumer.tag(), BasicCancelOptions::default());
        if answered(cancelled).await.is_err() {
            return;
        }
        let mut rest = pin!(&mut self.consumer);
        while let Some(Some(Ok(delivery))) = rest.next().now_or_never() {
            let _ = delivery.acker.nack(REQUEUE).await;
        }
    }
}

impl SubscriptionEnd {
    fn new(ended: Option<lapin::Result<lapin::message::Delivery>>) -> Self {
        match ended {
            Some(Err(error)) => Self::Failed(error),
            _ => Self::Cancelled,
        }
    }
}
