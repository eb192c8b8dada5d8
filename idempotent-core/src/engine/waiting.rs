//! Waiting for the end of a run in flight, by notification instead of by polling.
use std::time::{Duration, Instant};

use super::{DrainPhase, Engine};
use crate::{InFlight, Key, Watching};

/// The polling interval for stores that do not notify of keys that another process has settled.
const POLL: Duration = Duration::from_millis(50);

/// The most duplicates of one executor that wait at once. Further ones are deferred.
pub(super) const MAX_WAITERS: usize = 10_000;

impl Engine {
    /// Starts to wait for the key. The returned future ends when the key is settled from now on.
    pub(crate) fn watch(&self, key: &Key) -> Watching {
        match self.store.abilities().watch {
            Some(watch) => watch.watch(key),
            None => self.waiters.watch(key.hash()),
        }
    }

    /// Waits until the key may be settled, its lease has expired, `deadline` has passed, or a drain has reached `until`.
    pub(crate) async fn wait_for_settlement(
        &self,
        settled: Watching,
        in_flight: InFlight,
        deadline: Instant,
        phase: DrainPhase,
    ) {
        let now = self.clock.now();
        let rest = match in_flight {
            InFlight::Leased { rest } => rest.max(Duration::from_millis(1)),
            InFlight::Busy => POLL,
        };
        let notifies = self.store.abilities().watch.is_some();
        let check_again = now + if notifies { rest } else { rest.min(POLL) };
        tokio::select! {
            biased;
            () = settled => {}
            () = self.clock.sleep_until(check_again.min(deadline)) => {}
            () = self.drain.wait_for(phase) => {}
        }
    }
}
