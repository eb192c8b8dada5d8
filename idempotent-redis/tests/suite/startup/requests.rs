//! Requests for one key, and checks of errors.
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Identity, Key, Scene, Settled, Store, StoreError, StoreErrorKind,
};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::{RedisStore, RedisStoreBuilder};

use crate::support::ask_for;

pub(crate) const SECRET: &str = "hunter2";

pub(crate) fn key(name: &str) -> Key {
    Identity::new(Scene::Mq, "startup", name).key("idempotent").unwrap()
}

pub(crate) fn request(name: &str) -> ClaimRequest {
    ClaimRequest { retention: Duration::from_secs(60), ..ask_for(key(name), 7) }
}

pub(crate) async fn claim(store: &RedisStore, name: &str) -> Result<ClaimHandle, StoreError> {
    let request = request(name);
    match store.claim(&request).await? {
        Claim::Acquired(grant) => Ok(ClaimHandle::granted(&request, &grant)),
        other => panic!("not free: {other:?}"),
    }
}

/// Claims and completes; a second claim replays.
pub(crate) async fn cycle(store: &RedisStore, name: &str) -> Result<(), StoreError> {
    let held = claim(store, name).await?;
    assert_eq!(store.complete(&held, &completion()).await?, Settled::Done);
    assert!(matches!(store.claim(&request(name)).await?, Claim::Consumed(_)));
    Ok(())
}

pub(crate) fn completion() -> Completion {
    Completion { value: None, retain: Duration::from_secs(3600) }
}

pub(crate) fn quick(url: String) -> RedisStoreBuilder {
    RedisStore::builder(url).cache(None)
}

pub(crate) async fn open(server: &RedisServer) -> RedisStore {
    quick(server.url()).connect().await.unwrap()
}

/// Returns the text of an error of this kind, and checks that it contains no password.
#[track_caller]
pub(crate) fn said<T: std::fmt::Debug>(result: Result<T, StoreError>, kind: StoreErrorKind, parts: &[&str]) -> String {
    let error = result.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(!format!("{text} {error:?}").contains(SECRET), "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    text
}
