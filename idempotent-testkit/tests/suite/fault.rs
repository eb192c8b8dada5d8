//! Each fault does to a call what it says, and the log says what happened.
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Entropy, Identity, Key, MemoryStore, OnExpiry, OwnerToken, Scene,
    Settled, StateKind, Store, StoreError, StoreErrorKind,
};
use idempotent_testkit::{FOREVER, FaultRates, FaultStore, SeededEntropy, StoreAnswer, StoreOperation, VirtualClock};

fn key() -> Key {
    Identity::new(Scene::Mq, "orders", "o-1").key("fault").unwrap()
}

fn request(owner: u128) -> ClaimRequest {
    ClaimRequest {
        key: key(),
        owner: OwnerToken(owner),
        lease: Duration::from_secs(30),
        fingerprint: None,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        retention: Duration::from_secs(60),
        display: None,
    }
}

fn held(owner: u128) -> ClaimHandle {
    ClaimHandle::unanswered(key(), OwnerToken(owner))
}

fn done() -> Completion {
    Completion { value: None, retain: Duration::from_secs(60) }
}

fn store() -> (FaultStore, VirtualClock) {
    let clock = VirtualClock::new();
    let inner = MemoryStore::builder().clock(std::sync::Arc::new(clock.clone())).build();
    (FaultStore::new(inner, &clock), clock)
}

fn kind<T: std::fmt::Debug>(result: Result<T, StoreError>) -> StoreErrorKind {
    result.unwrap_err().kind()
}

async fn state(store: &FaultStore) -> StateKind {
    store.worker("look").peek(&key()).await.unwrap().map_or(StateKind::Absent, |record| record.state.kind())
}

#[tokio::test]
async fn a_refused_call_and_a_lost_request_do_nothing_and_a_lost_reply_is_applied() {
    let (store, _) = store();
    store.fail_before(StoreOperation::Claim, 1);
    store.lose_request(StoreOperation::Claim, 1);
    store.lose_reply(StoreOperation::Claim, 1);
    assert_eq!(kind(store.claim(&request(1)).await), StoreErrorKind::NotApplied);
    assert_eq!(state(&store).await, StateKind::Absent);
    assert_eq!(kind(store.claim(&request(1)).await), StoreErrorKind::Ambiguous);
    assert_eq!(state(&store).await, StateKind::Absent);
    assert!(!store.is_played());
    assert_eq!(kind(store.claim(&request(1)).await), StoreErrorKind::Ambiguous);
    assert_eq!(state(&store).await, StateKind::Consuming);
    assert!(store.is_played());
    assert!(matches!(store.claim(&request(1)).await, Ok(Claim::Acquired(_))));
}

#[tokio::test]
async fn a_script_counts_the_calls_it_lets_through_and_for_ever_ends_with_heal() {
    let (store, _) = store();
    store.pass(StoreOperation::Peek, 2);
    store.fail_before(StoreOperation::Peek, FOREVER);
    for worked in [true, true, false, false, false] {
        assert_eq!(store.peek(&key()).await.is_ok(), worked);
    }
    store.heal();
    assert!(store.peek(&key()).await.is_ok());
    store.down();
    assert_eq!(kind(store.peek(&key()).await), StoreErrorKind::NotApplied);
    store.up();
    assert!(store.peek(&key()).await.is_ok());
}

#[tokio::test]
async fn a_hanging_call_is_applied_and_does_not_stop_the_clock() {
    let (store, clock) = store();
    store.claim(&request(1)).await.unwrap();
    store.hang(StoreOperation::Complete, 1);
    let caller = store.clone();
    let call = tokio::spawn(async move { caller.complete(&held(1), &done()).await });
    clock.advance(Duration::from_secs(3_600)).await;
    assert!(!call.is_finished());
    let hung = store.log().into_iter().find(|call| call.verb == StoreOperation::Complete).unwrap();
    assert_eq!((hung.applied, hung.answer), (Some(StoreAnswer::Settled(Settled::Done)), None));
}

