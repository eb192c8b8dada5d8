//! The stores, queues and outboxes that the console shows.
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Executor, Store};
use idempotent_mq::{ConsumerCounters, DeadLetters};
#[cfg(feature = "__outbox")]
use idempotent_operate::OutboxAccess;
use idempotent_operate::{DelayAccess, DeliveryLimited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::error::PageError;

/// The number of requests that may use one target at the same time.
const CONCURRENT: usize = 8;
/// The longest time that a page waits for a target.
const ANSWER: Duration = Duration::from_secs(2);

/// Everything that the console shows, in the order of its registration.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    pub(crate) stores: Named<Arc<dyn Store>>,
    pub(crate) queues: Named<Queue>,
    #[cfg(feature = "__outbox")]
    pub(crate) outboxes: Named<Arc<dyn OutboxAccess>>,
    pub(crate) delays: Named<Arc<dyn DelayAccess>>,
    pub(crate) executors: Named<Executor>,
    pub(crate) consumers: Named<ConsumerCounters>,
}

/// Targets of one kind with their names.
#[derive(Debug)]
pub(crate) struct Named<T>(Vec<(String, T, Arc<Semaphore>)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone> Named<T> {
    /// Adds a target. Returns false if the name is taken.
    pub(crate) fn add(&mut self, name: String, target: T) -> bool {
        let is_new = !self.names().any(|known| known == name);
        self.0.push((name, target, Arc::new(Semaphore::new(CONCURRENT))));
        is_new
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, ..)| name.as_str())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, target, _)| (name.as_str(), target))
    }

    /// Returns the target of this name. A task takes no permit, so that a long one blocks no page.
    pub(crate) fn find(&self, name: &str) -> Result<&T, PageError> {
        self.iter().find(|(known, _)| *known == name).map(|(_, target)| target).ok_or(PageError::NoTarget)
    }

    /// Returns the target of this name for one request of a user, or the first one without a name.
    pub(crate) fn open(&self, name: Option<&str>) -> Result<OpenTarget<T>, PageError> {
        let mut targets = self.0.iter();
        let found = match name.filter(|name| !name.is_empty()) {
            Some(name) => targets.find(|(known, ..)| known == name),
            None => targets.next(),
        };
        let (name, target, limit) = found.ok_or(PageError::NoTarget)?;
        let permit = limit.clone().try_acquire_owned().map_err(|_| PageError::Busy)?;
        Ok(OpenTarget { name: name.clone(), target: target.clone(), _permit: permit })
    }
}

/// A target that a request uses.
pub(crate) struct OpenTarget<T> {
    pub(crate) name: String,
    pub(crate) target: T,
    _permit: OwnedSemaphorePermit,
}

/// The time for which an answer of [`Readiness`] is current.
const CURRENT: Duration = Duration::from_secs(1);

/// The last answer of `/readyz`, which anyone may request. All callers share the answer, and none takes a permit of the pages.
#[derive(Debug, Default)]
pub(crate) struct Readiness(tokio::sync::Mutex<Option<(Instant, bool)>>);

impl Readiness {
    /// Returns whether one of the stores answers, or whether there is none. One caller at a time asks the stores, at most once
    /// within [`CURRENT`].
    pub(crate) async fn is_ready(&self, stores: &Named<Arc<dyn Store>>) -> bool {
        let mut last = self.0.lock().await;
        if let Some((_, is_ready)) = last.filter(|(at, _)| at.elapsed() < CURRENT) {
            return is_ready;
        }
        let mut is_ready = stores.is_empty();
        for (_, store) in stores.iter() {
            is_ready = is_ready || answer(idempotent_operate::store_time(&**store, None)).await.is_ok();
        }
        *last = Some((Instant::now(), is_ready));
        is_ready
    }
}

/// Waits for a target's answer for a bounded time. The error is a text for the page.
pub(crate) async fn answer<T, E: fmt::Display>(asked: impl Future<Output = Result<T, E>>) -> Result<T, String> {
    answer_within(ANSWER, asked).await
}

/// Waits for an answer for at most this time.
pub(crate) async fn answer_within<T, E: fmt::Display>(
    most: Duration,
    asked: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match tokio::time::timeout(most, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", most.as_secs())),
    }
}

type Opening = Pin<Box<dyn Future<Output = Result<Box<dyn DeadLetters>, String>> + Send>>;
type OpenLetters = dyn Fn() -> Opening + Send + Sync;

/// A queue whose dead letters are shown.
#[derive(Clone)]
pub(crate) struct Queue {
    open: Arc<OpenLetters>,
    /// The store whose keys a redrive may free.
    pub(crate) store: Option<Arc<dyn Store>>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Queue {
    pub(crate) fn new<F, E>(open: impl Fn() -> F + Send + Sync + 'static, store: Option<Arc<dyn Store>>) -> Self
    where
        F: Future<Output = Result<Box<dyn DeadLetters>, E>> + Send + 'static,
        E: fmt::Display,
    {
        let open = move || -> Opening {
            let opening = open();
            Box::pin(async { opening.await.map_err(|error| error.to_string()) })
        };
        Self { open: Arc::new(open), store }
    }

    /// Opens the dead letters for one request. Reading stops before a broker drops a letter that was read too often.
    pub(crate) async fn letters(&self) -> Result<DeliveryLimited, String> {
        Ok(DeliveryLimited::new((self.open)().await?, DeliveryLimited::RABBITMQ))
    }
}
