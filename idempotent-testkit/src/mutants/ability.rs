//! The mutant's abilities.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol;
use idempotent_core::{
    Admin, Batch, Browse, Claim, ClaimRequest, Completion, Entry, Fencing, Held, Key, Page, Purge, Record, Settled,
    State, Store, StoreError, Watch, Watching,
};

use super::{Bug, Mutant};

#[async_trait]
impl Batch for Mutant {
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        let mut claims = Vec::new();
        for request in requests {
            claims.push(self.claim(request).await);
        }
        if self.has(Bug::BatchInDisorder) {
            claims.reverse();
        }
        claims
    }

    async fn renew_all(&self, held: &[(Held, Duration)]) -> Vec<Result<Settled, StoreError>> {
        let mut settled = Vec::new();
        for (held, lease) in held {
            settled.push(self.renew(held, *lease).await);
        }
        if self.has(Bug::BatchInDisorder) {
            settled.reverse();
        }
        settled
    }

    async fn complete_all(&self, done: &[(Held, Completion)]) -> Vec<Result<Settled, StoreError>> {
        let mut settled = Vec::new();
        for (held, completion) in done {
            settled.push(self.complete(held, completion).await);
        }
        if self.has(Bug::BatchInDisorder) {
            settled.reverse();
        }
        settled
    }
}

impl Watch for Mutant {
    fn watch(&self, _: &Key) -> Watching {
        Box::pin(self.shared.bell.clone().notified_owned())
    }
}

#[async_trait]
impl Browse for Mutant {
    async fn browse(&self, after: Option<u128>, limit: usize) -> Result<Page, StoreError> {
        let (rows, now) = (self.rows(), self.clock.wall());
        let mut live: Vec<_> = rows
            .values()
            .filter(|(key, record)| {
                let fresh = after.is_none_or(|after| match self.has(Bug::BrowseRepeats) {
                    true => key.hash() + 1 > after,
                    false => key.hash() > after,
                });
                fresh && (self.has(Bug::BrowseShowsExpired) || protocol::live(Some(record), now).is_some())
            })
            .map(|(key, record)| Entry { key: key.clone(), record: record.clone() })
            .collect();
        live.sort_by_key(|entry| entry.key.hash());
        let more = live.len() > limit;
        live.truncate(limit);
        let next = live.last().filter(|_| more).map(|entry| entry.key.hash());
        Ok(Page { entries: live, next })
    }
}

#[async_trait]
impl Purge for Mutant {
    async fn purge(&self, at_most: usize) -> Result<usize, StoreError> {
        let now = self.clock.wall();
        let at_most = if self.has(Bug::PurgeWithoutBound) { usize::MAX } else { at_most };
        let mut rows = self.rows();
        let taken = |record: &Record| match record.state {
            State::Consuming { until, .. } => self.has(Bug::PurgeTakesOrphans) && until <= now,
            _ => self.has(Bug::PurgeTakesTheLiving),
        };
        let gone: Vec<_> = rows
            .iter()
            .filter(|(_, (_, record))| protocol::purgeable(record, now) || taken(record))
            .map(|(place, _)| place.clone())
            .take(at_most)
            .collect();
        gone.iter().for_each(|place| drop(rows.remove(place)));
        Ok(gone.len())
    }
}

#[async_trait]
impl Admin for Mutant {
    async fn forget(&self, key: &Key, expected: Fencing, force: bool, memory: Duration) -> Result<Settled, StoreError> {
        Ok(self.step(key, |found| {
            let expected = found.filter(|_| self.has(Bug::ForgetAnyNumber)).map_or(expected, |record| record.fencing);
            let force = force || self.has(Bug::ForgetHeld);
            protocol::forget(found, expected, force, memory, self.clock.wall())
        }))
    }
}
