//! The state that clones of a publisher share.
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::DelayTopology;
use crate::shared_connection::SharedConnection;

pub(super) struct PublisherState {
    pub(super) connection: SharedConnection,
    /// One permit for each channel in use.
    pub(super) permits: Semaphore,
    pub(super) confirm_within: Duration,
    pub(super) give_up_after: Duration,
    pub(super) delays: DelayTopology,
    /// Exchanges that have accepted a message. Only messages to these share a channel.
    proven: Mutex<HashSet<String>>,
}

/// Maximum number of proven exchanges.
const MAX_PROVEN: usize = 1_000;

impl PublisherState {
    pub(super) fn new(
        connection: SharedConnection,
        in_flight: usize,
        confirm_within: Duration,
        give_up_after: Duration,
        delays: DelayTopology,
    ) -> Self {
        let permits = Semaphore::new(in_flight);
        Self { connection, permits, confirm_within, give_up_after, delays, proven: Mutex::default() }
    }

    /// Waits for a permit until `end`, or returns `None`.
    pub(super) async fn permit(&self, end: Instant) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        timeout_at(end, self.permits.acquire()).await.ok()?.ok()
    }

    pub(super) fn is_proven(&self, exchange: &str) -> bool {
        self.proven().contains(exchange)
    }

    pub(super) fn prove(&self, exchange: &str) {
        let mut proven = self.proven();
        if !proven.contains(exchange) {
            // Producers may generate names, so the set must not grow forever.
            if proven.len() >= MAX_PROVEN {
                proven.clear();
            }
            proven.insert(exchange.to_owned());
        }
    }

    pub(super) fn unprove(&self, exchange: &str) {
        self.proven().remove(exchange);
    }

    fn proven(&self) -> MutexGuard<'_, HashSet<String>> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
