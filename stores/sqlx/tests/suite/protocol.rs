//! The store's statements against the pure protocol, by [`sequence`].
use crate::support;

use idempotent_sqlx::SqliteStore;

use crate::sequence::{all_hit, sequences};
use crate::support::Manual;

#[tokio::test]
async fn every_answer_and_record_equals_the_protocol() {
    equal_the_protocol(1_500, 0).await;
}

mod extras {
    #[tokio::test]
    async fn every_answer_and_record_equals_the_protocol_in_3_000_sequences() {
        super::equal_the_protocol(3_000, 4).await;
    }
}

async fn equal_the_protocol(seeds: u64, least: usize) {
    let (place, clock) = (support::Place::new(), Manual::new());
    let builder = place.builder().clock(clock.clone()).synchronous(idempotent_sqlx::Synchronous::Normal);
    let store = builder.open().await.unwrap();
    all_hit(&sequences(&store, &clock, 0..seeds).await, least);
}

#[tokio::test]
async fn a_database_in_memory_equals_the_protocol_too() {
    let clock = Manual::new();
    let store = SqliteStore::builder("sqlite::memory:").clock(clock.clone()).open().await.unwrap();
    sequences(&store, &clock, 10_000..10_500).await;
}
