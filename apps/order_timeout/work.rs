//! The consumers of the time limits and of the notices, and the relay, which sends what the outbox has.
use std::sync::Arc;
use std::time::Duration;

use idempotent::Executor;
use idempotent::mq::{Consumer, Message, MessageHandler, Messages, Publish, Schedule, Source};
use idempotent::outbox::{Relay, ResendPolicy};
use tokio::sync::watch;

use super::shop::{Failed, Limit, Shop, tell_customer, time_is_over};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Handles time limits and notices until `stop` ends.
pub(crate) async fn work(
    shop: &Arc<Shop>,
    executor: &Executor,
    limits: impl Source,
    notices: impl Source,
    publisher: Arc<dyn Publish>,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let schedule = Schedule::exponential(Duration::from_millis(100), Duration::from_secs(10));
    // The log confirms each message of the outbox, so that the relay does not send it again.
    let log = Arc::new(shop.outbox.clone());
    let limits = Consumer::builder(limits, "order_limits", executor).schedule(schedule.clone()).log(log.clone());
    let limits = limits.build(limit_handling(shop))?;
    let notices = Consumer::builder(notices, "customers", executor).schedule(schedule).log(log);
    let notices = notices.build(notice_handling())?;
    // Short times: a queue in this process loses its messages with the process.
    let resends = ResendPolicy::new().backoff(Duration::from_secs(5), Duration::from_secs(60));
    let resends = resends.backlog(Duration::ZERO).quiet(Duration::from_secs(5));
    // The next process waits for the lease of a relay that was killed while it sent.
    let relay = Relay::new(&shop.outbox, publisher).resends(resends).lease(Duration::from_secs(30));

    let (ending, ended) = watch::channel(());
    let until_stopped = || {
        let mut ended = ended.clone();
        async move { while ended.changed().await.is_ok() {} }
    };
    let relaying = async {
        relay.run(until_stopped()).await;
        Ok(())
    };
    let stopping = async {
        stop.await;
        drop(ending);
        Ok(())
    };
    tokio::try_join!(limits.run(until_stopped()), notices.run(until_stopped()), relaying, stopping)?;
    Ok(())
}

fn limit_handling(shop: &Arc<Shop>) -> MessageHandler {
    let shop = shop.clone();
    Messages::raw().annotated(move |message: Message<()>| {
        let shop = shop.clone();
        async move {
            let (limit, order) = Limit::of_key(&message.delivery.body)?;
            time_is_over(limit, order, &shop).await?;
            if let Ok(status) = shop.status(order).await {
                println!("{order}: its time is over, it is {status}");
            }
            Ok::<_, Failed>(())
        }
    })
}

fn notice_handling() -> MessageHandler {
    Messages::raw().annotated(|message: Message<()>| async move {
        let id = message.delivery.id.as_deref().ok_or(Failed::Unknown)?;
        let text = str::from_utf8(&message.delivery.body).map_err(|_| Failed::Unknown)?;
        tell_customer(id, text).await
    })
}
