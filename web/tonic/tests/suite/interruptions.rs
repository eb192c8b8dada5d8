//! Disconnected clients, deadlines, and workers that die.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Executor, MemoryStore};
use idempotent_testkit::VirtualClock;
use idempotent_tower::Principal;
use tonic::Code;

use crate::support::{World, is_replay, payment, until, with_key};

#[tokio::test]
async fn a_run_completes_after_its_client_has_disconnected() {
    let world = World::new().await;
    world.hold("a").await.abort();
    world.shop.gate.add_permits(1);
    until(|| world.executor.counts().of("ran") == 1).await;
    let retry = world.pay("a", "hold").await.unwrap();
    assert_eq!((retry.get_ref().run, is_replay(&retry), world.shop.runs()), (1, true, 1));
}

#[tokio::test]
async fn a_run_completes_after_its_deadline_has_passed() {
    let world = World::new().await;
    let mut request = with_key("a", payment("hold"));
    request.set_timeout(Duration::from_millis(100));
    let late = world.send(request).await.unwrap_err();
    assert!(matches!(late.code(), Code::Cancelled | Code::DeadlineExceeded), "{late:?}");
    // The deadline may pass before the request has arrived. Then the retry is the first run.
    world.shop.gate.add_permits(1);
    until(|| world.executor.counts().of("ran") == u64::from(world.shop.runs())).await;
    let retry = world.pay("a", "hold").await.unwrap();
    assert_eq!((retry.get_ref().run, world.shop.runs()), (1, 1));
}

#[tokio::test]
async fn two_concurrent_calls_run_once() {
    let world = World::with(|layer| layer.wait(Duration::from_secs(60))).await;
    let first = world.hold("a").await;
    let second = world.pay("a", "hold");
    world.shop.gate.add_permits(1);
    let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap());
    assert_eq!((first.get_ref(), world.shop.runs()), (second.get_ref(), 1));
    assert!(!is_replay(&first) && is_replay(&second));
}

#[tokio::test]
async fn a_call_whose_worker_died_runs_again_after_its_lease() {
    let clock = VirtualClock::new();
    let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
    let world = World::of(Executor::new(store), Principal::none(), |layer| layer.cancel_on_disconnect(true)).await;
    // The dropped run stands in for a worker that dies: nothing settles its key.
    let call = world.hold("a").await;
    call.abort();
    until(|| world.executor.counts().of("abandoned") == 1).await;
    assert_eq!(world.pay("a", "hold").await.unwrap_err().code(), Code::Aborted);
    clock.advance(Duration::from_secs(31)).await;
    world.shop.gate.add_permits(1);
    assert_eq!(world.pay("a", "hold").await.unwrap().get_ref().run, 2);
    let attempts = world.shop.attempts.lock().unwrap().clone();
    assert!(attempts[1].taken_over() == Some(attempts[0].fencing()), "{attempts:?}");
}
