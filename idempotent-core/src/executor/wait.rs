//! Waiting for a run in flight: by notification, not by asking again and again.
use std::time::{Duration, Instant};

use super::Executor;
use super::drain::Phase;
use crate::{InFlight, Key, Watching};

/// Asked again this often where the store cannot tell that another process has settled the key.
const POLL: Duration = Duration::from_millis(50);

/// Duplicates that wait at once in one executor; more are told to come back later.
pub(super) const MOST: usize = 10_000;

impl Executor {
    /// Begins to wait: what settles the key from now on ends the returned future.
    pub(super) fn watch(&self, key: &Key) -> Watching {
        match self.0.store.abilities().watch {
            Some(watch) => watch.watch(key),
            None => self.0.waiters.watch(key.hash()),
        }
    }

    /// Ends when the key may have been settled, its lease has run out, at `deadline`, or when a drain is so far.
    pub(super) async fn settled(&self, settled: Watching, in_flight: InFlight, deadline: Instant, until: Phase) {
        let now = self.0.clock.now();
        let rest = match in_flight {
            InFlight::Leased { rest } => rest.max(Duration::from_millis(1)),
            InFlight::Busy => POLL,
        };
        let told_by_all = self.0.store.abilities().watch.is_some();
        let ask_again = now + if told_by_all { rest } else { rest.min(POLL) };
        tokio::select! {
            biased;
            () = settled => {}
            () = self.0.clock.sleep_until(ask_again.min(deadline)) => {}
            () = self.0.gate.reached(until) => {}
        }
    }
}
