//! Several servers: routing of calls, and changes of the topology.
mod cluster;
mod durability;
mod failover;
mod refused_calls;
mod sentinel;

use std::time::Duration;

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Grant, Key, StateKind, Store, StoreError, StoreErrorKind,
};
use idempotent_redis::RedisStore;

use crate::support::{HOUR, ask_for, until_within};

/// Limit for events that are certain to happen, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a key whose slot depends only on the number.
fn key(name: &str, number: u128) -> Key {
    Key::from_parts(name, number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// Returns a claim with a lease longer than any failover: a claim is retried for a quarter of it.
fn ask(key: Key, owner: u128) -> ClaimRequest {
    ClaimRequest { lease: Duration::from_secs(240), ..ask_for(key, owner) }
}

fn held(request: &ClaimRequest) -> ClaimHandle {
    ClaimHandle::unanswered(request.key.clone(), request.owner)
}

fn done() -> Completion {
    Completion { value: None, retain: HOUR }
}

async fn without_cache(url: String) -> RedisStore {
    RedisStore::builder(url).cache(None).connect().await.unwrap()
}

/// Claims like an executor: after a lost reply, again with the same token.
async fn claim(store: &RedisStore, request: &ClaimRequest) -> Result<Claim, StoreError> {
    let tries = async {
        loop {
            match store.claim(request).await {
                Err(error) if error.kind() == StoreErrorKind::Ambiguous => {}
                ended => return ended,
            }
        }
    };
    tokio::time::timeout(PATIENCE, tries).await.unwrap()
}

#[track_caller]
fn granted(claim: Result<Claim, StoreError>) -> Grant {
    match claim {
        Ok(Claim::Acquired(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

async fn state(store: &RedisStore, key: &Key) -> StateKind {
    store.peek(key).await.unwrap().map_or(StateKind::Absent, |record| record.state.kind())
}

/// Runs blocking work outside of the runtime.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

async fn until(what: &str, so: impl AsyncFnMut() -> bool) {
    until_within(PATIENCE, what, so).await;
}
