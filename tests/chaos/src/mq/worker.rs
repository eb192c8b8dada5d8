//! A worker that consumes: a process with a consumer on the broker's adapter, until its stdin ends or it is killed.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use idempotent::mq::{Consumer, Delivery, HandlerResult, KeyFrom, Message, Messages, Schedule, Source};
use idempotent::{Executor, OnLeaseLost, Policy, Scene};
use tokio::sync::{mpsc, oneshot};

use super::broker::Kind;
#[cfg(feature = "kafka")]
use super::kafka;
use super::recording_source::{DeliveryWorker, RecordingSource};
#[cfg(feature = "rocketmq")]
use super::rocket;
#[cfg(feature = "sqs")]
use super::sqs;
use super::{nats, pgmq, rabbit, streams};
use crate::dice::Dice;
use crate::process::{Orders, next};
use crate::wire::{self, News, Order, Origin, Start};
use crate::worker::{HandlerContext, policy};

/// Short, so that a run of seconds sees many of them end.
pub(super) const LEASE: Duration = Duration::from_millis(1_500);
/// The grace period of the consumer. No handler runs after the end of stdin.
const GRACE: Duration = Duration::from_secs(5);
const HANDLERS: usize = 8;

/// Returns whether a worker continues a run that has lost its lease, and tries to complete it.
pub(super) fn finishes_lost_runs(worker: u32) -> bool {
    worker.is_multiple_of(2)
}

/// Consumes until stdin ends.
pub(crate) async fn work(start: &Start, news: mpsc::UnboundedSender<News>, mut orders: Orders) -> anyhow::Result<()> {
    let origin = start.origin.clone().context("no broker is named")?;
    let context = Arc::new(HandlerContext::start(start, news).await?);
    let desk = Arc::new(DeliveryWorker {
        context: context.clone(),
        namespace: start.namespace.clone(),
        origin,
        // Another one than that of its store.
        dice: Dice::new(start.seed, 1_000_000 + u64::from(start.worker)),
        peace: AtomicBool::new(false),
        doomed: std::sync::Mutex::default(),
    });
    let (stop, stopped) = oneshot::channel();
    let mut consuming = tokio::spawn(consume(desk.clone(), stopped));
    loop {
        tokio::select! {
            order = next(&mut orders) => match order? {
                Some(Order::Wrote { effect, accepted }) => context.wrote(effect, accepted),
                Some(Order::Peace) => desk.peace.store(true, Ordering::Relaxed),
                // Deliveries come from the broker.
                Some(Order::Deliver { .. } | Order::Buried { .. }) => {}
                None => break,
            },
            ended = &mut consuming => return ended?.context("the consumer ended by itself"),
        }
    }
    drop(stop);
    consuming.await?
}

async fn consume(desk: Arc<DeliveryWorker>, stop: oneshot::Receiver<()>) -> anyhow::Result<()> {
    let url = desk.origin.url.clone();
    match desk.origin.kind {
        Kind::Rabbitmq => run(rabbit::source(&url, false)?, desk, stop).await,
        Kind::RabbitmqDelayedRetry => run(rabbit::source(&url, true)?, desk, stop).await,
        Kind::RedisStreams => run(streams::source(&url).await, desk, stop).await,
        Kind::Nats => run(nats::source(&url).await, desk, stop).await,
        Kind::Pgmq => run(pgmq::source(&url).await, desk, stop).await,
        #[cfg(feature = "kafka")]
        Kind::Kafka => run(kafka::source(&url, false).await, desk, stop).await,
        #[cfg(feature = "kafka")]
        Kind::KafkaRetryTopic => run(kafka::source(&url, true).await, desk, stop).await,
        #[cfg(feature = "rocketmq")]
        Kind::Rocketmq => run(rocket::source(&url)?, desk, stop).await,
        #[cfg(feature = "sqs")]
        Kind::Sqs => run(sqs::source(&url).await?, desk, stop).await,
    }
}

async fn run<S: Source>(inner: S, desk: Arc<DeliveryWorker>, stop: oneshot::Receiver<()>) -> anyhow::Result<()> {
    let executor = Executor::builder(desk.context.store.clone())
        .namespace(&*desk.namespace)
        .policy(Scene::Mq, policy())
        .build()?;
    let lost = if finishes_lost_runs(desk.context.id) { OnLeaseLost::Finish } else { OnLeaseLost::Abort };
    let handling = desk.clone();
    let handling = Messages::<wire::Message>::json()
        .keyed(KeyFrom::body("key", |message: &wire::Message| message.key))
        .policy(Policy::new().lease(LEASE).on_lease_lost(lost))
        .fingerprint_body()
        .run(move |message| handling.clone().handle(message));
    let consumer = Consumer::builder(RecordingSource { inner, desk: desk.clone() }, "chaos", &executor)
        .concurrency(HANDLERS)
        .grace(GRACE)
        .schedule(Schedule::exponential(Duration::from_millis(100), Duration::from_secs(1)).jitter(20))
        .build(handling)?;
    desk.context.tell(News::Ready);
    let stopped = async {
        // Dropped, it means the same.
        let _ = stop.await;
    };
    let counts = consumer.run(stopped).await?;
    eprintln!("worker {}: {counts:?}", desk.context.id);
    Ok(())
}

impl DeliveryWorker {
    async fn handle(self: Arc<Self>, message: Message<wire::Message>) -> HandlerResult {
        let again = || HandlerResult::Again { after: None, error: "asked to fail".into() };
        let Some(key) = self.key(message.body.key) else { return again() };
        let dies = self.doom_of(&key);
        match self.context.handle(&key, &message.body, dies).await {
            Ok(_) => HandlerResult::Done,
            Err(failure) if failure.is_for_good() => HandlerResult::Never { reason: "asked to fail for good".into() },
            Err(_) => again(),
        }
    }
}

/// The time for a dead letter as it must not be. Not all clients limit a request by themselves, and a proxy can hold it back
/// without end.
const SOON: Duration = Duration::from_secs(5);

/// A dead letter as it must not be.
pub(super) async fn bury_bare(origin: &Origin, delivery: &Delivery) -> anyhow::Result<()> {
    let buried = async {
        match origin.kind {
            Kind::Rabbitmq | Kind::RabbitmqDelayedRetry => rabbit::bury_bare(&origin.url, delivery).await,
            Kind::RedisStreams => streams::bury_bare(&origin.url, delivery).await,
            Kind::Nats => nats::bury_bare(&origin.url, delivery).await,
            Kind::Pgmq => pgmq::bury_bare(&origin.url, delivery).await,
            #[cfg(feature = "kafka")]
            Kind::Kafka | Kind::KafkaRetryTopic => kafka::bury_bare(&origin.url, delivery).await,
            #[cfg(feature = "rocketmq")]
            Kind::Rocketmq => rocket::bury_bare(&origin.url, delivery).await,
            #[cfg(feature = "sqs")]
            Kind::Sqs => sqs::bury_bare(&origin.url, delivery).await,
        }
    };
    tokio::time::timeout(SOON, buried).await?
}
