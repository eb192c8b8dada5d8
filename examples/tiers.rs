//! Shows two tiers: the records are in a database, and Redis is a cache that may lose everything.
//!
//! ```text
//! cargo run -p idempotent-examples --features redis --example tiers -- redis://127.0.0.1:6379
//! redis-cli FLUSHALL    # in another terminal, when the program asks for it
//! ```
//!
//! The program handles an order, and answers its duplicate from Redis. It then waits for a line, so that you can flush Redis.
//! Afterwards the database answers the duplicate: the handler does not run again. A second argument names another database.
#![allow(clippy::print_stdout, reason = "an example")]
use std::error::Error;

use idempotent::{Executor, Outcome, RedisStore, Rejection, TieredStore, connect, idempotent};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

#[idempotent(key = order, scope = "charge")]
async fn charge(order: &str) -> Result<u64, Rejection> {
    println!("order {order}: charged");
    Ok(500)
}

async fn deliver(order: &str) -> Result<(), Rejection> {
    let (answer, outcome) = Outcome::capture(charge(order)).await;
    println!("order {order}: {} cents, {outcome:?}", answer?);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let redis = arguments.next().unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let folder = tempfile::tempdir()?;
    let database = arguments.next().unwrap_or_else(|| format!("sqlite:{}", folder.path().join("orders.db").display()));

    // Without the counts, `connect("tiered:DATABASE_URL|REDIS_URL")` opens both tiers.
    let cache = RedisStore::connect(&redis).await?.fast_tier();
    let store = TieredStore::new(connect(&database).create(true).await?, cache);
    let executor = Executor::new(store.clone());
    let deliver = async |order: &str| {
        executor.scope(deliver(order)).await?;
        let counts = store.counts();
        println!("  the cache answered {} claims, the database {}", counts.hits, counts.misses);
        Ok::<_, Rejection>(())
    };

    deliver("o-17").await?;
    deliver("o-17").await?;
    println!("Run `redis-cli FLUSHALL`, and press Enter.");
    BufReader::new(stdin()).read_line(&mut String::new()).await?;
    deliver("o-17").await?;
    deliver("o-17").await?;
    Ok(())
}
