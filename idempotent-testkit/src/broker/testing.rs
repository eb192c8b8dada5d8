//! Helpers for an adapter's own tests: a consumer in a task, handlers that count, and waits.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "parts of tests"
)]
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use idempotent_core::{Executor, Timestamp};
use idempotent_mq::{
    Consumer, ConsumerBuilder, ConsumerCounters, ConsumerCounts, Delivery, KeyFrom, Message, MessageHandler, Messages,
    Received, Retry, Schedule, Settle, Settlement, Source, SourceError,
};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The time limit for events that are certain to happen.
pub const LIMIT: Duration = Duration::from_secs(120);
/// The pause between two polls.
const PAUSE: Duration = Duration::from_millis(5);

/// A delivery of a source, and the tag to settle it.
pub type Held<S> = (Delivery, <S as Source>::Tag);

/// A consumer that runs in a task.
#[derive(Debug)]
pub struct Running {
    /// The counters of the consumer.
    pub counters: ConsumerCounters,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<ConsumerCounts, SourceError>>,
}

impl Running {
    /// Starts a consumer.
    #[must_use]
    pub fn new<S: Source + 'static>(consumer: Consumer<S>) -> Self {
        let (counters, (stop, stopped)) = (consumer.counters(), oneshot::channel());
        let task = tokio::spawn(consumer.run(async { drop(stopped.await) }));
        Self { counters, stop: Some(stop), task }
    }

    /// Kills the consumer without settling anything.
    ///
    /// # Cancellation
    /// The consumer is killed.
    pub async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }

    /// Starts to drain.
    pub fn drain(&mut self) {
        drop(self.stop.take());
    }

    /// Drains the consumer, and returns its result.
    ///
    /// # Errors
    /// The error with which the consumer ended.
    ///
    /// # Cancellation
    /// The drain continues in its task.
    pub async fn ended(mut self) -> Result<ConsumerCounts, SourceError> {
        self.drain();
        self.ended_by_itself().await
    }

    /// Waits until the consumer ends without a request.
    ///
    /// # Errors
    /// The error with which the consumer ended.
    ///
    /// # Cancellation
    /// The consumer continues in its task.
    pub async fn ended_by_itself(self) -> Result<ConsumerCounts, SourceError> {
        let _stop = self.stop;
        timeout(LIMIT, self.task).await.expect("the consumer did not end").unwrap()
    }
}

/// Returns a builder for a consumer `billing` with four handlers and a prefetch of eight, which retries after 50 ms to 200 ms.
pub fn billing<S: Source + 'static>(source: S, executor: &Executor) -> ConsumerBuilder<S> {
    let schedule = Schedule::exponential(Duration::from_millis(50), Duration::from_millis(200));
    let builder = Consumer::builder(source, "billing", executor).prefetch(8).concurrency(4);
    builder.schedule(schedule).grace(Duration::from_secs(10))
}

/// Returns a handler that counts its runs, one for each message id.
pub fn counting() -> (MessageHandler, Arc<AtomicU32>) {
    let (handling, runs, gate) = gated();
    gate.close();
    (handling, runs)
}

/// Returns a handler that counts its runs, one for each message id, each of which waits for a permit or the end of the semaphore.
pub fn gated() -> (MessageHandler, Arc<AtomicU32>, Arc<Semaphore>) {
    let (runs, gate) = (Arc::<AtomicU32>::default(), Arc::new(Semaphore::new(0)));
    let (counted, waits) = (runs.clone(), gate.clone());
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |_: Message<()>| {
        counted.fetch_add(1, SeqCst);
        let waits = waits.clone();
        async move {
            if let Ok(permit) = waits.acquire().await {
                permit.forget();
            }
            Ok::<_, String>(())
        }
    });
    (handling, runs, gate)
}

/// Waits for deliveries, and returns at most `room`. Revoked positions are left out.
///
/// # Cancellation
/// Same as [`Source::receive`].
pub async fn receive<S: Source>(source: &mut S, room: usize) -> Vec<Held<S>> {
    let receiving = async {
        loop {
            match source.receive(room).await.unwrap() {
                Received::Deliveries(some) if !some.is_empty() => return some,
                _ => {}
            }
        }
    };
    timeout(LIMIT, receiving).await.expect("no delivery came")
}

/// Waits for a delivery.
///
/// # Cancellation
/// Same as [`Source::receive`].
pub async fn one<S: Source>(source: &mut S) -> Held<S> {
    receive(source, 1).await.pop().unwrap()
}

/// Settles a delivery.
///
/// # Cancellation
/// Same as [`Settle::settle`].
pub async fn settle<T: Send + Sync + 'static>(settler: &Arc<dyn Settle<T>>, held: &(Delivery, T), how: Settlement) {
    settler.settle(&held.0, &held.1, &how).await.unwrap();
}

/// Returns a retry as the second attempt.
#[must_use]
pub fn retry(after: Duration) -> Settlement {
    Settlement::Retry(Retry::after(after, Timestamp(1)))
}

/// Waits until the condition is true.
///
/// # Cancellation
/// The condition is dropped.
pub async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !so().await {
        assert!(start.elapsed() < LIMIT, "still not: {what}");
        sleep(PAUSE).await;
    }
}
