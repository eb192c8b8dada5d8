//! Alerts out of real runs. Those of consumers and outboxes are tested where these are.
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    AlertObserver, Call, DefaultReply, Executor, Handler, Identity, Json, MemoryStore, OnBrokenOrder, Outcome, Policy,
    Rejection, Scene, Tracing, step,
};
use idempotent_testkit::{FOREVER, FaultStore, StoreOperation};

use crate::world::{GATHER, WINDOW, World, into_channel};

const PATIENCE: Duration = Duration::from_secs(60);

impl World {
    fn executor(&self, policy: Policy) -> (FaultStore, Executor) {
        let store = FaultStore::new(MemoryStore::builder().clock(Arc::new(self.clock.clone())).build(), &self.clock);
        let executor = Executor::builder(store.clone())
            .clock(Arc::new(self.clock.clone()))
            .policy(Scene::Mq, policy)
            .observer((Tracing, AlertObserver::new(&self.alerts)))
            .build();
        (store, executor.unwrap())
    }
}

fn identity(key: &str) -> Identity {
    Identity::new(Scene::Mq, "orders", key)
}

async fn runs(executor: &Executor, call: Call, answer: Result<(), Rejection>) -> Outcome {
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { answer });
    Outcome::capture(executor.run(call, handler)).await.1.unwrap()
}

#[tokio::test]
async fn a_message_that_is_held_for_its_order_gives_one_alert_however_often_it_comes() {
    let world = World::new();
    let (_, executor) = world.executor(Policy::new().on_broken_order(OnBrokenOrder::Hold(PATIENCE)));
    let waits = runs(&executor, Call::new(identity("secret-2")).after("secret-1"), Ok(())).await;
    assert!(matches!(waits, Outcome::Waiting { .. }), "{waits:?}");
    world.clock.advance(PATIENCE).await;
    assert!(world.inbox.alerts().is_empty(), "waiting is no problem");
    for _ in 0..10 {
        let outcome = runs(&executor, Call::new(identity("secret-2")).after("secret-1"), Ok(())).await;
        assert!(matches!(outcome, Outcome::Held { .. }), "{outcome:?}");
    }
    world.clock.advance(GATHER).await;
    assert_eq!(world.inbox.counts(), [("order_held", 10)]);
    let alert = world.inbox.alerts().remove(0);
    assert_eq!((&*alert.scope, alert.cause), ("orders", Some("its predecessor was never seen")));
    let all = format!("{alert:?} {} {:?}", alert.summary(), alert.detail());
    assert!(!all.contains("secret"), "no key: {all}");
}

#[tokio::test]
async fn a_message_that_runs_out_of_order_gives_an_alert() {
    let world = World::new();
    let (_, executor) = world.executor(Policy::new().on_broken_order(OnBrokenOrder::Skip(PATIENCE)));
    assert!(matches!(runs(&executor, Call::new(identity("2")).after("1"), Ok(())).await, Outcome::Waiting { .. }));
    world.clock.advance(PATIENCE).await;
    assert_eq!(runs(&executor, Call::new(identity("2")).after("1"), Ok(())).await, Outcome::Ran);
    world.clock.advance(GATHER).await;
    assert_eq!(world.inbox.counts(), [("order_broken", 1)]);
}

#[tokio::test]
async fn a_parked_run_gives_one_alert_with_the_step_in_its_detail_and_a_failed_run_gives_none() {
    let world = World::new();
    let (_, executor) = world.executor(Policy::new());
    let failed = runs(&executor, Call::new(identity("a")), Err(Rejection::LeaseLost)).await;
    assert!(matches!(failed, Outcome::Released { .. }));
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async {
        step("charge-4111", || async { Err::<(), _>(Rejection::LeaseLost) }).at_most_once().await
    });
    let (_, outcome) = Outcome::capture(executor.run(Call::new(identity("b")), handler)).await;
    assert!(matches!(outcome, Some(Outcome::Dead { .. })), "{outcome:?}");
    // A duplicate of what is parked is no news.
    assert!(matches!(runs(&executor, Call::new(identity("b")), Ok(())).await, Outcome::Dead { .. }));
    world.clock.advance(GATHER + WINDOW).await;
    assert_eq!(world.inbox.counts(), [("steps_parked", 1)]);
    let alert = world.inbox.alerts().remove(0);
    assert!(alert.detail().unwrap().starts_with("parked: step `charge-4111`"));
    assert!(!format!("{alert:?} {}", alert.summary()).contains("4111"));
}

#[tokio::test]
async fn failed_heartbeats_of_leases_give_one_alert_with_their_count() {
    let world = World::new();
    let (store, executor) = world.executor(Policy::new().lease(Duration::from_secs(30)));
    store.lose_request(StoreOperation::Renew, FOREVER);
    let mut lost = Vec::new();
    for key in ["1", "2", "3"] {
        let (executor, call) = (executor.clone(), Call::new(identity(key)));
        let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { pending::<Result<(), Rejection>>().await });
        lost.push(tokio::spawn(async move { Outcome::capture(executor.run(call, handler)).await.1 }));
    }
    world.clock.settle().await;
    world.clock.advance(Duration::from_secs(30)).await;
    for run in lost {
        assert_eq!(run.await.unwrap(), Some(Outcome::LeaseLost));
    }
    world.clock.advance(GATHER).await;
    assert_eq!(world.inbox.counts(), [("lease_lost", 3)]);
}

/// The handler waits for the alert about itself, on the only thread of its runtime.
#[tokio::test(flavor = "current_thread")]
async fn a_blocked_runtime_gives_an_alert_while_it_is_blocked() {
    let (alerts, alerted) = into_channel();
    let executor = Executor::builder(MemoryStore::new())
        .policy(Scene::Mq, Policy::new().lease(Duration::from_secs(6)))
        .observer(AlertObserver::new(&alerts))
        .build()
        .unwrap();
    let handler = Handler::<DefaultReply, Json, _, _>::new(move || async move {
        Ok::<_, Rejection>(alerted.recv_timeout(PATIENCE).is_ok())
    });
    let alerted = executor.run(Call::new(identity("1")), handler).await.unwrap();
    assert!(alerted, "no alert within {PATIENCE:?}");
}
