use super::*;
use idempotent::reply::DefaultReply;
use idempotent::{Handler, Json};

on_all_stores! { a_batch_runs_only_the_items_whose_turn_has_come }

async fn a_batch_runs_only_the_items_whose_turn_has_come(world: World) {
    let worker = world.worker("a", Policy::new());
    let batch = async || {
        let items = vec![(after("3", "2"), 3_u32), (after("2", "1"), 2), (Call::new(id("1")), 1)];
        let handler = Handler::<DefaultReply, Json, _, _>::batch(async |items: Vec<idempotent::BatchItem<u32>>| {
            items.into_iter().map(|item| Ok::<_, Rejection>(item.item)).collect()
        });
        let answers = worker.executor.run_batch(items, handler).await;
        answers.iter().map(|answer| answer.outcome.name()).collect::<Vec<_>>()
    };
    assert_eq!(batch().await, ["waiting", "waiting", "ran"]);
    assert_eq!(batch().await, ["waiting", "ran", "replayed"]);
    assert_eq!(batch().await, ["ran", "replayed", "replayed"]);
}
