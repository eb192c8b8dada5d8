//! The delay queue or delay table that an operator looks at.
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::DelayError;

/// A number, or a lower bound of a number that was counted up to a limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct BoundedCount {
    /// The number, or its lower bound.
    pub at_least: u64,
    /// True if the number is exact.
    pub is_exact: bool,
}

impl BoundedCount {
    /// Creates a count.
    #[must_use]
    pub fn new(at_least: u64, is_exact: bool) -> Self {
        Self { at_least, is_exact }
    }
}

/// Formats the number, with a `+` after a lower bound.
impl fmt::Display for BoundedCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.at_least, if self.is_exact { "" } else { "+" })
    }
}

impl From<u64> for BoundedCount {
    fn from(exact: u64) -> Self {
        Self { at_least: exact, is_exact: true }
    }
}

#[cfg(all(feature = "delay", any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
impl From<idempotent_sqlx::CappedCount> for BoundedCount {
    fn from(count: idempotent_sqlx::CappedCount) -> Self {
        Self { at_least: count.at_least, is_exact: count.is_exact }
    }
}

/// The number of delayed messages by state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DelayDepth {
    /// Messages that are due.
    pub ready: BoundedCount,
    /// Messages that are due later.
    pub waiting: BoundedCount,
    /// Messages in delivery.
    pub in_flight: BoundedCount,
    /// Dead letters.
    pub dead: BoundedCount,
    /// The time for which the oldest due message has been due, or `None` if no message is due.
    pub oldest_ready: Option<Duration>,
}

/// The counts of a delay queue or of a delay table.
#[async_trait]
pub trait DelayAccess: fmt::Debug + Send + Sync {
    /// Counts the messages in bounded time.
    ///
    /// # Errors
    /// Redis or the database failed.
    async fn depth(&self) -> Result<DelayDepth, DelayError>;
}

#[cfg(feature = "delay-queue")]
#[async_trait]
impl DelayAccess for idempotent_redis::DelayQueue {
    async fn depth(&self) -> Result<DelayDepth, DelayError> {
        let counts = self.counts().await?;
        Ok(DelayDepth {
            ready: counts.ready.into(),
            waiting: counts.waiting.into(),
            in_flight: counts.in_flight.into(),
            dead: counts.dead.into(),
            oldest_ready: counts.oldest,
        })
    }
}

#[cfg(all(feature = "delay", any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
#[async_trait]
impl<Db: idempotent_sqlx::DelayDb> DelayAccess for idempotent_sqlx::DelayTable<Db> {
    async fn depth(&self) -> Result<DelayDepth, DelayError> {
        /// The largest number that is counted.
        const CAP: u32 = 10_000;
        let backlog = self.backlog(CAP).await?;
        Ok(DelayDepth {
            ready: backlog.ready.into(),
            waiting: backlog.waiting.into(),
            in_flight: backlog.in_flight.into(),
            dead: backlog.dead.into(),
            oldest_ready: backlog.oldest,
        })
    }
}
