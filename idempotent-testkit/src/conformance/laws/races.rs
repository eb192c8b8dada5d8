//! Races: one operation is one atomic step. Each race has 64 tasks, and runs for
//! [`Subject::rounds`](crate::Subject::rounds) rounds.
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idempotent_core::{Claim, ClaimRequest, Consumed, FencingToken, ReleaseKind, Settled, StateKind};
use tokio::task::JoinSet;

use crate::conformance::Subject;
use crate::conformance::patient::Patient;
use crate::conformance::subject::{HOUR, HeldBy, acquired, done, put_down};
use crate::conformance::together;

const RACERS: u32 = 64;

async fn race(store: &Patient, round: u32, asks: Vec<ClaimRequest>) -> Vec<Claim> {
    let claim = |ask: ClaimRequest| {
        let store = store.clone();
        async move { store.claim(&ask).await }
    };
    together::race(round, asks.into_iter().map(claim).collect()).await
}

pub(super) fn racers(s: &Subject, key: &str, lease: Duration) -> Vec<ClaimRequest> {
    (100..100 + RACERS).map(|owner| ClaimRequest { lease, ..s.ask_on(key, owner.into()) }).collect()
}

pub(super) fn winner(claims: &[Claim]) -> usize {
    let won: Vec<_> = (0..claims.len()).filter(|&i| matches!(claims[i], Claim::Acquired(_))).collect();
    assert_eq!(won.len(), 1, "{} of {} claims were acquired", won.len(), claims.len());
    let other = claims.iter().find(|claim| !matches!(claim, Claim::Acquired(_) | Claim::InFlight(_)));
    assert_eq!(other, None, "the others are in flight");
    won[0]
}

pub(super) fn of_round(round: u32) -> String {
    format!("round {round}")
}

/// Creates a key for each round, held by owner 1, with an expired lease.
pub(super) async fn overdue(s: &Subject) -> Vec<FencingToken> {
    let mut first = Vec::new();
    for round in 0..s.race_rounds() {
        first.push(acquired(s.claim(&s.ask_on(&of_round(round), 1)).await).fencing);
    }
    s.pass(s.lease()).await;
    first
}

pub async fn one_of_several_racing_claims_is_acquired(s: &Subject) {
    let store = Patient(s.store.clone());
    for round in 0..s.race_rounds() {
        let asks = racers(s, &of_round(round), HOUR);
        let claims = race(&store, round, asks.clone()).await;
        let won = winner(&claims);
        let settled = store.complete(&asks[won].held(), &done(b"v", HOUR)).await;
        assert_eq!(settled, Settled::Done, "the record is the winner's");
    }
}

pub async fn one_of_several_racing_takeovers_is_acquired(s: &Subject) {
    let store = Patient(s.store.clone());
    for (round, first) in (0..).zip(overdue(s).await) {
        let claims = race(&store, round, racers(s, &of_round(round), HOUR)).await;
        let grant = acquired(claims[winner(&claims)].clone());
        assert_eq!((grant.taken_over, grant.attempt), (Some(first), 2));
    }
}

/// The answer to a racer.
#[derive(Debug)]
enum Said {
    Late(Settled),
    Over(Claim),
}

type Racer = Pin<Box<dyn Future<Output = Said> + Send>>;

/// Settles a key with an expired lease by its owner, while others take it over. The owner is at any position among
/// them.
async fn late_among_takeovers(
    s: &Subject,
    round: u32,
    late: impl Future<Output = Settled> + Send + 'static,
) -> (Settled, Vec<Claim>) {
    let store = Patient(s.store.clone());
    let mut racing: Vec<Racer> = Vec::new();
    for ask in racers(s, &of_round(round), HOUR).into_iter().skip(1) {
        let store = store.clone();
        racing.push(Box::pin(async move { Said::Over(store.claim(&ask).await) }));
    }
    racing.insert((round % RACERS) as usize, Box::pin(async move { Said::Late(late.await) }));
    let (mut settled, mut claims) = (None, Vec::new());
    for said in together::race(round, racing).await {
        match said {
            Said::Late(late) => settled = Some(late),
            Said::Over(claim) => claims.push(claim),
        }
    }
    (settled.expect("the owner was among them"), claims)
}

