//! Claims that meet.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use idempotent_core::{Claim, Fencing, Held, OwnerToken, Settled, Store, Verdict};
use idempotent_redis::RedisStore;
use idempotent_testkit::servers::RedisServer;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::{ask, key, put_down};

const CLAIMS: usize = 50;
const ROUNDS: u32 = 1_000;

/// On a machine that is busy a server may stand still for seconds: no race is lost by that.
async fn patient(server: &RedisServer) -> RedisStore {
    let builder = RedisStore::builder(server.url()).response_timeout(Duration::from_secs(30));
    builder.cache(None).connect().await.unwrap()
}

/// All at once, over these connections in turn, by tokens of this round; who got the key, by which number.
async fn race(stores: &[RedisStore], part: &str, round: u32) -> Vec<(u128, Fencing)> {
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

/// M12: with `GET` and then `SET` there were two winners.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b17_m12_of_50_claims_one_wins() {
    let server = RedisServer::start();
    let mut stores = Vec::new();
    for _ in 0..5 {
        stores.push(patient(&server).await);
    }
    let mut last = Fencing(0);
    for round in 0..ROUNDS {
        let part = format!("k{}", round % 7);
        let winners = race(&stores, &part, round).await;
        let [(owner, fencing)] = winners[..] else { panic!("round {round}: {winners:?}") };
        assert!(round % 7 != 0 || fencing > last, "numbers rise");
        last = if round % 7 == 0 { fencing } else { last };
        // Free again for the next: deleted, or vacant.
        let verdict = if round % 2 == 0 { Verdict::Delete } else { Verdict::Vacate };
        let held = Held { key: key(&part), owner: OwnerToken(owner), fencing: Some(fencing) };
        assert_eq!(stores[0].release(&held, &put_down(verdict)).await.unwrap(), Settled::Done);
    }
}

/// K16, K47: a marker that vanishes while others are refused for it is claimed again; nobody runs without a grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b17_k16_k47_a_marker_that_vanishes_is_claimed_again_and_never_twice() {
    let server = Arc::new(RedisServer::start());
    let stores = [patient(&server).await, patient(&server).await];
    let over = Arc::new(AtomicBool::new(false));
    // An operator, an eviction, a flush: again and again in the middle of the claims.
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
