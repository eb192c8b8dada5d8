//! Time limits in an outbox, which RabbitMQ delivers when they are due.
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use idempotent::mq::{Consumer, MessageHandler, OutboundMessage, Schedule};
use idempotent::outbox::{Outbox, Relay};
use idempotent::rabbitmq::{Queue, RabbitPublisher, RabbitSource};
use idempotent::{Executor, Timestamp};
use sqlx::Sqlite;

use crate::shop::{Failed, Shop};
use crate::{Failure, Limits};

const QUEUE: &str = "order_limits";

pub(crate) struct Rabbit {
    shop: Arc<Shop>,
    outbox: Outbox<Sqlite>,
    url: String,
}

impl Rabbit {
    pub(crate) async fn open(shop: &Arc<Shop>, url: &str) -> Result<Self, Failure> {
        let outbox = Outbox::builder(shop.orders.clone()).create(true).open().await?;
        Ok(Self { shop: shop.clone(), outbox, url: url.to_owned() })
    }
}

impl Limits for Rabbit {
    /// The broker may be away: the relay sends the limit once it is back, for the same time.
    async fn place(&self, order: &str, limit: Duration) -> Result<(), Failed> {
        let at = Timestamp(0) + SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default() + limit;
        let message = OutboundMessage::new(QUEUE, order, order).deliver_at(at);
        let mut tx = self.shop.orders.begin_with("BEGIN IMMEDIATE").await?;
        Shop::insert(&mut tx, order).await?;
        self.outbox.enqueue(&mut tx, &message).await?;
        tx.commit().await?;
        self.outbox.wake();
        Ok(())
    }

    async fn work(
        &self,
        executor: &Executor,
        handling: MessageHandler,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let source = RabbitSource::builder(&self.url, Queue::quorum(QUEUE)).build()?;
        // Before the relay: a message for a missing queue is refused.
        source.declare().await?;
        let relay = Relay::new(&self.outbox, Arc::new(RabbitPublisher::builder(&self.url).build()?));
        // The log confirms each limit, so that the relay does not send it again.
        let consumer = Consumer::builder(source, "order_limits", executor)
            .schedule(Schedule::exponential(Duration::from_millis(100), Duration::from_secs(10)))
            .log(Arc::new(self.outbox.clone()))
            .build(handling)?;
        let (ending, ended) = tokio::sync::watch::channel(());
        let until_stopped = || {
            let mut ended = ended.clone();
            async move { while ended.changed().await.is_ok() {} }
        };
        let (consuming, relaying) = (consumer.run(until_stopped()), relay.run(until_stopped()));
        let stopping = async {
            stop.await;
            drop(ending);
        };
        tokio::join!(consuming, relaying, stopping).0?;
        Ok(())
    }

    /// A limit that is not over yet may be at the broker only, where nothing lists it: the orders say what is left.
    async fn nothing_left(&self) {
        while self.shop.unpaid().await.is_ok_and(|orders| orders > 0) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
