//! Runs through the executor, as in an application.
use idempotent::reply::DefaultReply;
use idempotent::{Call, Executor, Handler, Identity, Json, Rejection, Scene};

/// Returns an identity in a scene without a limit of attempts, whose failed runs leave no record.
pub fn identity(number: u64) -> Identity {
    Identity::new(Scene::Rest, "bench", &format!("order-{number:014}"))
}

/// Runs a handler that succeeds. The key is consumed afterwards.
pub async fn run(executor: Executor, number: u64) {
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<(), Rejection>(()) });
    executor.run(Call::new(identity(number)), handler).await.unwrap();
}

/// Runs a handler that fails. The key is absent before and afterwards, so the size of the store does not change.
pub async fn fail(executor: Executor, number: u64) {
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Err::<(), Rejection>(Rejection::LeaseLost) });
    executor.run(Call::new(identity(number)), handler).await.unwrap_err();
}
