//! Calls on runtimes that are blocked, or missing.
use crate::common::PlainHandler;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use idempotent::{Call, Executor, Identity, MemoryStore, Rejection, Scene};
use idempotent_testkit::blocked_handler_keeps_its_key;

#[test]
fn a_call_outside_tokio_is_refused_before_its_claim() {
    let executor = Executor::new(MemoryStore::new());
    let call = Call::new(Identity::new(Scene::Mq, "orders", "o-17"));
    let handler = PlainHandler::new(|| async { Ok::<_, Rejection>(42) });
    let answer = pin!(executor.run(call, handler)).poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Err(error)) = answer else { panic!("{answer:?}") };
    assert!(matches!(error, Rejection::NoRuntime), "{error}");
    let counts = executor.counts();
    assert_eq!((counts.of("ran"), counts.of("misconfigured")), (0, 1));
}

#[test]
fn a_call_in_a_runtime_without_timers_is_refused_before_its_claim() {
    let executor = Executor::new(MemoryStore::new());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for _ in 0..2 {
        let call = Call::new(Identity::new(Scene::Mq, "orders", "o-17"));
        let handler = PlainHandler::new(|| async { Ok::<_, Rejection>(42) });
        let error = runtime.block_on(executor.run(call, handler)).unwrap_err();
        assert!(error.to_string().contains("enable_time"), "{error}");
    }
    assert_eq!(executor.counts().of("misconfigured"), 2);
}

#[test]
fn a_blocked_handler_keeps_its_key_in_memory() {
    let store = MemoryStore::new();
    blocked_handler_keeps_its_key(async || store.clone());
}

#[cfg(feature = "stores")]
#[test]
fn a_blocked_handler_keeps_its_key_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocked.db");
    blocked_handler_keeps_its_key(async || idempotent::SqliteStore::open(path.to_str().unwrap()).await.unwrap());
}
