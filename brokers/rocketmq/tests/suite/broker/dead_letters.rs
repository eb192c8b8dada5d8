//! Dead letters and their redrive.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use idempotent_mq::{Consumer, KeyFrom, Messages, Schedule};
use tokio::sync::oneshot;

use crate::broker::world::{World, executor, until, within};

#[tokio::test]
async fn a_failing_message_is_dead_lettered_unchanged_and_runs_once_after_a_redrive() {
    let world = World::new("dead-letters-1").await;
    let client = world.plain_client().await;
    let (runs, repaired) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, good) = (runs.clone(), repaired.clone());
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |_| {
        counted.fetch_add(1, SeqCst);
        let good = good.load(SeqCst);
        async move { if good { Ok(()) } else { Err("no stock") } }
    });
    let executor = executor();
    let consumer = Consumer::builder(world.source(), "billing", &executor)
        .schedule(Schedule::list([Duration::from_millis(100)]))
        .build(handling)
        .unwrap();
    let (counters, (stop, stopped)) = (consumer.counters(), oneshot::channel::<()>());
    let task = tokio::spawn(consumer.run(async move { drop(stopped.await) }));
    let sent = [("KEYS", "order-17"), ("TAGS", "paid"), ("UNIQ_KEY", "m"), ("tenant", "größe")];
    client.send(&world.topic, &[0, 255, 13, 10], sent).await;
    let dead = until("a dead letter", async || client.take().pop()).await;
    assert_eq!(runs.load(SeqCst), 3);
    assert_eq!(dead.body().unwrap()[..], [0, 255, 13, 10]);
    for (name, value) in sent {
        assert_eq!(dead.properties().get(name).map(|value| value.as_str()), Some(value), "{name}");
    }
    let mark = |name: &str| dead.properties().get(name).map(|value| value.to_string()).unwrap_or_default();
    assert!(mark("x-idempotent-reason").contains("3 runs"), "{}", mark("x-idempotent-reason"));
    assert_eq!((mark("x-idempotent-attempts"), mark("x-idempotent-deaths")), ("3".into(), "1".into()));
    assert!(mark("x-idempotent-first-at") < mark("x-idempotent-last-at"));
    // A late duplicate does not run.
    client.send(&world.topic, &[0, 255, 13, 10], sent).await;
    until("the duplicate is dead-lettered too", async || client.take().pop()).await;
    assert_eq!(runs.load(SeqCst), 3);
    // The dead letter is sent again with a new id, and thus with a new key.
    repaired.store(true, SeqCst);
    let again: Vec<_> = dead.properties().iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let again =
        again.into_iter().map(|(name, value)| if name == "UNIQ_KEY" { (name, "m-again") } else { (name, value) });
    client.send(&world.topic, &dead.body().unwrap(), again).await;
    until("the redriven message is acknowledged", async || (counters.counts().acked == 1).then_some(())).await;
    assert_eq!(runs.load(SeqCst), 4);
    stop.send(()).unwrap();
    within("the drain", task).await.unwrap().unwrap();
    world.emptied().await;
}
