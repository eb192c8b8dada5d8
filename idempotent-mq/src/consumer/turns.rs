//! The turns of handlers. A consumer that claims ahead runs more deliveries than handlers, and a claimed delivery waits for its turn.
use std::fmt;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use idempotent_core::__private::admission::HandlerTurn;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::ConsumerCounters;

/// The turns of a consumer: as many as handlers may run at the same time.
pub(crate) struct Turns {
    free: Semaphore,
    counters: ConsumerCounters,
}

impl Turns {
    pub(super) fn new(handlers: usize, counters: ConsumerCounters) -> Self {
        Self { free: Semaphore::new(handlers), counters }
    }
}

impl HandlerTurn for Turns {
    fn try_take(&self) -> bool {
        let taken = self.free.try_acquire().map(SemaphorePermit::forget).is_ok();
        if taken {
            self.counters.handler_started();
        }
        taken
    }

    fn take(&self) -> BoxFuture<'_, ()> {
        let taken = async {
            // The semaphore is never closed.
            if let Ok(turn) = self.free.acquire().await {
                turn.forget();
            }
            self.counters.handler_started();
        };
        taken.boxed()
    }

    fn end(&self) {
        self.counters.handler_ended();
        self.free.add_permits(1);
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("free", &self.free.available_permits()).finish_non_exhaustive()
    }
}
