//! New messages through the consumer, from a source that always has messages.
use std::future::pending;
use std::sync::Arc;

use async_trait::async_trait;
use idempotent::mq::{
    Consumer, DelaySupport, Delivery, HandlerResult, KeyFrom, Message, Messages, Position, Received, Settle,
    Settlement, Source, SourceCapabilities, SourceError,
};
use idempotent_harness::servers::RedisServer;
use tokio::sync::Notify;

use crate::report::{Goal, Report};
use crate::slices::{Mode, Rounds, Slice, Taken, emptied, tasks};
use crate::{bare, ours, server_name};

const OURS: usize = 0;
const BARE: usize = 1;
const NAIVE: usize = 2;

/// Measures a consumer with each number of handlers, beside as many tasks with the bare commands.
pub async fn all(report: &Report, server: &RedisServer, name: &str, handlers: &[usize], goals: &[f64]) {
    let executor = ours::executor(server, None).await;
    let connection = bare::connect(server).await;
    let ours: Mode = Box::new(move |slice| Box::pin(consume(executor.clone(), slice)));
    let naive = connection.clone();
    let modes = [
        ours,
        tasks(move |number| bare::mark(connection.clone(), number)),
        tasks(move |number| bare::naive(naive.clone(), number)),
    ];
    for (tasks, goal) in handlers.iter().copied().zip(goals) {
        if !report.wants(server_name(), &format!("{name}, {tasks} at once")) {
            continue;
        }
        let rounds = Rounds::take(report, server, tasks, &modes, emptied(server)).await;
        let line = |case: &str, unit, floor, figure: fn(&Taken) -> f64, goal| {
            let pair = rounds.pair(OURS, floor, figure);
            report.pair((server_name(), &format!("{name}{case}"), Some(tasks)), unit, pair, goal);
        };
        line(", to bare redis-rs", "messages/s", BARE, Taken::rate, Goal::AtLeast(*goal));
        line(", CPU here, to bare redis-rs", "us", BARE, Taken::client, Goal::None);
        line(", to four commands", "messages/s", NAIVE, Taken::rate, Goal::None);
    }
}

/// Consumes messages until the slice is over, and returns their number.
async fn consume(executor: idempotent::Executor, slice: Slice) -> u64 {
    let (handlers, over) = (slice.tasks, Arc::new(Notify::new()));
    let source = Endless { next: slice.from, slice, over: over.clone() };
    let handler = |_: Message<()>| std::future::ready(HandlerResult::Done);
    let handler = Messages::raw().keyed(KeyFrom::message_id()).run(handler);
    let consumer = Consumer::builder(source, "orders", &executor).concurrency(handlers).prefetch(2 * handlers);
    consumer.build(handler).unwrap().run(async move { over.notified().await }).await.unwrap().acked
}

struct Endless {
    next: u64,
    slice: Slice,
    over: Arc<Notify>,
}

#[async_trait]
impl Source for Endless {
    type Tag = ();

    fn capabilities(&self) -> SourceCapabilities {
        SourceCapabilities::new(DelaySupport::Any)
    }

    fn settler(&self) -> Arc<dyn Settle<()>> {
        Arc::new(Nowhere)
    }

    async fn receive(&mut self, room: usize) -> Result<Received<()>, SourceError> {
        if self.slice.is_over() {
            self.over.notify_one();
            return pending().await;
        }
        // As in a task of the other modes.
        tokio::task::consume_budget().await;
        let numbers = self.next..self.next + room as u64;
        self.next = numbers.end;
        let delivery = |number| (Delivery::new(Position::of("orders"), Vec::new()).id(format!("{number:020}")), ());
        Ok(Received::Deliveries(numbers.map(delivery).collect()))
    }

    async fn close(&mut self) {}
}

/// A settler without a broker.
struct Nowhere;

#[async_trait]
impl Settle<()> for Nowhere {
    async fn settle(&self, _: &Delivery, (): &(), _: &Settlement) -> Result<(), SourceError> {
        Ok(())
    }

    async fn keep_alive(&self, _: &[&()]) -> Result<(), SourceError> {
        Ok(())
    }
}
