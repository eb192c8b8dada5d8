//! The attribute needs the core alone.
#![allow(clippy::unwrap_used, missing_docs)]
use async_trait::async_trait;
use idempotent_core as renamed;
use idempotent_macros::idempotent;
use renamed::{Disposition, Executor, MemoryStore, Outcome, Rejection};

const ONE: u8 = 1;

#[idempotent(crate = renamed, key = const { ONE }, with = e, detach)]
async fn by_a_path(e: Executor) -> Result<u8, Rejection> {
    Ok(1)
}

#[idempotent(
    crate = ::idempotent_core,
    key = id,
    with = e,
    scene = "stock",
    scope = "s",
    prefix = "p",
    tenant = "t",
    fingerprint = id,
    on_expiry = park,
    on_in_flight = wait("1s"),
    retain = "1h",
    message = "wait",
    codec = renamed::Json,
    failed_if = |answer| *answer == 9,
)]
async fn by_the_root(e: &Executor, id: u8) -> Result<u8, Rejection> {
    Ok(id)
}

#[idempotent(crate = renamed, by = token, key = token, tenant = "all", with = e, ttl = "1m")]
async fn by_token(e: &Executor, token: &str) -> Result<u8, Rejection> {
    Ok(3)
}

#[idempotent(crate = ::idempotent_core, by = param, with = e, window = "1m")]
async fn by_param(e: &Executor, id: u8) -> Result<u8, Rejection> {
    Ok(id)
}

#[tokio::test]
async fn tokens_and_windows_work_without_the_facade() {
    let e = Executor::new(MemoryStore::new());
    let token = renamed::Tokens::new(&e).issue("all").await.unwrap();
    assert_eq!(by_token(&e, token.as_str()).await.unwrap() + by_param(&e, 1).await.unwrap(), 4);
    for again in [by_token(&e, token.as_str()).await, by_param(&e, 1).await] {
        assert!(matches!(again, Err(Rejection::Duplicate { .. })), "{again:?}");
    }
    assert_eq!(by_param(&e, 2).await.unwrap(), 2);
}

struct Service(Executor);

#[async_trait]
trait Handle {
    async fn handle(&self, id: u8) -> Disposition;
}

#[async_trait]
impl Handle for Service {
    #[idempotent(crate = renamed, key = id, with = self.0)]
    async fn handle(&self, id: u8) -> Disposition {
        Disposition::Ack
    }
}

#[tokio::test]
async fn the_attribute_works_without_the_facade() {
    let e = Executor::new(MemoryStore::new());
    for _ in 0..2 {
        assert_eq!(by_a_path(e.clone()).await.unwrap() + by_the_root(&e, 2).await.unwrap(), 3);
        assert_eq!(Service(e.clone()).handle(1).await, Disposition::Ack);
    }
    assert_eq!((e.counts().of("ran"), e.counts().of("replayed")), (3, 3));
    let (answer, outcome) = Outcome::capture(by_the_root(&e, 9)).await;
    assert_eq!(answer.unwrap(), 9);
    assert!(matches!(outcome, Some(Outcome::Released { .. })), "{outcome:?}");
}
