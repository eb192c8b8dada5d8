//! The store's statements against the pure protocol, by [`sequence`].
use idempotent_sqlx::{SqliteStore, Synchronous};

use crate::sequence::{all_hit, sequences};
use crate::support::{Place, stopped_clock};

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
    let (place, clock) = (Place::new(), stopped_clock());
    let store = place.builder().clock(clock.clone()).synchronous(Synchronous::Normal).open().await.unwrap();
    all_hit(&sequences(&store, &clock, 0..seeds).await, least);
}

#[tokio::test]
async fn a_database_in_memory_equals_the_protocol_too() {
    let clock = stopped_clock();
    let store = SqliteStore::builder("sqlite::memory:").clock(clock.clone()).open().await.unwrap();
    sequences(&store, &clock, 10_000..10_500).await;
}
