//! The statements against the pure protocol: the same for every server.
use idempotent_core::{Claim, ClaimRequest, ReleaseKind, StateKind, Store};

use super::fixture::{self, Place};
use crate::sequence::{all_hit, sequences};
use crate::support::{held, key, release, request, stopped_clock};

#[tokio::test]
async fn every_answer_and_record_equals_the_protocol() {
    equal_the_protocol(400).await;
}

mod extras {
    #[tokio::test]
    async fn every_answer_and_record_equals_the_protocol_in_1_000_sequences() {
        super::equal_the_protocol(1_000).await;
    }
}

async fn equal_the_protocol(seeds: u64) {
    for builder in fixture::builders(&Place::new()) {
        let clock = stopped_clock();
        let store = builder.clock(clock.clone()).connect().await.unwrap();
        all_hit(&sequences(&store, &clock, 0..seeds).await, 0);
    }
}

/// Each part of it is written from what stood there before, in whatever order they are written.
#[tokio::test]
async fn a_refund_takes_off_one_attempt_and_remembers_the_others() {
    for builder in fixture::builders(&Place::new()) {
        let clock = stopped_clock();
        let store = builder.clock(clock.clone()).connect().await.unwrap();
        for owner in 1..=3 {
            let claim = ClaimRequest { max_attempts: 9, ..request(&key("a"), owner) };
            assert!(matches!(store.claim(&claim).await.unwrap(), Claim::Acquired(_)));
            let verdict = if owner < 3 { ReleaseKind::Vacate } else { ReleaseKind::Refund };
            store.release(&held(&key("a"), owner), &release(verdict)).await.unwrap();
        }
        let record = store.peek(&key("a")).await.unwrap().expect("two attempts are remembered");
        assert_eq!((record.attempt, record.state.kind()), (2, StateKind::Vacant));
        // One that has nothing left to remember is gone at once.
        store.claim(&request(&key("b"), 1)).await.unwrap();
        store.release(&held(&key("b"), 1), &release(ReleaseKind::Refund)).await.unwrap();
        assert_eq!(store.peek(&key("b")).await.unwrap(), None);
        // Of two attempts one is left: that is to be remembered.
        for (owner, verdict) in [(1, ReleaseKind::Vacate), (2, ReleaseKind::Refund)] {
            store.claim(&request(&key("c"), owner)).await.unwrap();
            store.release(&held(&key("c"), owner), &release(verdict)).await.unwrap();
        }
        assert_eq!(store.peek(&key("c")).await.unwrap().expect("one attempt is remembered").attempt, 1);
    }
}

#[test]
fn a_blocked_handler_keeps_its_key() {
    let place = Place::new();
    idempotent_testkit::blocked_handler_keeps_its_key(async || place.open().await);
}

/// The store gives its connections up before half a heartbeat is over.
#[test]
fn a_blocked_handler_keeps_its_key_although_the_store_is_impatient() {
    let place = Place::new();
    idempotent_testkit::blocked_handler_keeps_its_key(async || {
        place.builder().timeout(std::time::Duration::from_millis(500)).connect().await.unwrap()
    });
}

/// On a pool of the application's, whose connections belong to the blocked runtime.
#[test]
fn a_blocked_handler_keeps_its_key_on_a_pool_of_the_application() {
    let place = Place::new();
    idempotent_testkit::blocked_handler_keeps_its_key(async || {
        fixture::creating(fixture::Store::on_pool(place.other()).table(&place.table)).connect().await.unwrap()
    });
}