#[tokio::test]
async fn a_delay_is_by_the_clock_before_the_store_and_after_it() {
    let (store, clock) = store();
    store.delay(StoreOperation::Claim, Duration::from_secs(2));
    store.delay_reply(StoreOperation::Claim, Duration::from_secs(3));
    let caller = store.clone();
    let call = tokio::spawn(async move { caller.claim(&request(1)).await });
    clock.advance(Duration::from_millis(1_999)).await;
    assert_eq!(state(&store).await, StateKind::Absent);
    clock.advance(Duration::from_millis(1)).await;
    assert_eq!(state(&store).await, StateKind::Consuming);
    clock.advance(Duration::from_millis(2_999)).await;
    assert!(!call.is_finished());
    clock.advance(Duration::from_millis(1)).await;
    assert!(call.is_finished());
    let logged = store.log().remove(0);
    assert_eq!(logged.started, Duration::ZERO);
    assert_eq!(logged.applied_at, Some(Duration::from_secs(2)));
    assert_eq!(logged.ended, Some(Duration::from_secs(5)));
    assert_eq!((logged.key, logged.owner), (Some(key().hash()), Some(OwnerToken(1))));
}

#[tokio::test]
async fn a_dead_worker_hears_nothing_and_the_others_go_on() {
    let (store, clock) = store();
    let other = store.worker("other");
    store.delay_reply(StoreOperation::Claim, Duration::from_secs(1));
    let caller = store.clone();
    let call = tokio::spawn(async move { caller.claim(&request(1)).await });
    clock.settle().await;
    store.kill();
    store.heal();
    clock.advance(Duration::from_secs(10)).await;
    assert!(!call.is_finished(), "its answer was still on its way");
    assert!(matches!(other.claim(&request(2)).await, Ok(Claim::InFlight(_))));
    let workers: Vec<_> = store.log().iter().map(|call| call.worker.to_string()).collect();
    assert_eq!(workers, ["0", "other"]);
}

#[tokio::test]
async fn capabilities_are_those_of_the_store_without_batch_and_with_faults() {
    let (store, _) = store();
    let capabilities = store.capabilities();
    assert!(capabilities.batch.is_none() && capabilities.search.is_some());
    assert!(capabilities.watch.is_some() && capabilities.admin.is_some());
    store.fail_before(StoreOperation::Purge, 1);
    let purge = capabilities.purge.unwrap();
    assert_eq!(kind(purge.purge(1).await), StoreErrorKind::NotApplied);
    assert_eq!(purge.purge(1).await.unwrap(), 0);
}

#[tokio::test]
async fn chaos_repeats_with_its_seed_and_keeps_to_its_probabilities() {
    async fn answers(seed: u64) -> Vec<Option<StoreAnswer>> {
        let (store, _) = store();
        store.chaos(seed, FaultRates { refuse: 0.2, lose_reply: 0.1, ..FaultRates::default() });
        for _ in 0..1_000 {
            let _ = store.peek(&key()).await;
        }
        store.log().into_iter().map(|call| call.answer).collect()
    }
    let first = answers(7).await;
    assert_eq!(first, answers(7).await);
    assert_ne!(first, answers(8).await);
    let count = |kind| first.iter().filter(|answer| **answer == Some(StoreAnswer::Error(kind))).count();
    assert!((150..250).contains(&count(StoreErrorKind::NotApplied)));
    assert!((60..140).contains(&count(StoreErrorKind::Ambiguous)));
}

#[test]
fn seeded_bits_repeat_and_do_not_collide() {
    let draw = |seed| {
        let entropy = SeededEntropy::new(seed);
        (0..1_000).map(|_| entropy.bits().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(draw(1), draw(1));
    let distinct: std::collections::HashSet<_> = draw(1).into_iter().chain(draw(2)).collect();
    assert_eq!(distinct.len(), 2_000);
}
