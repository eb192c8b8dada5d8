//! The mutant's capabilities.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol;
use idempotent_core::{
    Admin, Batch, Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Key, Purge, Record, Settled, State,
    Store, StoreError, Watch, Watching,
};

use super::{Bug, Mutant, lock};

impl Mutant {
    /// Returns the answers of a batch as the bug changes them.
    fn answers<T>(&self, mut answers: Vec<Result<T, StoreError>>) -> Vec<Result<T, StoreError>> {
        if self.has(Bug::BatchInDisorder) {
            answers.reverse();
        }
        let kind = answers.iter().find_map(|answer| answer.as_ref().err().map(StoreError::kind));
        match kind.filter(|_| self.has(Bug::BatchFailsAsAWhole)) {
            Some(kind) => answers.iter().map(|_| Err(StoreError::new(kind))).collect(),
            None => answers,
        }
    }
}

#[async_trait]
impl Batch for Mutant {
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        let mut claims = Vec::new();
        for request in requests {
            claims.push(self.claim(request).await);
        }
        self.answers(claims)
    }

    async fn renew_all(&self, held: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>> {
        let mut settled = Vec::new();
        for (held, lease) in held {
            settled.push(self.renew(held, *lease).await);
        }
        self.answers(settled)
    }

    async fn complete_all(&self, done: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>> {
        let mut settled = Vec::new();
        for (held, completion) in done {
            settled.push(self.complete(held, completion).await);
        }
        self.answers(settled)
    }
}

impl Watch for Mutant {
    fn watch(&self, _: &Key) -> Watching {
        Box::pin(self.bell().clone().notified_owned())
    }
}

#[async_trait]
impl Purge for Mutant {
    async fn purge(&self, at_most: usize) -> Result<usize, StoreError> {
        let now = self.now();
        let at_most = if self.has(Bug::PurgeWithoutBound) { usize::MAX } else { at_most };
        if self.has(Bug::PurgeTakesLines) {
            lock(&self.shared.lines).clear();
        }
        let mut rows = self.rows();
        let taken = |record: &Record| match record.state {
            _ if self.has(Bug::PurgeForgetsNumber) => record.expires_at <= now,
            State::Consuming { until, .. } => self.has(Bug::PurgeTakesOrphans) && until <= now,
            _ => self.has(Bug::PurgeTakesTheLiving),
        };
        let goes = |row: &super::Row| match self.read(row) {
            Ok(Some(record)) => protocol::purgeable(&record, now) || taken(&record),
            Ok(None) => true,
            Err(_) => self.has(Bug::PurgeTakesUnreadable),
        };
        let gone: Vec<_> =
            rows.iter().filter(|(_, row)| goes(row)).map(|(place, _)| place.clone()).take(at_most).collect();
        gone.iter().for_each(|place| drop(rows.remove(place)));
        lock(&self.own.known).clear();
        Ok(gone.len())
    }
}

#[async_trait]
impl Admin for Mutant {
    async fn forget(
        &self,
        key: &Key,
        expected: FencingToken,
        force: bool,
        retention: Duration,
    ) -> Result<Settled, StoreError> {
        self.settle(key, |found| {
            let expected = found.filter(|_| self.has(Bug::ForgetAnyNumber)).map_or(expected, |record| record.fencing);
            let force = force || self.has(Bug::ForgetHeld);
            protocol::forget(found, expected, force, retention, self.now())
        })
        .await
    }
}
