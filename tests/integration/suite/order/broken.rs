use super::*;
use crate::common::{AppError, End};
use idempotent::Store;
use idempotent_testkit::StoreOperation;

const T: Duration = secs(60);
/// Messages 2 to 4, each with its predecessor.
const CHAIN: [(&str, &str); 3] = [("2", "1"), ("3", "2"), ("4", "3")];

on_all_stores! {
    an_item_after_a_dead_one_is_held_reported_and_released_after_its_patience
    an_item_after_a_missing_one_is_held_reported_and_released_after_its_patience
    successors_of_a_waiting_item_are_released_after_it
    a_chain_that_was_away_for_longer_than_its_time_runs_in_order_when_it_comes_back
    a_chain_after_an_item_that_is_retried_beyond_its_patience_runs_in_order
    one_that_waited_and_was_lost_is_missing_once_it_was_not_delivered_for_its_time
    an_item_with_rare_deliveries_waits_twice_its_patience_and_not_forever
    a_note_that_was_begun_by_who_was_killed_is_finished_by_the_next_delivery
    an_item_killed_while_it_restarts_its_count_is_not_missing
    hold_is_the_default_and_has_no_end
    halt_dead_letters_an_item_and_its_successors
    a_halted_item_keeps_the_count_of_its_earlier_attempts
    a_killed_predecessor_counts_as_missing_since_its_lease_ended
    the_waiting_time_survives_the_process
    a_predecessor_that_is_put_right_lets_go_of_what_was_held
}

async fn an_item_after_a_dead_one_is_held_reported_and_released_after_its_patience(world: World) {
    let (worker, alerts) = alerting(&world, OnBrokenOrder::Skip(T));
    let job = Job::takes(ms(0));
    worker.outcome("1", &job).await;
    assert!(matches!(worker.outcome("2", &Job::ends(ms(0), End::Err)).await, Outcome::Dead { .. }));
    assert_held(&deliver(&worker, "3", "2", &job).await);
    assert_eq!(alerts.take(), [("its predecessor is dead".to_owned(), false)]);
    // Another chain is not kept waiting by this one.
    assert_eq!(deliver(&worker, "b2", "1", &job).await, Outcome::Ran);
    world.clock.advance(T - ms(1)).await;
    let held = deliver(&worker, "3", "2", &job).await;
    assert_held(&held);
    assert_eq!(retry_after(&held), ms(1), "it comes back when its time is over, not later");
    alerts.take();
    world.clock.advance(ms(1)).await;
    assert_eq!(deliver(&worker, "3", "2", &job).await, Outcome::Ran);
    assert_eq!(alerts.take(), [("its predecessor is dead".to_owned(), true)]);
    assert_eq!(worker.executor.counts().of("held"), 2);
}

async fn an_item_after_a_missing_one_is_held_reported_and_released_after_its_patience(world: World) {
    let (worker, alerts) = alerting(&world, OnBrokenOrder::Skip(T));
    let job = Job::takes(ms(0));
    assert_waiting(&deliver(&worker, "3", "2", &job).await);
    world.clock.advance(T - ms(1)).await;
    assert_waiting(&deliver(&worker, "3", "2", &job).await);
    assert_eq!((job.runs(), alerts.take()), (0, Vec::new()));
    world.clock.advance(ms(1)).await;
    assert_eq!(deliver(&worker, "3", "2", &job).await, Outcome::Ran);
    assert_eq!(alerts.take(), [("its predecessor was never seen".to_owned(), true)]);
    // Sent after all, it is late: it runs, since it comes after nothing that is missing.
    assert_eq!(deliver(&worker, "2", "3", &job).await, Outcome::Ran);
}

