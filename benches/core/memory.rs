//! Whole runs over the memory store, with a million keys and more.
use std::sync::Arc;

use idempotent::reply::DefaultReply;
use idempotent::{Call, Executor, Handler, Json, MemoryStore, Rejection};

use crate::floors::BareMap;
use crate::keys;
use crate::report::{Goal, Report, drive};

pub async fn run(executor: Executor, number: u64) {
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<(), Rejection>(()) });
    executor.run(Call::new(keys::identity(number)), handler).await.unwrap();
}

pub async fn all(report: &Report) {
    if !report.wants("memory", "fresh") && !report.wants("memory", "duplicate") {
        return;
    }
    let executor = Executor::new(MemoryStore::builder().max_entries(usize::MAX).build());
    let bare = Arc::new(BareMap::new());
    let ours = {
        let executor = executor.clone();
        move |number| run(executor.clone(), number)
    };
    let fresh = {
        let bare = bare.clone();
        move |number| {
            bare.insert_and_update(number);
            std::future::ready(())
        }
    };
    let look_up = move |number| {
        assert!(bare.look_up(number));
        std::future::ready(())
    };
    let keys = report.keys();
    drive(2, 0, keys, &Arc::new(ours.clone())).await;
    drive(2, 0, keys, &Arc::new(fresh.clone())).await;
    let mut from = keys;
    for tasks in [1, 64] {
        let rounds = report.rounds(21, 20_000, tasks);
        let at = |case| ("memory", case, Some(usize::try_from(tasks).unwrap()));
        report.pair(at("fresh"), "ns", rounds.nanos(from, ours.clone(), fresh.clone()).await, Goal::AtMost(3.0));
        from += rounds.rounds * rounds.operations;
        let again = rounds.nanos(0, ours.clone(), look_up.clone()).await;
        report.pair(at("duplicate"), "ns", again, Goal::AtMost(2.0));
    }
    assert_eq!(executor.counts().of("ran"), from);
}
