//! The conformance laws of stores against a real server.
pub(crate) mod damaged_values;
mod lost_calls;
mod server_groups;
mod skewed_clock;
pub(crate) mod virtual_clock;

use std::sync::Arc;
use std::time::Duration;

use idempotent_harness::servers::{RedisCluster, RedisSentinels, RedisServer};
use idempotent_redis::{RedisStore, RedisStoreBuilder};
use idempotent_testkit::{Subject, conformance};

use self::damaged_values::Values;
use self::lost_calls::Lossy;
use self::skewed_clock::Wrong;

/// Uses long timeouts, because a server on a busy machine may pause for seconds without breaking a law.
fn builder(url: String) -> RedisStoreBuilder {
    RedisStore::builder(url).response_timeout(Duration::from_secs(20)).connect_timeout(Duration::from_secs(20))
}

async fn subject(set: impl Fn(RedisStoreBuilder) -> RedisStoreBuilder) -> Subject {
    let server = Arc::new(RedisServer::start());
    let open = async || set(builder(server.url())).connect().await.unwrap();
    let by = async |clock| set(builder(server.url())).clock(clock).connect().await.unwrap();
    let (ahead, behind) = (by(Wrong::ahead()).await, by(Wrong::behind()).await);
    let (store, second) = (Lossy::open(&server, &set).await, open().await);
    Subject::new(store.clone())
        .losing(store)
        .second(second)
        .clients(ahead, behind)
        .planting(Values(server.clone()))
        .rounds(100)
        .guarded_by(server)
}

// Through a proxy and with wrong client clocks. The tests do not control the server's clock.
conformance!(by_the_servers_clock, subject(|builder| builder), without: [clock]);
// Damage is covered above; here the laws are about time.
conformance!(
    by_the_tests_clock,
    virtual_clock::subject(Arc::new(RedisServer::start()), true, str::to_owned),
    without: [clients, losing, planting, foreign]
);

mod extras {
    use super::*;

    conformance!(without_a_cache, subject(|builder| builder.cache(None)), without: [clock]);
    conformance!(with_the_scripts_of_redis_6, subject(RedisStoreBuilder::plain_scripts), without: [clock]);
    conformance!(sentinels, server_groups::subject::<RedisSentinels>(), without: [clock, clients, losing]);
    conformance!(cluster, server_groups::subject::<RedisCluster>(), without: [clock, clients, losing]);
}
