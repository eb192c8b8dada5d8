//! The owners of claims that have had no answer.
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use idempotent_core::{ClaimRequest, OwnerToken, StoreError};

/// Largest number of owners. An owner is removed once its record has expired.
const MOST: usize = 16_384;

/// The owners of claims that have had no answer, although a command may have written their records.
///
/// The fencing number of such a record may be too low: the server's clock may have passed it before the write. A repeated
/// claim of the same owner must raise the number. Every other claim finds the number or a higher one.
#[derive(Debug, Default)]
pub(crate) struct UnansweredClaims {
    owners: Mutex<Owners>,
    /// The number of owners, plus one while every repeated claim raises its number.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Owners {
    until: HashMap<OwnerToken, Instant>,
    /// The time until which any owner may be one that did not fit.
    all_until: Option<Instant>,
}

/// Claims that wait for their answers. Their owners are added if the value is dropped before.
#[derive(Debug)]
pub(crate) struct PendingClaims<'a> {
    unanswered: &'a UnansweredClaims,
    requests: &'a [ClaimRequest],
}

impl PendingClaims<'_> {
    /// Adds the owners of claims that have failed. A failed claim may have been applied.
    pub(crate) fn answered<T>(mut self, answers: &[Result<T, StoreError>]) {
        for (request, answer) in std::mem::take(&mut self.requests).iter().zip(answers) {
            if answer.is_err() {
                self.unanswered.add(request);
            }
        }
    }
}

impl Drop for PendingClaims<'_> {
    fn drop(&mut self) {
        self.requests.iter().for_each(|request| self.unanswered.add(request));
    }
}

impl UnansweredClaims {
    /// Watches claims until they are answered.
    pub(crate) fn watch<'a>(&'a self, requests: &'a [ClaimRequest]) -> PendingClaims<'a> {
        PendingClaims { unanswered: self, requests }
    }

    /// Returns whether a claim of this owner has had no answer.
    pub(crate) fn contains(&self, owner: OwnerToken) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let now = Instant::now();
        let owners = self.lock();
        owners.all_until.is_some_and(|until| until > now) || owners.until.contains_key(&owner)
    }

    fn add(&self, request: &ClaimRequest) {
        // A record that is never settled expires after its lease and retention.
        let kept = request.lease.saturating_add(request.retention).saturating_add(Duration::from_secs(60));
        let now = Instant::now();
        let until = now.checked_add(kept).unwrap_or_else(|| now + Duration::from_secs(366 * 24 * 3_600));
        let mut owners = self.lock();
        if owners.until.len() >= MOST {
            owners.until.retain(|_, until| *until > now);
        }
        if owners.until.len() < MOST {
            owners.until.insert(request.owner, until);
        } else {
            owners.all_until = owners.all_until.max(Some(until));
        }
        let count = owners.until.len() + usize::from(owners.all_until.is_some());
        self.count.store(count, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Owners> {
        // No code panics while it holds this lock.
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_core::{Identity, Scene, StoreErrorKind};

    use super::*;

    fn request(part: usize) -> ClaimRequest {
        ClaimRequest::new(Identity::new(Scene::Mq, "orders", &part.to_string()).key("shop").unwrap()).unwrap()
    }

    #[test]
    fn a_claim_that_fails_or_is_dropped_is_unanswered_and_an_answered_one_is_not() {
        let (unanswered, requests) = (UnansweredClaims::default(), [request(1), request(2), request(3)]);
        let failed = StoreError::new(StoreErrorKind::Ambiguous);
        unanswered.watch(&requests[..2]).answered(&[Ok(()), Err(failed)]);
        assert_eq!(requests.clone().map(|request| unanswered.contains(request.owner)), [false, true, false]);
        drop(unanswered.watch(&requests[2..]));
        assert_eq!(requests.map(|request| unanswered.contains(request.owner)), [false, true, true]);
    }

    #[test]
    fn beyond_the_limit_every_owner_counts_as_unanswered() {
        let unanswered = UnansweredClaims::default();
        let one = request(0);
        for part in 1..=MOST {
            unanswered.add(&request(part));
        }
        assert!(!unanswered.contains(one.owner));
        unanswered.add(&one);
        assert!(unanswered.contains(one.owner) && unanswered.contains(request(1).owner));
    }

    #[test]
    fn an_owner_is_removed_after_its_record_has_expired() {
        let unanswered = UnansweredClaims::default();
        let past = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        unanswered.lock().until.extend((1..=MOST).map(|part| (request(part).owner, past)));
        unanswered.add(&request(0));
        assert_eq!(unanswered.lock().until.len(), 1);
    }
}
