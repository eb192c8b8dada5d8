use super::*;

on_all_stores! {
    an_item_runs_once_its_predecessor_is_consumed
    while_it_waits_nothing_is_held_and_no_attempt_is_spent
    the_first_of_a_chain_has_no_predecessor
    the_hint_grows_with_each_time_it_is_put_off
    a_duplicate_of_what_is_done_is_answered_whatever_became_of_its_predecessor
    an_item_waits_in_place_by_policy_and_wakes_with_its_predecessor
    a_predecessor_that_failed_and_is_tried_again_is_waited_for
    a_store_outage_lets_no_item_run_out_of_turn
    a_call_does_not_wait_for_itself
    a_batch_runs_only_the_items_whose_turn_has_come
}

async fn an_item_runs_once_its_predecessor_is_consumed(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    assert_waiting(&deliver(&worker, "3", "2", &job).await);
    assert_waiting(&deliver(&worker, "2", "1", &job).await);
    assert_eq!(worker.outcome("1", &job).await, Outcome::Ran);
    assert_waiting(&deliver(&worker, "3", "2", &job).await);
    assert_eq!(deliver(&worker, "2", "1", &job).await, Outcome::Ran);
    assert_eq!(deliver(&worker, "3", "2", &job).await, Outcome::Ran);
    assert_eq!(job.runs(), 3);
    let counts = worker.executor.counts();
    assert_eq!((counts.of("waiting"), counts.of("held"), counts.ended()), (3, 0, counts.deliveries()));
}

async fn while_it_waits_nothing_is_held_and_no_attempt_is_spent(world: World) {
    // One run is all it gets.
    let (worker, job) = (world.worker("a", Policy::new().max_retries(0)), Job::takes(ms(0)));
    for _ in 0..5 {
        assert_waiting(&deliver(&worker, "2", "1", &job).await);
        assert_eq!(state(&world, "2").await, StateKind::Absent);
    }
    assert_eq!(worker.outcome("1", &job).await, Outcome::Ran);
    assert_eq!(deliver(&worker, "2", "1", &job).await, Outcome::Ran);
    assert_eq!(job.attempts(), [1, 1]);
}

async fn the_first_of_a_chain_has_no_predecessor(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    let first = Call::new(id("1")).after(&None::<&str>);
    assert_eq!(worker.deliver_call(first, &job).await.0, Outcome::Ran);
    // A part that is missing within a key is a mistake, not a first.
    let torn = Call::new(id("2")).after(&("1", None::<&str>));
    assert_eq!(worker.deliver_call(torn, &job).await.0, Outcome::BadKey);
    assert_eq!(job.runs(), 1);
}

async fn the_hint_grows_with_each_time_it_is_put_off(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    let mut hints = Vec::new();
    for _ in 0..6 {
        hints.push(retry_after(&deliver(&worker, "2", "1", &job).await).as_secs());
    }
    assert_eq!(hints, [1, 2, 4, 8, 10, 10]);
}

async fn a_duplicate_of_what_is_done_is_answered_whatever_became_of_its_predecessor(world: World) {
    let worker = world.worker("a", Policy::new().retain(secs(100)));
    let job = Job::takes(ms(0));
    worker.outcome("1", &job).await;
    world.clock.advance(secs(60)).await;
    assert_eq!(deliver(&worker, "2", "1", &job).await, Outcome::Ran);
    world.clock.advance(secs(60)).await;
    assert_eq!(state(&world, "1").await, StateKind::Absent, "its retention is over");
    assert_eq!(deliver(&worker, "2", "1", &job).await, Outcome::Replayed);
    assert_eq!(job.runs(), 2);
}

async fn an_item_waits_in_place_by_policy_and_wakes_with_its_predecessor(world: World) {
    let policy = Policy::new().on_in_flight(idempotent::OnInFlight::Wait(secs(20)));
    let (worker, job) = (world.worker("a", policy), Job::takes(secs(5)));
    let waits = {
        let (worker, job) = (worker.clone(), job.clone());
        tokio::spawn(async move { deliver(&worker, "2", "1", &job).await })
    };
    world.clock.settle().await;
    let first = worker.spawn("1", &job).await;
    // Two runs of 5 s in sequence.
    world.clock.advance(secs(5) - ms(1)).await;
    assert_eq!(job.runs(), 1);
    world.clock.advance(ms(1)).await;
    assert_eq!(first.await.unwrap().0, Outcome::Ran);
    // The notification of a server arrives in real time, while the test's clock does not move.
    let told = async {
        while job.runs() < 2 {
            world.clock.settle().await;
            tokio::time::sleep(ms(1)).await;
        }
    };
    tokio::time::timeout(secs(60), told).await.unwrap();
    world.clock.advance(secs(5)).await;
    assert_eq!(waits.await.unwrap(), Outcome::Ran);
    // Nor does it wait longer than it may.
    let waits = tokio::spawn(async move { deliver(&worker, "4", "3", &job).await });
    world.clock.advance(secs(20) - ms(1)).await;
    assert!(!waits.is_finished());
    world.clock.advance(ms(1)).await;
    assert_waiting(&waits.await.unwrap());
}

async fn a_predecessor_that_failed_and_is_tried_again_is_waited_for(world: World) {
    let (worker, alerts) = {
        let alerts = Alerts::default();
        let policy = Policy::new().on_broken_order(OnBrokenOrder::Skip(secs(60))).max_retries(9);
        (world.worker_by("a", policy, |builder| builder.observer(alerts.clone())), alerts)
    };
    let fails = Job::ends(ms(0), crate::common::End::Err);
    let job = Job::takes(ms(0));
    assert!(matches!(worker.outcome("1", &fails).await, Outcome::Released { .. }));
    assert_waiting(&deliver(&worker, "2", "1", &job).await);
    world.clock.advance(secs(600)).await;
    assert_waiting(&deliver(&worker, "2", "1", &job).await);
    assert_eq!((job.runs(), alerts.take()), (0, Vec::new()));
}

async fn a_store_outage_lets_no_item_run_out_of_turn(world: World) {
    let policy = Policy::new().on_store_error(idempotent::OnStoreError::RunUnprotected);
    let (worker, job) = (world.worker("a", policy), Job::takes(ms(0)));
    worker.store.fail_before(idempotent_testkit::StoreOperation::Peek, idempotent_testkit::FOREVER);
    let outcome = deliver(&worker, "2", "1", &job).await;
    assert!(matches!(outcome, Outcome::StoreDown(_)), "{outcome:?}");
    assert_eq!(job.runs(), 0);
}

async fn a_call_does_not_wait_for_itself(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    let (outcome, answer) = worker.deliver_call(after("1", "1"), &job).await;
    assert_eq!((outcome, job.runs()), (Outcome::BadKey, 0));
    assert!(answer.unwrap_err().to_string().contains("`after` names the key of the call itself"));
}

async fn a_batch_runs_only_the_items_whose_turn_has_come(world: World) {
    let worker = world.worker("a", Policy::new());
    for outcomes in [["waiting", "waiting", "ran"], ["waiting", "ran", "replayed"], ["ran", "replayed", "replayed"]] {
        let calls = vec![after("3", "2"), after("2", "1"), Call::new(id("1"))];
        assert_eq!(deliver_batch(&worker, calls).await, outcomes);
    }
}
