//! Asks again as long as the store says that nothing was done, or that others are at it: under contention it may.
#![allow(clippy::panic, reason = "a store that never answers has broken the law")]
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, InFlight, Release, Settled, Store, StoreError, StoreErrorKind,
};

use super::subject::must;

/// Of real time: a server whose disk stands still for seconds keeps the others away from a key as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a function that takes a closure: the futures of those are not known to be `Send`.
macro_rules! again {
    ($call:expr) => {{
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(answer) = applied($call.await).await {
                return answer;
            }
        }
        panic!("refused for {} s in a row", PATIENCE.as_secs())
    }};
}

/// Somebody else's claim is over in a moment; then its key can be told about.
fn told(claim: Result<Claim, StoreError>) -> Result<Claim, StoreError> {
    match claim {
        Ok(Claim::InFlight(InFlight::Busy)) => Err(StoreError::new(StoreErrorKind::NotApplied)),
        told => told,
    }
}

async fn applied<T>(result: Result<T, StoreError>) -> Option<T> {
    match result {
        Err(e) if e.kind() == StoreErrorKind::NotApplied => {
            tokio::time::sleep(Duration::from_millis(1)).await;
            None
        }
        other => Some(must("a racing call", other)),
    }
}

/// A store as races use it.
#[derive(Clone)]
pub(crate) struct Patient(pub(crate) Arc<dyn Store>);

impl Patient {
    pub(crate) async fn claim(&self, ask: &ClaimRequest) -> Claim {
        again!(async { told(self.0.claim(ask).await) })
    }

    pub(crate) async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Settled {
        again!(self.0.renew(held, lease))
    }

    pub(crate) async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Settled {
        again!(self.0.complete(held, completion))
    }

    pub(crate) async fn release(&self, held: &ClaimHandle, release: &Release) -> Settled {
        again!(self.0.release(held, release))
    }
}
