//! What cannot be done is put aside as it came, and can be sent again.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use idempotent_mq::{Consumer, KeyFrom, Messages, Schedule};
use tokio::sync::oneshot;

use crate::broker::world::{World, executor, until, within};

#[tokio::test]
async fn b24_a_message_that_always_fails_is_put_aside_as_it_came_and_sent_again_it_runs_once() {
    let world = World::new("dead-letters-1").await;
    let raw = world.raw().await;
    let (runs, mended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, good) = (runs.clone(), mended.clone());
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
    raw.send(&world.topic, &[0, 255, 13, 10], sent).await;
    let dead = until("a dead letter", async || raw.take().pop()).await;
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
    raw.send(&world.topic, &[0, 255, 13, 10], sent).await;
    until("it is put aside, too", async || raw.take().pop()).await;
    assert_eq!(runs.load(SeqCst), 3);
    // Mended, and sent again by somebody who has freed its key.
    mended.store(true, SeqCst);
    let again: Vec<_> = dead.properties().iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let again =
        again.into_iter().map(|(name, value)| if name == "UNIQ_KEY" { (name, "m-again") } else { (name, value) });
    raw.send(&world.topic, &dead.body().unwrap(), again).await;
    until("it is done", async || (counters.counts().acked == 1).then_some(())).await;
    assert_eq!(runs.load(SeqCst), 4);
    stop.send(()).unwrap();
    within("the drain", task).await.unwrap().unwrap();
    world.emptied().await;
}
