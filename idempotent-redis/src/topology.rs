//! Which server a key's calls go to.
use std::time::{Duration, Instant};

use idempotent_core::{Key, StoreError};

use crate::call::{Answer, Call, Said};
use crate::failure::{Failure, FailureKind};
use crate::lane::Lane;

/// The servers of a store.
#[derive(Debug)]
pub(crate) enum Topology {
    /// One that takes the writes, be it the only one, or the one that sentinels name.
    One(Lane),
}

/// Between two tries of what was surely not applied.
const PAUSES: [u64; 6] = [5, 10, 20, 40, 80, 160];

impl Topology {
    /// Sends a call; what was surely not applied and may pass in a moment is tried again within `budget`.
    pub(crate) async fn ask(&self, call: &Call, budget: Duration) -> Result<Answer, StoreError> {
        let Self::One(lane) = self;
        let mut until = None;
        let mut pauses = PAUSES.iter().chain(std::iter::repeat(&PAUSES[PAUSES.len() - 1]));
        loop {
            let failure = match lane.call(call).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if !passes(&failure) {
                return Err(failure.into());
            }
            if failure.kind == FailureKind::NotPrimary {
                lane.link().reconnect();
            }
            let until = *until.get_or_insert_with(|| Instant::now() + budget);
            let pause = Duration::from_millis(pauses.next().copied().unwrap_or(160));
            if Instant::now() + pause >= until {
                return Err(failure.because("tried again until the time for it was up").into());
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends calls in their order, those of one server together.
    pub(crate) async fn ask_all(&self, calls: &[&Call]) -> Vec<Result<Answer, StoreError>> {
        let Self::One(lane) = self;
        lane.all(calls).await.into_iter().map(|said| said.map_err(StoreError::from)).collect()
    }

    /// How many were removed: 0 or 1.
    pub(crate) async fn purge(&self, key: &Key) -> Result<usize, StoreError> {
        let answer = self.ask(&Call::purge(key), Duration::ZERO).await?;
        Ok(usize::from(answer.said == Said::Held(true)))
    }

    /// All servers that hold keys.
    pub(crate) fn lanes(&self) -> Vec<Lane> {
        let Self::One(lane) = self;
        vec![lane.clone()]
    }
}

fn passes(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::Soon | FailureKind::NotPrimary | FailureKind::NoScript)
}
