//! The laws of a store against a real server.
#![allow(clippy::unwrap_used, missing_docs)]
mod damage;
mod exact;

use std::sync::Arc;

use idempotent_redis::{RedisStore, RedisStoreBuilder};
use idempotent_testkit::servers::RedisServer;
use idempotent_testkit::{Subject, conformance};

use self::damage::Values;

async fn subject(set: impl Fn(RedisStoreBuilder) -> RedisStoreBuilder) -> Subject {
    let server = Arc::new(RedisServer::start());
    let open = async || set(RedisStore::builder(server.url())).connect().await.unwrap();
    let (store, second) = (open().await, open().await);
    Subject::new(store).second(second).planting(Values(server.clone())).rounds(100).guarded_by(server)
}

// The server's clock is not the test's.
conformance!(single, subject(|builder| builder), without: [clock, clients, losing]);
conformance!(without_a_cache, subject(|builder| builder.cache(None)), without: [clock, clients, losing]);
conformance!(with_the_scripts_of_redis_6, subject(RedisStoreBuilder::plain_scripts), without: [clock, clients, losing]);
// Values are damaged above; here it is about time.
conformance!(by_the_tests_clock, exact::subject(Arc::new(RedisServer::start()), true, str::to_owned), without: [clients, losing, planting, foreign]);
