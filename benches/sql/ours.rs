//! Runs over a store, as in an application.
use idempotent::reply::DefaultReply;
use idempotent::{BatchItem, Call, Executor, Handler, Json, Outcome, Rejection};

use crate::keys;

pub async fn run(executor: Executor, number: u64) {
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<(), Rejection>(()) });
    executor.run(Call::new(keys::identity(number)), handler).await.unwrap();
}

/// Runs new messages in a batch.
pub async fn run_batch(executor: Executor, numbers: std::ops::Range<u64>) {
    let items: Vec<_> = numbers.map(|number| (Call::new(keys::identity(number)), ())).collect();
    let handler = Handler::<DefaultReply, Json, _, _>::batch(|items: Vec<BatchItem<()>>| async move {
        items.iter().map(|_| Ok::<(), Rejection>(())).collect()
    });
    let answers = executor.run_batch(items, handler).await;
    assert!(answers.iter().all(|answer| answer.outcome == Outcome::Ran));
}
