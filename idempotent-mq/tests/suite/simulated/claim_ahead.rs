//! Keys that are claimed while all handlers run.
use idempotent_core::{OnExpiry, OnLeaseLost, OnStoreError, Policy, StateKind};
use idempotent_mq::{HandlerResult, KeyFrom, Position, Settlement};
use idempotent_testkit::{FOREVER, StoreOperation};

use crate::world::{Building, Job, Process, World, ms, secs};

fn one_handler(builder: Building) -> Building {
    builder.concurrency(1).prefetch(4)
}

/// Returns a world with three messages and one handler, which runs the first one for this time. The key of the second is claimed.
async fn waiting(policy: Policy, takes: std::time::Duration) -> (World, std::sync::Arc<Job>, Process) {
    let world = World::new();
    let job = Job::ok(&world, takes);
    let process = world.consume_by(policy, job.by_id(), one_handler).await;
    world.broker.send_all(&["m1", "m2", "m3"]);
    world.clock.settle().await;
    assert_eq!(job.runs(), 1);
    (world, job, process)
}

async fn state(world: &World, key: &str) -> Option<StateKind> {
    world.record(key).await.map(|record| record.state.kind())
}

#[tokio::test]
async fn one_key_is_claimed_ahead_and_no_more_handlers_run_than_the_concurrency() {
    let (world, job, process) = waiting(Policy::new(), ms(100)).await;
    let consuming = Some(StateKind::Consuming);
    let states = [state(&world, "m1").await, state(&world, "m2").await, state(&world, "m3").await];
    assert_eq!(states, [consuming, consuming, None]);
    assert_eq!((process.gauges().running, process.gauges().capacity), (1, 1));
    world.clock.advance(secs(1)).await;
    assert_eq!(job.times(), [0, 100, 200]);
    assert_eq!((process.counts().acked, process.gauges().running), (3, 0));
}

#[tokio::test]
async fn a_handler_starts_while_the_completion_of_the_last_one_is_on_its_way() {
    let (world, job, process) = waiting(Policy::new(), ms(100)).await;
    process.store.delay_reply(StoreOperation::Complete, ms(50));
    world.clock.advance(secs(1)).await;
    assert_eq!(job.times()[..2], [0, 100]);
    assert_eq!(process.counts().acked, 3);
}

#[tokio::test]
async fn without_claims_ahead_a_message_ends_before_the_next_one_is_claimed() {
    let world = World::new();
    let job = Job::ok(&world, ms(100));
    let process = world.consume_by(Policy::new(), job.by_id(), |builder| one_handler(builder).claim_ahead(0)).await;
    process.store.delay_reply(StoreOperation::Complete, ms(50));
    world.broker.send_all(&["m1", "m2"]);
    world.clock.settle().await;
    assert_eq!(state(&world, "m2").await, None);
    world.clock.advance(secs(1)).await;
    assert_eq!(job.times(), [0, 150]);
}

#[tokio::test]
async fn messages_of_one_ordering_key_are_not_claimed_ahead_of_each_other() {
    let world = World::new();
    let job = Job::ok(&world, ms(100));
    let handling = idempotent_mq::Messages::raw()
        .ordered_by(KeyFrom::message("one key", |_: &idempotent_mq::Message<()>| "all"))
        .keyed(KeyFrom::message_id());
    world.consume_by(Policy::new(), handling.run(job.function()), one_handler).await;
    world.broker.send_all(&["m1", "m2"]);
    world.clock.settle().await;
    assert_eq!(state(&world, "m2").await, None);
    world.clock.advance(secs(1)).await;
    assert_eq!(job.times(), [0, 100]);
}

#[tokio::test]
async fn a_drain_releases_the_key_of_a_waiting_message_and_counts_no_attempt() {
    let (world, job, mut process) = waiting(Policy::new(), secs(2)).await;
    process.stop().await;
    // At once, while the first handler still runs.
    assert_eq!((world.broker.settlements("m2"), state(&world, "m2").await), (vec![Settlement::GiveBack], None));
    world.clock.advance(secs(2)).await;
    assert!(process.task.is_finished() && world.broker.is_acked("m1"));
    world.consume_by(Policy::new(), job.by_id(), one_handler).await;
    world.clock.advance(secs(10)).await;
    assert_eq!((job.runs(), world.broker.left()), (3, 0));
    assert!(job.seen().iter().all(|seen| seen.attempt == Some(1)), "{:?}", job.seen());
}

#[tokio::test]
async fn a_revocation_releases_the_key_of_a_waiting_message_at_once() {
    let (world, job, process) = waiting(Policy::new(), secs(2)).await;
    world.broker.revoke(Position::of("orders"));
    world.clock.settle().await;
    assert_eq!(state(&world, "m2").await, None);
    world.clock.advance(secs(2)).await;
    assert_eq!(job.runs(), 1, "only the handler that ran already");
    assert_eq!((process.counts().revoked, world.broker.settlements("m2")), (3, vec![]));
}

