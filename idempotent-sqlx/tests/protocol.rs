//! The store's statements against the pure protocol, by [`sequence`].
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#[path = "support/sequence.rs"]
mod sequence;
mod support;

use idempotent_sqlx::SqliteStore;

use self::sequence::{all_hit, sequences};
use self::support::Manual;

#[tokio::test]
async fn every_answer_and_record_equals_the_protocol() {
    let (place, clock) = (support::Place::new(), Manual::new());
    let builder = place.builder().clock(clock.clone()).synchronous(idempotent_sqlx::Synchronous::Normal);
    let store = builder.open().await.unwrap();
    all_hit(&sequences(&store, &clock, 0..3_000).await, 4);
}

#[tokio::test]
async fn a_database_in_memory_equals_the_protocol_too() {
    let clock = Manual::new();
    let store = SqliteStore::builder("sqlite::memory:").clock(clock.clone()).open().await.unwrap();
    sequences(&store, &clock, 10_000..10_500).await;
}