async fn successors_of_a_waiting_item_are_released_after_it(world: World) {
    let (worker, _) = alerting(&world, OnBrokenOrder::Skip(T));
    let job = Job::takes(ms(0));
    assert!(matches!(worker.outcome("1", &Job::ends(ms(0), End::Err)).await, Outcome::Dead { .. }));
    // All of them wait from the same moment on.
    for (key, before) in [("2", "1"), ("3", "2"), ("4", "3"), ("b3", "b2"), ("b2", "b1")] {
        assert!(deliver(&worker, key, before, &job).await.is_deferral());
    }
    world.clock.advance(T).await;
    assert_waiting(&deliver(&worker, "4", "3", &job).await);
    assert_waiting(&deliver(&worker, "3", "2", &job).await);
    for (key, before) in [("2", "1"), ("3", "2"), ("4", "3")] {
        assert_eq!(deliver(&worker, key, before, &job).await, Outcome::Ran, "{key}");
    }
    // One that waited and does not come again is missing once another patience is over.
    world.clock.advance(T - ms(1)).await;
    assert_waiting(&deliver(&worker, "b3", "b2", &job).await);
    world.clock.advance(T - ms(1)).await;
    assert_waiting(&deliver(&worker, "b3", "b2", &job).await);
    world.clock.advance(ms(1)).await;
    assert_eq!(deliver(&worker, "b3", "b2", &job).await, Outcome::Ran);
}

async fn hold_is_the_default_and_has_no_end(world: World) {
    let alerts = Alerts::default();
    let worker = world.worker_by("a", Policy::new().max_retries(0), |builder| builder.observer(alerts.clone()));
    let job = Job::takes(ms(0));
    assert_waiting(&deliver(&worker, "2", "1", &job).await);
    world.clock.advance(secs(600)).await;
    assert_held(&deliver(&worker, "2", "1", &job).await);
    assert_eq!(alerts.take(), [("its predecessor was never seen".to_owned(), false)]);
    world.clock.advance(secs(3 * 24 * 3600)).await;
    assert_held(&deliver(&worker, "2", "1", &job).await);
    assert_eq!(job.runs(), 0);
}

async fn halt_dead_letters_an_item_and_its_successors(world: World) {
    let (worker, alerts) = alerting(&world, OnBrokenOrder::Halt(T));
    let job = Job::takes(ms(0));
    worker.outcome("2", &Job::ends(ms(0), End::Err)).await;
    let (outcome, answer) = worker.deliver_call(after("3", "2"), &job).await;
    assert!(matches!(outcome, Outcome::Dead { .. }), "{outcome:?}");
    let text = answer.unwrap_err().to_string();
    let told = format!(
        "halted before it ran: its predecessor is dead (it comes after `{}`); repair the predecessor",
        key_of("2")
    );
    assert!(text.starts_with(&told) && text.contains("Admin::forget"), "{text}");
    assert_eq!(state(&world, "3").await, StateKind::Dead);
    let (_, again) = worker.deliver_call(after("3", "2"), &job).await;
    assert_eq!(again.unwrap_err().to_string(), text, "a redelivery is told the same: it never ran");
    assert!(matches!(deliver(&worker, "4", "3", &job).await, Outcome::Dead { .. }));
    assert_eq!(alerts.take().len(), 2);
    // A redelivery finds it dead, as any other.
    assert!(matches!(deliver(&worker, "4", "3", &job).await, Outcome::Dead { .. }));
    // One that was never seen has its time.
    assert_waiting(&deliver(&worker, "7", "6", &job).await);
    world.clock.advance(T).await;
    let (outcome, answer) = worker.deliver_call(after("7", "6"), &job).await;
    assert!(matches!(outcome, Outcome::Dead { .. }), "{outcome:?}");
    let text = answer.unwrap_err().to_string();
    assert!(text.contains("never seen") && text.contains("; send the predecessor, "), "{text}");
    assert_eq!(job.runs(), 0);
}

async fn a_halted_item_keeps_the_count_of_its_earlier_attempts(world: World) {
    let worker = world.worker("a", Policy::new().max_retries(5).on_broken_order(OnBrokenOrder::Halt(T)));
    let fails = Job::ends(ms(0), End::Err);
    assert!(matches!(worker.outcome("2", &fails).await, Outcome::Released { .. }));
    assert_waiting(&deliver(&worker, "2", "1", &fails).await);
    world.clock.advance(T).await;
    let (_, answer) = worker.deliver_call(after("2", "1"), &fails).await;
    let Err(AppError::Idempotent(Rejection::Dead { attempts, error, .. })) = answer else { panic!("{answer:?}") };
    assert!(error.starts_with("halted before it ran again: "), "{error}");
    assert_eq!((attempts, fails.runs()), (2, 1));
}

