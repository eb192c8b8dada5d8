//! A server that pauses for longer than a lease, while the worker continues.
use idempotent_core::{Outcome, Policy, StateKind};

use crate::support::runs::{Job, Worker, record, secs};
use crate::support::{open_without_cache, start_without_cache, until};

#[tokio::test]
async fn a_run_during_a_server_pause_loses_its_lease_and_is_not_acknowledged() {
    let (server, store) = start_without_cache().await;
    let policy = Policy::new().lease(secs(2));
    let (a, b) = (Worker::new(store.clone(), policy), Worker::new(open_without_cache(&server).await, policy));
    let (first, second) = (Job::held(), Job::quick());
    let run = a.begin("k", &first).await;
    server.pause();
    // The worker's own guard ends the run, without a notification.
    let (outcome, answer) = run.await.unwrap();
    assert_eq!(outcome, Outcome::LeaseLost);
    assert!(answer.is_err() && matches!(outcome.disposition(), idempotent_core::Disposition::Retry { .. }));
    // No other run happens in the meantime.
    let (outcome, _) = b.deliver("k", &second).await;
    assert!(matches!(outcome, Outcome::StoreDown(_)), "{outcome:?}");
    assert_eq!(second.runs(), 0);

    server.resume();
    until("B takes over", async || b.outcome("k", &second).await == Outcome::Ran).await;
    assert_eq!((first.runs(), second.runs()), (1, 1));
    assert!(second.fencing()[0] > first.fencing()[0]);
    assert_eq!(record(&store, "k").await.unwrap().state.kind(), StateKind::Consumed);
    assert_eq!(a.outcome("k", &first).await, Outcome::Replayed);
}