pub async fn either_a_late_completion_or_a_takeover_wins(s: &Subject) {
    overdue(s).await;
    for round in 0..s.race_rounds() {
        let (store, held) = (Patient(s.store.clone()), s.ask_on(&of_round(round), 1).held());
        let late = async move { store.complete(&held, &done(b"late", HOUR)).await };
        match late_among_takeovers(s, round, late).await {
            (Settled::Done, claims) => {
                let late = |claim: &Claim| matches!(claim, Claim::Consumed(Consumed { value: Some(v), .. }) if &**v == b"late");
                assert_eq!(
                    claims.iter().find(|claim| !late(claim)),
                    None,
                    "the key was completed, but one got another answer"
                );
            }
            (Settled::Lost { now: StateKind::Consuming }, claims) => drop(winner(&claims)),
            (late, claims) => panic!("the late owner got {late:?}, and the others {:?}, …", claims.first()),
        }
    }
}

pub async fn either_a_late_renewal_or_release_or_a_takeover_wins(s: &Subject) {
    overdue(s).await;
    for round in 0..s.race_rounds() {
        let (store, held) = (Patient(s.store.clone()), s.ask_on(&of_round(round), 1).held());
        if round % 3 == 0 {
            let late = async move { store.renew(&held, HOUR).await };
            match late_among_takeovers(s, round, late).await {
                (Settled::Done, claims) => {
                    let other = claims.iter().find(|claim| !matches!(claim, Claim::InFlight(_)));
                    assert_eq!(other, None, "the lease was renewed, but one got another answer");
                }
                (Settled::Lost { now: StateKind::Consuming }, claims) => drop(winner(&claims)),
                (late, claims) => panic!("the late owner got {late:?}, and the others {:?}, …", claims.first()),
            }
        } else {
            let late = async move { store.release(&held, &put_down(ReleaseKind::Vacate)).await };
            let (settled, claims) = late_among_takeovers(s, round, late).await;
            let grant = acquired(claims[winner(&claims)].clone());
            // In both cases one of them has the key: released by its late owner, or taken over.
            assert_eq!((grant.attempt, grant.taken_over.is_none()), (2, settled == Settled::Done), "{settled:?}");
        }
    }
}

pub async fn successive_holders_never_overlap_and_their_tokens_rise(s: &Subject) {
    let holders = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    let rounds = s.race_rounds().div_ceil(10);
    for task in 0..RACERS {
        let (store, holders) = (Patient(s.store.clone()), holders.clone());
        let ask = |n| ClaimRequest { lease: HOUR, ..s.ask(u128::from(task) << 32 | u128::from(n)) };
        let asks: Vec<_> = (0..rounds).map(ask).collect();
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
                let verdict = if grants.len() % 2 == 0 { ReleaseKind::Delete } else { ReleaseKind::Vacate };
                let settled = store.release(&ask.held(), &put_down(verdict)).await;
                assert_eq!(settled, Settled::Done);
            }
            assert!(grants.is_sorted(), "numbers went back");
            grants
        });
    }
    let grants: Vec<FencingToken> = tasks.join_all().await.into_iter().flatten().collect();
    let distinct: HashSet<_> = grants.iter().collect();
    assert_eq!(distinct.len(), grants.len(), "a number was granted twice");
    assert!(!grants.is_empty());
}

pub async fn racing_copies_of_one_completion_are_all_done(s: &Subject) {
    for round in 0..s.race_rounds().div_ceil(10) {
        let ask = |owner| ClaimRequest { lease: HOUR, ..s.ask_on(&of_round(round), owner) };
        acquired(s.claim(&ask(1)).await);
        let copies = (0..RACERS).map(|copy| {
            let (store, held) = (Patient(s.store.clone()), ask(1).held());
            async move { store.complete(&held, &done(&copy.to_le_bytes(), HOUR)).await }
        });
        let settled = together::race(round, copies.collect()).await;
        assert!(settled.iter().all(|settled| *settled == Settled::Done), "{settled:?}");
        let first = s.claim(&ask(2)).await;
        assert!(matches!(first, Claim::Consumed(_)));
        assert_eq!(s.claim(&ask(3)).await, first);
    }
}