async fn a_killed_predecessor_counts_as_missing_since_its_lease_ended(world: World) {
    let (worker, _) = alerting(&world, OnBrokenOrder::Skip(T));
    // It waits for long already when its predecessor begins at last.
    assert_waiting(&deliver(&worker, "2", "1", &Job::takes(ms(0))).await);
    world.clock.advance(T - ms(1)).await;
    let killed = world.worker("killed", Policy::new());
    let run = killed.spawn("1", &Job::takes(secs(600))).await;
    let job = Job::takes(ms(0));
    assert_waiting(&deliver(&worker, "2", "1", &job).await);
    killed.kill(run).await;
    world.clock.advance(secs(30)).await;
    // Its lease of 30 s is over; from here on the time counts.
    assert_waiting(&deliver(&worker, "2", "1", &job).await);
    world.clock.advance(T - ms(1)).await;
    assert_waiting(&deliver(&worker, "2", "1", &job).await);
    world.clock.advance(ms(1)).await;
    assert_eq!(deliver(&worker, "2", "1", &job).await, Outcome::Ran);
}

async fn the_waiting_time_survives_the_process(world: World) {
    let policy = Policy::new().on_broken_order(OnBrokenOrder::Skip(T));
    let job = Job::takes(ms(0));
    let first = world.worker("first", policy);
    assert_waiting(&deliver(&first, "2", "1", &job).await);
    first.store.kill();
    world.clock.advance(T).await;
    let second = world.worker("second", policy);
    assert_eq!(deliver(&second, "2", "1", &job).await, Outcome::Ran);
}

async fn a_predecessor_that_is_put_right_lets_go_of_what_was_held(world: World) {
    let (worker, _) = alerting(&world, OnBrokenOrder::Hold(T));
    let job = Job::takes(ms(0));
    worker.outcome("1", &Job::ends(ms(0), End::Err)).await;
    assert_held(&deliver(&worker, "2", "1", &job).await);
    let fencing = world.record("1").await.unwrap().fencing;
    let admin = world.store.capabilities().admin.unwrap();
    admin.forget(&key_of("1"), fencing, false, secs(3600)).await.unwrap();
    assert_waiting(&deliver(&worker, "2", "1", &job).await);
    assert_eq!(worker.outcome("1", &job).await, Outcome::Ran);
    assert_eq!(deliver(&worker, "2", "1", &job).await, Outcome::Ran);
}

/// Delivers the chain from its end, and then in its order.
async fn assert_runs_in_order(worker: &Worker, job: &Arc<Job>) {
    for (key, before) in [("4", "3"), ("3", "2")] {
        assert_waiting(&deliver(worker, key, before, job).await);
    }
    assert_eq!(job.runs(), 0);
    for (key, before) in CHAIN {
        assert_eq!(deliver(worker, key, before, job).await, Outcome::Ran, "{key}");
    }
}

async fn a_chain_that_was_away_for_longer_than_its_time_runs_in_order_when_it_comes_back(world: World) {
    let (worker, _) = alerting(&world, OnBrokenOrder::Skip(T));
    let job = Job::takes(ms(0));
    assert!(matches!(worker.outcome("1", &Job::ends(ms(0), End::Err)).await, Outcome::Dead { .. }));
    for (key, before) in CHAIN {
        assert!(deliver(&worker, key, before, &job).await.is_deferral());
    }
    // No message was delivered for a long time, and the last one arrives first.
    world.clock.advance(T * 5).await;
    assert_runs_in_order(&worker, &job).await;
}

async fn a_chain_after_an_item_that_is_retried_beyond_its_patience_runs_in_order(world: World) {
    let policy = Policy::new().on_broken_order(OnBrokenOrder::Skip(T)).max_retries(9);
    let worker = world.worker("a", policy);
    let (fails, job) = (Job::ends(ms(0), End::Err), Job::takes(ms(0)));
    for round in 0..10 {
        worker.outcome("1", &fails).await;
        // The last one first, and each of them again and again.
        for (key, before) in CHAIN.into_iter().rev() {
            assert!(deliver(&worker, key, before, &job).await.is_deferral(), "{key} in round {round}");
        }
        world.clock.advance(T / 3).await;
    }
    assert_eq!(state(&world, "1").await, StateKind::Dead);
    world.clock.advance(T / 3).await;
    for (key, before) in CHAIN.into_iter().rev() {
        assert!(deliver(&worker, key, before, &job).await.is_deferral(), "{key}");
    }
    world.clock.advance(T / 3).await;
    assert_runs_in_order(&worker, &job).await;
}

