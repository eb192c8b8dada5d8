//! Stores with flaws that no mutant has.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Key, MemoryStore, Record, Release, Settled, StateKind, Store,
    StoreCapabilities, StoreError,
};
use idempotent_simulator as sim;
use idempotent_testkit::VirtualClock;

use super::each;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    /// Every release succeeds, even for a caller that is not the owner.
    ReleaseAlwaysDone,
    /// A completion is confirmed, but its record expires at once.
    ConsumedNotKept,
    /// A duplicate gets no result.
    ResultLost,
    /// Every renewal is rejected.
    RenewRefused,
    /// Every completion is rejected.
    CompleteRefused,
}

#[derive(Debug)]
struct Flawed {
    flaw: Flaw,
    inner: MemoryStore,
}

fn flawed(flaw: Flaw, clock: &VirtualClock) -> Arc<dyn Store> {
    Arc::new(Flawed { flaw, inner: MemoryStore::builder().clock(Arc::new(clock.clone())).build() })
}

const REFUSED: Result<Settled, StoreError> = Ok(Settled::Lost { now: StateKind::Consuming });

#[async_trait]
impl Store for Flawed {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let mut claim = self.inner.claim(request).await?;
        if let (Flaw::ResultLost, Claim::Consumed(done)) = (self.flaw, &mut claim) {
            done.value = None;
        }
        Ok(claim)
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        if self.flaw == Flaw::RenewRefused { REFUSED } else { self.inner.renew(held, lease).await }
    }

    async fn complete(&self, held: &ClaimHandle, done: &Completion) -> Result<Settled, StoreError> {
        match self.flaw {
            Flaw::CompleteRefused => REFUSED,
            Flaw::ConsumedNotKept => {
                let short = Completion { retain: Duration::ZERO, ..done.clone() };
                self.inner.complete(held, &short).await
            }
            _ => self.inner.complete(held, done).await,
        }
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        let settled = self.inner.release(held, release).await?;
        Ok(if self.flaw == Flaw::ReleaseAlwaysDone { Settled::Done } else { settled })
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.peek(key).await
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}

#[test]
fn flaws_beyond_the_mutants_are_found_by_the_history() {
    let flaws = [
        (Flaw::ReleaseAlwaysDone, "I2"),
        (Flaw::ReleaseAlwaysDone, "I4"),
        (Flaw::ConsumedNotKept, "I4b"),
        (Flaw::ResultLost, "I5"),
        (Flaw::RenewRefused, "I14"),
        (Flaw::CompleteRefused, "I14"),
    ];
    let unfound = each(&flaws, |(flaw, name)| {
        let found = (0..200).any(|seed| sim::run(seed, |clock| flawed(*flaw, clock)).violates(name));
        (!found).then(|| format!("{flaw:?} by {name}"))
    });
    assert_eq!(unfound.into_iter().flatten().collect::<Vec<_>>(), [""; 0]);
}
