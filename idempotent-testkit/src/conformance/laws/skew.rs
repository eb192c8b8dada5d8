//! Laws about two processes whose clocks differ by the declared maximum, in both directions.
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Grant, Identity, Key, OnExpiry, OwnerToken, Release,
    ReleaseKind, Scene, Settled, StateKind, Store,
};

use crate::conformance::SkewedStores;
pub use crate::conformance::skew::all;
use crate::conformance::subject::{HOUR, HeldBy, MS, acquired, must};

const LEASE: Duration = Duration::from_secs(30);
const RETENTION: Duration = Duration::from_secs(600);

/// The owner of a key, and another process.
struct Pair<'a> {
    name: &'static str,
    owner: &'a dyn Store,
    other: &'a dyn Store,
}

impl SkewedStores {
    fn pairs(&self) -> [Pair<'_>; 2] {
        let [ahead, behind] = &self.stores;
        [
            Pair { name: "the owner's clock is ahead", owner: &**ahead, other: &**behind },
            Pair { name: "the owner's clock is behind", owner: &**behind, other: &**ahead },
        ]
    }

    async fn pass(&self, by: Duration) {
        self.clock.pass(by).await;
    }
}

impl Pair<'_> {
    fn key(&self) -> Key {
        Identity::new(Scene::Mq, "skew law", self.name).key("laws").expect("a short key")
    }

    fn request(&self, owner: u128) -> ClaimRequest {
        ClaimRequest {
            key: self.key(),
            owner: OwnerToken(owner),
            lease: LEASE,
            fingerprint: None,
            max_attempts: 0,
            on_expiry: OnExpiry::Takeover,
            retention: HOUR,
            display: None,
        }
    }

    fn held(&self, owner: u128) -> ClaimHandle {
        self.request(owner).held()
    }

    async fn claim(&self, store: &dyn Store, owner: u128) -> Claim {
        must("claim", store.claim(&self.request(owner)).await)
    }

    async fn acquire(&self, owner: u128) -> Grant {
        acquired(self.claim(self.owner, owner).await)
    }

    async fn other_state(&self) -> StateKind {
        let record = must("peek", self.other.peek(&self.key()).await);
        record.map_or(StateKind::Absent, |record| record.state.kind())
    }
}

pub async fn no_lease_is_taken_over_early(s: &SkewedStores) {
    for pair in s.pairs() {
        pair.acquire(1).await;
        s.pass(LEASE - MS).await;
        assert!(matches!(pair.claim(pair.other, 2).await, Claim::InFlight(_)), "{}: the last ms", pair.name);
        let renewed = must("renew", pair.owner.renew(&pair.held(1), LEASE).await);
        assert_eq!(renewed, Settled::Done, "{}", pair.name);
        s.pass(LEASE - MS).await;
        let claim = pair.claim(pair.other, 2).await;
        assert!(matches!(claim, Claim::InFlight(_)), "{}: the last ms of the renewed lease", pair.name);
    }
}

pub async fn a_lease_may_be_taken_over_after_twice_the_difference(s: &SkewedStores) {
    for pair in s.pairs() {
        let first = pair.acquire(1).await;
        s.pass(LEASE + 2 * s.max_skew).await;
        let second = acquired(pair.claim(pair.other, 2).await);
        assert_eq!(second.taken_over, Some(first.fencing), "{}", pair.name);
    }
}

pub async fn a_settled_key_is_kept_for_its_retention(s: &SkewedStores) {
    for state in [StateKind::Consumed, StateKind::Failed, StateKind::Dead] {
        for pair in s.pairs() {
            pair.acquire(1).await;
            let settled = match state {
                StateKind::Consumed => {
                    let done = Completion { value: None, retain: RETENTION };
                    pair.owner.complete(&pair.held(1), &done).await
                }
                _ => {
                    let kind = if state == StateKind::Dead { ReleaseKind::MarkDead } else { ReleaseKind::MarkFailed };
                    pair.owner.release(&pair.held(1), &release(kind)).await
                }
            };
            assert_eq!(must("settle", settled), Settled::Done);
            s.pass(RETENTION - MS).await;
            assert_eq!(pair.other_state().await, state, "{}: the last ms", pair.name);
            s.pass(2 * s.max_skew + MS).await;
            assert_eq!(pair.other_state().await, StateKind::Absent, "{}: after twice the difference", pair.name);
        }
    }
    a_buried_key_is_kept_for_its_retention(s).await;
}

/// Checks the retention of a key that is settled by a claim, which finds no attempt left.
async fn a_buried_key_is_kept_for_its_retention(s: &SkewedStores) {
    for pair in s.pairs() {
        let request = |owner| ClaimRequest { max_attempts: 1, retention: RETENTION, ..pair.request(owner) };
        acquired(must("claim", pair.other.claim(&request(1)).await));
        s.pass(LEASE + 2 * s.max_skew).await;
        let buried = must("claim", pair.owner.claim(&request(2)).await);
        assert!(matches!(buried, Claim::Dead(_)), "{}: {buried:?}", pair.name);
        s.pass(RETENTION - MS).await;
        assert_eq!(pair.other_state().await, StateKind::Dead, "{}: the last ms of a buried key", pair.name);
        s.pass(2 * s.max_skew + MS).await;
        assert_eq!(pair.other_state().await, StateKind::Absent, "{}: after twice the difference", pair.name);
    }
}

pub async fn an_owner_is_granted_the_lease_of_its_request(s: &SkewedStores) {
    for pair in s.pairs() {
        assert_eq!(pair.acquire(1).await.lease, LEASE, "{}", pair.name);
        assert_eq!(pair.acquire(1).await.lease, LEASE, "{}: the same claim again", pair.name);
    }
}

pub async fn fencing_rises_over_two_clocks(s: &SkewedStores) {
    for pair in s.pairs() {
        let mut last = FencingToken(0);
        for round in 0..8_u32 {
            let store = if round % 2 == 0 { pair.owner } else { pair.other };
            let owner = u128::from(round) + 1_u128;
            let fencing = acquired(pair.claim(store, owner).await).fencing;
            assert!(fencing > last, "{}, round {round}: {fencing} after {last}", pair.name);
            last = fencing;
            match round {
                0..4 => {
                    let released = store.release(&pair.held(owner), &release(ReleaseKind::Delete)).await;
                    assert_eq!(must("release", released), Settled::Done);
                    // A key that a clock ahead has released is free for a slow clock after the difference.
                    s.pass(s.max_skew).await;
                }
                4..6 => s.pass(LEASE + 2 * s.max_skew).await,
                // The record is gone.
                _ => s.pass(3 * HOUR).await,
            }
        }
    }
}

fn release(kind: ReleaseKind) -> Release {
    Release { kind, delay: Duration::ZERO, retention: RETENTION, error: "failed".into() }
}
