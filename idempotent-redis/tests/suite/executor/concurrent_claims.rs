//! Concurrent claims for one key.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use idempotent_core::{Claim, ClaimHandle, FencingToken, OwnerToken, ReleaseKind, Settled, Store};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::{ask, key, put_down};

const CLAIMS: usize = 50;
const ROUNDS: u32 = 1_000;

/// Opens a store with long timeouts, because a server on a busy machine may pause for seconds.
async fn patient(server: &RedisServer) -> RedisStore {
    let builder = RedisStore::builder(server.url()).response_timeout(Duration::from_secs(30));
    builder.cache(None).connect().await.unwrap()
}

/// Claims concurrently over these connections, with tokens of this round. Returns the winners and their numbers.
async fn race(stores: &[RedisStore], part: &str, round: u32) -> Vec<(u128, FencingToken)> {
    let barrier = Arc::new(Barrier::new(CLAIMS));
    let mut claims = JoinSet::new();
    for (number, store) in (1..=CLAIMS as u128).zip(stores.iter().cycle()) {
        let owner = u128::from(round) << 64 | number;
        let (store, request, barrier) = (store.clone(), ask(part, owner), barrier.clone());
        claims.spawn(async move {
            barrier.wait().await;
            (owner, store.claim(&request).await.unwrap())
        });
    }
    let won = |(owner, claim)| match claim {
        Claim::Acquired(grant) => Some((owner, grant.fencing)),
        Claim::InFlight(_) => None,
        other => panic!("{other:?}"),
    };
    claims.join_all().await.into_iter().filter_map(won).collect()
}

/// A `GET` followed by a `SET` would allow two winners.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_one_of_50_concurrent_claims_wins() {
    let server = RedisServer::start();
    let mut stores = Vec::new();
    for _ in 0..5 {
        stores.push(patient(&server).await);
    }
    let mut last = FencingToken(0);
    for round in 0..ROUNDS {
        let part = format!("k{}", round % 7);
        let winners = race(&stores, &part, round).await;
        let [(owner, fencing)] = winners[..] else { panic!("round {round}: {winners:?}") };
        assert!(round % 7 != 0 || fencing > last, "numbers rise");
        last = if round % 7 == 0 { fencing } else { last };
        // Frees the key for the next round, by deletion or as vacant.
        let verdict = if round % 2 == 0 { ReleaseKind::Delete } else { ReleaseKind::Vacate };
        let held = ClaimHandle { key: key(&part), owner: OwnerToken(owner), fencing: Some(fencing), terms: None };
        assert_eq!(stores[0].release(&held, &put_down(verdict)).await.unwrap(), Settled::Done);
    }
}

/// A record may vanish while other claims are rejected because of it. The key is then claimed again, and no run starts
/// without a grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vanished_record_is_claimed_again_and_never_twice() {
    let server = Arc::new(RedisServer::start());
    let stores = [patient(&server).await, patient(&server).await];
    let over = Arc::new(AtomicBool::new(false));
    // Deletes the key repeatedly during the claims, like an operator, an eviction or a flush.
    let vanishing = std::thread::spawn({
        let (server, over) = (server.clone(), over.clone());
        move || {
            let mut connection = server.connect();
            let mut gone = 0;
            while !over.load(SeqCst) {
                gone += connection.ask(&["DEL", key("k").as_str()]).unwrap().integer().unwrap();
            }
            gone
        }
    });
    let mut numbers = Vec::new();
    for round in 0..100 {
        let winners = race(&stores, "k", round).await;
        numbers.extend(winners.iter().map(|(_, fencing)| *fencing));
    }
    over.store(true, SeqCst);
    let gone = usize::try_from(vanishing.join().unwrap()).unwrap();
    let granted = numbers.len();
    assert!(gone > 0 && granted >= 100, "{gone} vanished, {granted} granted");
    assert!(
        (gone..=gone + 1).contains(&granted),
        "one grant for each marker that vanished, and the last: {gone}, {granted}"
    );
}
