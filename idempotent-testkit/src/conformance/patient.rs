//! A store that retries calls while the wrapped store reports that they were not applied or that the key is busy, which
//! is allowed under contention.
#![allow(clippy::panic, reason = "a store that never answers has broken the law")]
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, InFlight, Release, Settled, Store, StoreError, StoreErrorKind,
};

use super::subject::must;

/// The limit in real time: a server whose disk stalls for seconds blocks a key for as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A macro and not a function with a closure, whose futures would not be known to be `Send`.
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

/// Treats a busy key as not applied: the claim of another owner ends in a moment, and then the answer is known.
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

/// A store for races.
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
