//! RabbitMQ, which delivers the notices, and the time limits if it keeps them.
use std::sync::Arc;
use std::time::Duration;

use idempotent::Executor;
use idempotent::mq::SourceErrorKind;
use idempotent::rabbitmq::{Queue, RabbitPublisher, RabbitSource};

use crate::shop::{LIMITS, NOTICES, Shop};
use crate::work::{Failure, work};

pub(crate) async fn work_with(
    shop: &Arc<Shop>,
    executor: &Executor,
    url: &str,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    // A shorter time than that of the relay's lease: the relay tries again itself while the broker is away.
    let publisher = RabbitPublisher::builder(url).give_up_after(Duration::from_secs(5)).build()?;
    let publisher = Arc::new(publisher);
    let notices = source(url, NOTICES).await?;
    if shop.limits_at_broker {
        return work(shop, executor, source(url, LIMITS).await?, notices, publisher, stop).await;
    }
    work(shop, executor, shop.limits.source(), notices, publisher, stop).await
}

/// Returns the source of a queue, which exists before the relay starts: a message for a missing queue is refused.
async fn source(url: &str, queue: &str) -> Result<RabbitSource, Failure> {
    let source = RabbitSource::builder(url, Queue::quorum(queue)).build()?;
    match source.declare().await {
        Err(error) if error.kind() == SourceErrorKind::Fatal => Err(error.into()),
        // If the broker is away, consumer and relay try again until it is back.
        _ => Ok(source),
    }
}