async fn one_that_waited_and_was_lost_is_missing_once_it_was_not_delivered_for_its_time(world: World) {
    let (worker, alerts) = alerting(&world, OnBrokenOrder::Skip(T));
    let job = Job::takes(ms(0));
    // Never sent, lost after this delivery, and one that comes again and again.
    for (key, before) in [("2", "1"), ("3", "2")] {
        assert_waiting(&deliver(&worker, key, before, &job).await);
    }
    for _ in 0..5 {
        world.clock.advance(T / 4 - ms(1)).await;
        assert_waiting(&deliver(&worker, "3", "2", &job).await);
    }
    assert_eq!(alerts.take(), []);
    // Its time, and a fourth part of it more: so exactly is it noted when a call is delivered.
    world.clock.advance(ms(5)).await;
    assert_eq!(deliver(&worker, "3", "2", &job).await, Outcome::Ran);
    assert_eq!(alerts.take(), [("its predecessor was never seen".to_owned(), true)]);
}

async fn an_item_with_rare_deliveries_waits_twice_its_patience_and_not_forever(world: World) {
    let (worker, _) = alerting(&world, OnBrokenOrder::Skip(T));
    let job = Job::takes(ms(0));
    for (key, before) in [("2", "1"), ("3", "2")] {
        assert_waiting(&deliver(&worker, key, before, &job).await);
    }
    world.clock.advance(T * 3).await;
    assert_waiting(&deliver(&worker, "3", "2", &job).await);
    world.clock.advance(T * 3).await;
    assert_eq!(deliver(&worker, "3", "2", &job).await, Outcome::Ran);
}

async fn a_note_that_was_begun_by_who_was_killed_is_finished_by_the_next_delivery(world: World) {
    let policy = Policy::new().on_broken_order(OnBrokenOrder::Skip(T));
    let job = Job::takes(ms(0));
    let killed = world.worker("killed", policy);
    // It has claimed the note, and does not come to let it go.
    killed.store.fail_before(StoreOperation::Release, idempotent_testkit::FOREVER);
    let outcome = deliver(&killed, "2", "1", &job).await;
    assert!(matches!(outcome, Outcome::StoreDown(_)), "{outcome:?}");
    killed.store.kill();
    let worker = world.worker("b", policy);
    assert_waiting(&deliver(&worker, "2", "1", &job).await);
    assert_waiting(&deliver(&worker, "3", "2", &job).await);
    world.clock.advance(T).await;
    assert_waiting(&deliver(&worker, "3", "2", &job).await);
    assert_eq!(deliver(&worker, "2", "1", &job).await, Outcome::Ran, "its time counts from the note that was begun");
    assert_eq!(deliver(&worker, "3", "2", &job).await, Outcome::Ran);
}

async fn an_item_killed_while_it_restarts_its_count_is_not_missing(world: World) {
    let policy = Policy::new().on_broken_order(OnBrokenOrder::Skip(T));
    let (worker, job) = (world.worker("a", policy), Job::takes(ms(0)));
    for (verb, chain) in
        [(StoreOperation::Claim, ["0", "1", "2", "3"]), (StoreOperation::Release, ["a", "b", "c", "d"])]
    {
        let chain = chain.windows(2).map(|pair| (pair[1], pair[0])).collect::<Vec<_>>();
        for (key, before) in &chain {
            assert_waiting(&deliver(&worker, key, before, &job).await);
        }
        // No message was delivered meanwhile. The wait of the second one starts again, and its process ends there.
        world.clock.advance(T * 5).await;
        let killed = world.worker("killed", policy);
        killed.store.pass(verb, u32::from(verb == StoreOperation::Claim));
        killed.store.fail_before(verb, idempotent_testkit::FOREVER);
        let outcome = deliver(&killed, chain[1].0, chain[1].1, &job).await;
        assert!(outcome.is_deferral() || matches!(outcome, Outcome::StoreDown(_)), "{outcome:?}");
        killed.store.kill();
        assert_waiting(&deliver(&worker, chain[2].0, chain[2].1, &job).await);
        // Nor is it known, from its own note, for how long it has waited.
        assert_waiting(&deliver(&worker, chain[1].0, chain[1].1, &job).await);
        assert_eq!(job.runs(), 0);
    }
}
