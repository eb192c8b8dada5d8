//! Many runs on several threads.
use std::sync::Arc;

use idempotent_core::{Call, DefaultReply, Executor, Handler, Json, MemoryStore, Rejection};
use tokio::sync::Barrier;

use crate::world::{World, identity};

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn all_outcomes_of_a_storm_with_cancellations_are_counted_once() {
    let world = World::new();
    let executor = Executor::builder(MemoryStore::new()).observer(world.observer()).build().unwrap();
    let start = Arc::new(Barrier::new(8));
    let tasks = (0..8).map(|task| {
        let (executor, start) = (executor.clone(), start.clone());
        tokio::spawn(async move {
            start.wait().await;
            for number in 0..200 {
                let handler = Handler::<DefaultReply, Json, _, _>::new(|| async move {
                    tokio::task::yield_now().await;
                    if number % 3 == 0 { Err(Rejection::LeaseLost) } else { Ok(number) }
                });
                let run = executor.run(Call::new(identity(&(number % 50).to_string())), handler);
                if (task + number) % 5 == 0 {
                    // Drops the run at its first pause.
                    tokio::select! { biased; _ = run => {}, () = async {} => {} }
                } else {
                    let _ = run.await;
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let counts = executor.counts();
    assert_eq!(counts.ended(), 1_600);
    for (name, count) in counts.iter() {
        let recorded = world.value("idempotent_deliveries_total", &[&format!("outcome=\"{name}\"")]);
        assert_eq!(recorded, Some(count as f64), "{name}");
    }
    assert!(counts.of("abandoned") > 0, "{counts:?}");
    assert_eq!(world.value("idempotent_runs_active", &[]), Some(0.0));
}
