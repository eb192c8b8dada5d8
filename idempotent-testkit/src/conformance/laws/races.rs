//! Many at once: one step is one step.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimRequest, Completion, Consumed, Fencing, Held, Release, Settled, StateKind, Store, StoreError,
    StoreErrorKind, Verdict,
};
use tokio::task::JoinSet;

use crate::conformance::Subject;
use crate::conformance::subject::{HOUR, HeldBy, acquired, done, must, put_down};
use crate::conformance::together;

const RACERS: u32 = 64;
const ROUNDS: u32 = 10;

/// Asks again as long as the store says that nothing was done: under contention it may.
#[derive(Clone)]
struct Patient(Arc<dyn Store>);

impl Patient {
    async fn claim(&self, ask: &ClaimRequest) -> Claim {
        for _ in 0..PATIENCE {
            if let Some(claim) = applied(self.0.claim(ask).await).await {
                return claim;
            }
        }
        panic!("refused {PATIENCE} times in a row")
    }

    async fn complete(&self, held: &Held, completion: &Completion) -> Settled {
        for _ in 0..PATIENCE {
            if let Some(settled) = applied(self.0.complete(held, completion).await).await {
                return settled;
            }
        }
        panic!("refused {PATIENCE} times in a row")
    }

    async fn release(&self, held: &Held, release: &Release) -> Settled {
        for _ in 0..PATIENCE {
            if let Some(settled) = applied(self.0.release(held, release).await).await {
                return settled;
            }
        }
        panic!("refused {PATIENCE} times in a row")
    }
}

const PATIENCE: u32 = 1_000;

async fn applied<T>(result: Result<T, StoreError>) -> Option<T> {
    match result {
        Err(e) if e.kind() == StoreErrorKind::NotApplied => {
            tokio::time::sleep(Duration::from_millis(1)).await;
            None
        }
        other => Some(must("a racing call", other)),
    }
}

async fn race(store: &Patient, round: u32, asks: Vec<ClaimRequest>) -> Vec<Claim> {
    let claim = |ask: ClaimRequest| {
        let store = store.clone();
        async move { store.claim(&ask).await }
    };
    together::race(round, asks.into_iter().map(claim).collect()).await
}

fn racers(s: &Subject, key: &str, lease: Duration) -> Vec<ClaimRequest> {
    (100..100 + RACERS).map(|owner| ClaimRequest { key: s.key(key), lease, ..s.ask(owner.into()) }).collect()
}

fn winner(claims: &[Claim]) -> usize {
    let won: Vec<_> = (0..claims.len()).filter(|&i| matches!(claims[i], Claim::Acquired(_))).collect();
    assert_eq!(won.len(), 1, "{} of {} claims were acquired: {claims:?}", won.len(), claims.len());
    let others = claims.iter().filter(|claim| matches!(claim, Claim::InFlight(_))).count();
    assert_eq!(others, claims.len() - 1, "{claims:?}");
    won[0]
}

pub async fn of_racing_claims_one_is_acquired(s: &Subject) {
    let store = Patient(s.store.clone());
    for round in 0..ROUNDS {
        let key = format!("round {round}");
        let asks = racers(s, &key, HOUR);
        let claims = race(&store, round, asks.clone()).await;
        let won = winner(&claims);
        let settled = store.complete(&asks[won].held(), &done(b"v", HOUR)).await;
        assert_eq!(settled, Settled::Done, "the record is the winner's");
    }
}

pub async fn of_racing_takeovers_one_is_acquired(s: &Subject) {
    let store = Patient(s.store.clone());
    let rounds = if s.clock.is_some() { ROUNDS } else { 2 };
    for round in 0..rounds {
        let key = format!("round {round}");
        let first = acquired(s.claim(&ClaimRequest { key: s.key(&key), ..s.ask(1) }).await);
        s.pass(s.lease()).await;
        let claims = race(&store, round, racers(s, &key, HOUR)).await;
        let grant = acquired(claims[winner(&claims)].clone());
        assert_eq!((grant.taken_over, grant.attempt), (Some(first.fencing), 2));
    }
}

pub async fn of_a_late_completion_and_a_takeover_one_wins(s: &Subject) {
    let rounds = if s.clock.is_some() { ROUNDS * 3 } else { 2 };
    for round in 0..rounds {
        let ask = |owner| ClaimRequest { key: s.key(&format!("round {round}")), ..s.ask(owner) };
        acquired(s.claim(&ask(1)).await);
        s.pass(s.lease()).await;
        let (store, held) = (Patient(s.store.clone()), ask(1).held());
        let late = tokio::spawn(async move { store.complete(&held, &done(b"late", HOUR)).await });
        let (store, over) = (Patient(s.store.clone()), ask(2));
        let over = tokio::spawn(async move { store.claim(&over).await });
        let (late, over) = (late.await.unwrap(), over.await.unwrap());
        match (late, &over) {
            (Settled::Done, Claim::Consumed(Consumed { value, .. })) => {
                assert_eq!(value.as_deref(), Some(&b"late"[..]))
            }
            (Settled::Lost { now: StateKind::Consuming }, Claim::Acquired(_)) => {}
            both => panic!("{both:?}"),
        }
    }
}

pub async fn holders_in_turn_never_overlap_and_their_numbers_rise(s: &Subject) {
    let holders = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..8_u32 {
        let (store, holders) = (Patient(s.store.clone()), holders.clone());
        let asks: Vec<_> = (0..200_u32)
            .map(|n| ClaimRequest { lease: HOUR, ..s.ask(u128::from(task) << 32 | u128::from(n)) })
            .collect();
        tasks.spawn(async move {
            let mut grants = Vec::new();
            for ask in asks {
                let Claim::Acquired(grant) = store.claim(&ask).await else {
                    tokio::task::yield_now().await;
                    continue;
                };
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold the key at once");
                grants.push(grant.fencing);
                tokio::task::yield_now().await;
                holders.fetch_sub(1, Ordering::SeqCst);
                let held = Held::unanswered(ask.key.clone(), ask.owner);
                let verdict = if grants.len() % 2 == 0 { Verdict::Delete } else { Verdict::Vacate };
                let settled = store.release(&held, &put_down(verdict)).await;
                assert_eq!(settled, Settled::Done);
            }
            assert!(grants.is_sorted(), "numbers went back");
            grants
        });
    }
    let grants: Vec<Fencing> = tasks.join_all().await.into_iter().flatten().collect();
    let distinct: std::collections::HashSet<_> = grants.iter().collect();
    assert_eq!(distinct.len(), grants.len(), "a number was granted twice");
    assert!(!grants.is_empty());
}

pub async fn racing_copies_of_one_completion_are_all_done(s: &Subject) {
    acquired(s.claim(&ClaimRequest { lease: HOUR, ..s.ask(1) }).await);
    let mut tasks = JoinSet::new();
    for copy in 0..16_u8 {
        let (store, held) = (Patient(s.store.clone()), s.held(1));
        tasks.spawn(async move { store.complete(&held, &done(&[copy], HOUR)).await });
    }
    assert!(tasks.join_all().await.into_iter().all(|settled| settled == Settled::Done));
    let first = s.claim_by(2).await;
    assert!(matches!(first, Claim::Consumed(_)));
    assert_eq!(s.claim_by(3).await, first);
}