#[tokio::test]
async fn the_lease_of_a_waiting_message_is_renewed_and_its_run_has_the_whole_time() {
    // The second run waits for as long as a run may take, and then takes as long.
    let (lease, run) = (secs(9), secs(60));
    let (world, job, process) = waiting(Policy::new().lease(lease).max_run(run), run - secs(1)).await;
    world.clock.advance(run * 4).await;
    assert_eq!(job.times(), [0, 59_000, 118_000]);
    assert_eq!((process.counts().acked, process.counts().retried), (3, 0));
    let fences: Vec<_> = job.seen().iter().map(|seen| seen.fencing).collect();
    assert_eq!(world.broker.left(), 0, "{fences:?}");
}

#[tokio::test]
async fn a_waiting_message_whose_lease_is_lost_is_deferred_and_does_not_run() {
    for policy in [OnLeaseLost::Finish, OnLeaseLost::Abort] {
        let (world, job, process) = waiting(Policy::new().lease(secs(9)).on_lease_lost(policy), secs(20)).await;
        process.store.hang(StoreOperation::Renew, FOREVER);
        world.clock.advance(secs(9)).await;
        let retries = world.broker.retries("m2");
        assert_eq!((retries.len(), retries[0].attempt), (1, 1), "{policy:?}");
        assert!(job.seen().iter().all(|seen| seen.id.as_deref() != Some("m2")), "{policy:?}");
    }
}

#[tokio::test]
async fn a_run_that_a_crash_ends_for_good_is_not_claimed_ahead() {
    for policy in [Policy::new().on_expiry(OnExpiry::Park), Policy::new().max_retries(0)] {
        let (world, ..) = waiting(policy, secs(1)).await;
        assert_eq!(state(&world, "m2").await, None);
    }
}

#[tokio::test]
async fn a_crash_leaves_the_waiting_message_to_its_lease_and_another_consumer_runs_it() {
    let (world, job, process) = waiting(Policy::new().lease(secs(9)), secs(20)).await;
    process.kill().await;
    world.broker.cut();
    world.consume_by(Policy::new(), job.by_id(), one_handler).await;
    world.clock.advance(secs(120)).await;
    assert_eq!(world.broker.left(), 0);
    let attempts = |id: &str| {
        let seen = job.seen().into_iter().filter(|seen| seen.id.as_deref() == Some(id));
        seen.filter_map(|seen| seen.attempt).collect::<Vec<_>>()
    };
    assert_eq!([attempts("m1"), attempts("m2"), attempts("m3")], [vec![1, 2], vec![2], vec![1]]);
}

#[tokio::test]
async fn a_handler_that_panics_gives_its_turn_to_the_next() {
    let world = World::new();
    let handling = idempotent_mq::Messages::raw().keyed(KeyFrom::message_id()).run(|message| async move {
        assert_ne!(message.delivery.id.as_deref(), Some("m1"), "as told");
        HandlerResult::Done
    });
    let process = world.consume_by(Policy::new(), handling, one_handler).await;
    world.broker.send_all(&["m1", "m2", "m3"]);
    world.clock.settle().await;
    assert_eq!((process.counts().acked, process.counts().retried), (2, 1));
}

#[tokio::test]
async fn a_consumer_that_is_dropped_runs_nothing_that_waited() {
    let (world, job, process) = waiting(Policy::new(), secs(2)).await;
    process.task.abort();
    assert!(process.task.await.is_err_and(|ended| ended.is_cancelled()));
    world.clock.advance(secs(10)).await;
    assert_eq!((job.runs(), world.broker.settlements("m3")), (1, vec![]));
}

#[tokio::test]
async fn no_handler_without_a_claim_starts_after_the_executor_has_drained() {
    let world = World::new();
    let job = Job::ok(&world, secs(60));
    let policy = Policy::new().on_store_error(OnStoreError::RunUnprotected);
    let process = world.consume_by(policy, job.by_id(), one_handler).await;
    process.store.down();
    world.broker.send_all(&["m1", "m2"]);
    world.clock.advance(secs(20)).await;
    assert_eq!(job.runs(), 1);
    let executor = process.executor.clone();
    let drained = tokio::spawn(async move { executor.drain(secs(5)).await });
    world.clock.advance(secs(10)).await;
    assert!(drained.is_finished());
    assert_eq!((job.runs(), process.gauges().running), (1, 0));
}

#[tokio::test]
async fn handlers_without_a_claim_wait_for_their_turn_too() {
    for claimed in [true, false] {
        let world = World::new();
        let job = Job::ok(&world, secs(10));
        let key = if claimed { KeyFrom::message_id() } else { KeyFrom::header("absent").or_unprotected() };
        let policy = Policy::new().on_store_error(OnStoreError::RunUnprotected);
        let process = world.consume_by(policy, job.keyed(key), one_handler).await;
        process.store.down();
        world.broker.send_all(&["m1", "m2"]);
        world.clock.advance(secs(9)).await;
        assert_eq!((job.runs(), process.gauges().running), (1, 1), "claimed: {claimed}");
        world.clock.advance(secs(20)).await;
        let times = job.times();
        assert_eq!((times[1] - times[0], process.counts().unprotected), (10_000, 2), "claimed: {claimed}");
    }
}
