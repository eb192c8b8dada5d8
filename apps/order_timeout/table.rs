//! Time limits in a table of the orders' database.
use std::sync::Arc;
use std::time::Duration;

use idempotent::Executor;
use idempotent::mq::{Consumer, MessageHandler, Schedule};

use crate::shop::{Failed, Shop};
use crate::{Failure, Limits};

pub(crate) struct Table(pub(crate) Arc<Shop>);

impl Limits for Table {
    async fn place(&self, order: &str, limit: Duration) -> Result<(), Failed> {
        self.0.place(order, limit).await
    }

    async fn work(
        &self,
        executor: &Executor,
        handling: MessageHandler,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        // One process over one file: times on a wheel. Several, or a server: without it.
        let source = self.0.limits.source().on_wheel(Duration::from_secs(10));
        let consumer = Consumer::builder(source, "order_limits", executor)
            .schedule(Schedule::exponential(Duration::from_millis(100), Duration::from_secs(10)))
            .build(handling)?;
        let (ending, ended) = tokio::sync::oneshot::channel::<()>();
        let running = consumer.run(async { drop(ended.await) });
        let stopping = async {
            stop.await;
            drop(ending);
        };
        tokio::join!(running, stopping).0?;
        Ok(())
    }

    async fn nothing_left(&self) {
        let limits = &self.0.limits;
        while limits.counts().await.is_ok_and(|counts| counts.ready + counts.waiting + counts.in_flight > 0) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
