//! Runs over the store, as in an application.
use idempotent::reply::DefaultReply;
use idempotent::{Call, Executor, Fingerprint, Handler, Json, Rejection};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::{CacheOptions, RedisStore};

use crate::keys;

/// Creates an executor for scene mq, which counts attempts because it has a limit.
pub async fn executor(server: &RedisServer, cache: Option<CacheOptions>) -> Executor {
    Executor::builder(store(server, cache).await).build().unwrap()
}

pub async fn store(server: &RedisServer, cache: Option<CacheOptions>) -> RedisStore {
    RedisStore::builder(server.url()).cache(cache).connect().await.unwrap()
}

pub async fn run(executor: Executor, number: u64) {
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<(), Rejection>(()) });
    executor.run(Call::new(keys::identity(number)), handler).await.unwrap();
}

pub async fn run_with_fingerprint(executor: Executor, number: u64) {
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<(), Rejection>(()) });
    let call = Call::new(keys::identity(number)).fingerprint(Ok(Fingerprint::of_bytes(keys::text(number))));
    executor.run(call, handler).await.unwrap();
}
