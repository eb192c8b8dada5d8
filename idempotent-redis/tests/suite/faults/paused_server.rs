//! A server that pauses for longer than a lease, while the worker continues.
use idempotent_core::{OnLeaseLost, Outcome, Policy, StateKind};

use crate::support::runs::{End, Job, Worker, record, secs};
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

/// The completion may or may not have been sent. Only the record decides about the acknowledgement.
#[tokio::test]
async fn a_run_that_ends_during_a_server_pause_is_acknowledged_only_by_its_record() {
    let (server, store) = start_without_cache().await;
    let policy = Policy::new().lease(secs(2)).on_lease_lost(OnLeaseLost::Finish);
    let worker = Worker::new(store.clone(), policy);
    let job = Job::held();
    let run = worker.begin("k", &job).await;
    server.pause();
    job.end(End::Ok);
    let (outcome, _) = run.await.unwrap();
    assert!(matches!(outcome, Outcome::Unrecorded | Outcome::LeaseLost), "{outcome:?}");
    assert!(matches!(outcome.disposition(), idempotent_core::Disposition::Retry { .. }));
    server.resume();
    until("the message that comes again is settled", async || {
        let outcome = worker.outcome("k", &job).await;
        let acked = outcome.disposition() == idempotent_core::Disposition::Ack;
        assert_eq!(outcome == Outcome::Ran, acked && job.runs() == 2, "{outcome:?}");
        acked
    })
    .await;
    assert_eq!(record(&store, "k").await.unwrap().state.kind(), StateKind::Consumed);
}
