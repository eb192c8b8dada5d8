//! Waiting for the end of a run in flight, by notification instead of polling.
use std::time::{Duration, Instant};

use super::{DrainPhase, Engine, KnownInFlight};
use crate::{ClaimRequest, InFlight, Key, Watching};

/// The polling interval for stores that do not notify about keys settled by other processes.
const POLL: Duration = Duration::from_millis(50);

/// The maximum number of waiting duplicates per executor. Further duplicates are deferred.
pub(super) const MAX_WAITERS: usize = 10_000;

impl Engine {
    /// Starts to watch the key. The returned future completes at the next settlement of the key.
    pub(crate) fn watch(&self, key: &Key) -> Watching {
        match self.store.capabilities().watch {
            Some(watch) => watch.watch(key),
            None => self.waiters.watch(key.hash()),
        }
    }

    /// Returns the answer to the claim if the key is known to be in flight, and a future that completes when a run of
    /// this executor settles the key.
    pub(crate) fn watch_known(&self, request: &ClaimRequest) -> Option<(KnownInFlight, Watching)> {
        let keys = self.in_flight_keys.as_ref()?;
        // Watched before the look-up, so that no settlement in between is missed.
        let settled = self.waiters.watch(request.key.hash());
        keys.in_flight(request, self.clock.now()).map(|known| (known, settled))
    }

    /// Waits until a run of this executor settles a known key, the store has to be asked, `deadline` has passed, or a
    /// drain has reached `phase`.
    pub(crate) async fn wait_for_known(
        &self,
        (known, settled): (KnownInFlight, Watching),
        deadline: Instant,
        phase: DrainPhase,
    ) {
        tokio::select! {
            biased;
            () = settled => {}
            () = self.clock.sleep_until(known.ask_again.min(deadline)) => {}
            () = self.drain.wait_for(phase) => {}
        }
    }

    /// Waits until the key may be settled, its lease has expired, `deadline` has passed, or a drain has reached
    /// `phase`. Returns true if the key may be settled.
    pub(crate) async fn wait_for_settlement(
        &self,
        settled: Watching,
        in_flight: InFlight,
        deadline: Instant,
        phase: DrainPhase,
    ) -> bool {
        let now = self.clock.now();
        let rest = match in_flight {
            InFlight::Leased { rest } => rest.max(Duration::from_millis(1)),
            InFlight::Busy => POLL,
        };
        let notifies = self.store.capabilities().watch.is_some();
        let check_again = now + if notifies { rest } else { rest.min(POLL) };
        tokio::select! {
            biased;
            () = settled => true,
            () = self.clock.sleep_until(check_again.min(deadline)) => false,
            () = self.drain.wait_for(phase) => false,
        }
    }
}
