//! Numbers of a stream, and the table that says what comes before them.
use super::*;
use idempotent::ordering::OnLate;
use idempotent::{Clock, OnInFlight};
use idempotent_testkit::{FOREVER, StoreOperation};

/// A number of a stream; its key is both.
pub(crate) fn numbered(stream: &str, number: u64) -> Call {
    Call::new(id(&format!("{stream} {number}"))).sequence(stream, number)
}

pub(crate) async fn register(worker: &Worker, stream: &str, numbers: &[u64]) -> idempotent::ordering::Registered {
    worker.executor.register(&id(stream), numbers.iter().copied()).await.unwrap()
}

pub(crate) async fn comes(worker: &Worker, stream: &str, number: u64, job: &Arc<Job>) -> Outcome {
    worker.deliver_call(numbered(stream, number), job).await.0
}

pub(crate) async fn begin(
    worker: &Worker,
    stream: &'static str,
    number: u64,
    job: &Arc<Job>,
) -> tokio::task::JoinHandle<Outcome> {
    let (worker, job) = (worker.clone(), job.clone());
    let clock = worker.clock.clone();
    let task = tokio::spawn(async move { comes(&worker, stream, number, &job).await });
    until_runs(&clock).await;
    task
}

/// A server answers in its own time, and no clock of ours moves meanwhile.
async fn until_runs(clock: &idempotent_testkit::VirtualClock) {
    for _ in 0..20 {
        clock.settle().await;
        tokio::time::sleep(ms(1)).await;
    }
}

on_all_stores! {
    registered_numbers_3_2_1_at_three_consumers_run_as_1_2_3
    the_first_of_a_stream_has_nothing_before_it_and_numbers_may_have_gaps
    arrived_numbers_wait_for_each_other_without_registration
    a_waiting_number_stays_in_the_store_without_its_consumers
    a_dead_2_holds_3_tells_of_it_and_releases_it_after_its_time
    a_registered_number_that_is_never_sent_is_held_and_released
    halted_numbers_die_one_after_the_other_without_a_run
    streams_of_other_names_and_tenants_are_not_delayed
    a_late_number_runs_after_the_active_one_and_is_reported
    a_skipped_number_does_not_run_concurrently_with_the_skipping_one
    a_late_number_is_refused_where_the_policy_says_so
    a_duplicate_gets_its_answer_wherever_its_stream_is
    a_run_that_was_killed_holds_the_next_until_it_was_taken_over
    a_run_that_was_killed_and_is_not_sent_again_is_missing_from_its_leases_end_on
    an_admitted_number_without_a_claim_blocks_others_for_a_lease
    a_completion_releases_the_next_number_after_a_lost_order_update
    a_stream_remembers_a_consumed_number_longer_than_the_record
    a_number_waits_in_place_by_policy
    in_a_batch_one_of_a_stream_runs
}

async fn registered_numbers_3_2_1_at_three_consumers_run_as_1_2_3(world: World) {
    let [a, b, c] = ["a", "b", "c"].map(|name| world.worker(name, Policy::new().max_retries(0)));
    let job = Job::takes(ms(0));
    let registered = register(&a, "ann", &[1, 2, 3]).await;
    assert_eq!((registered.expected, registered.late), (3, 0));
    assert_waiting(&comes(&a, "ann", 3, &job).await);
    assert_waiting(&comes(&b, "ann", 2, &job).await);
    assert_eq!(comes(&c, "ann", 1, &job).await, Outcome::Ran);
    assert_waiting(&comes(&a, "ann", 3, &job).await);
    assert_eq!(comes(&b, "ann", 2, &job).await, Outcome::Ran);
    assert_eq!(comes(&a, "ann", 3, &job).await, Outcome::Ran);
    assert_eq!((job.runs(), job.attempts()), (3, vec![1, 1, 1]), "no attempt was spent on waiting");
}

async fn the_first_of_a_stream_has_nothing_before_it_and_numbers_may_have_gaps(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    register(&worker, "ann", &[u64::MAX, 7, 70]).await;
    assert_waiting(&comes(&worker, "ann", u64::MAX, &job).await);
    assert_waiting(&comes(&worker, "ann", 70, &job).await);
    for number in [7, 70, u64::MAX] {
        assert_eq!(comes(&worker, "ann", number, &job).await, Outcome::Ran);
    }
    assert_eq!(register(&worker, "ann", &[1, u64::MAX]).await.late, 2);
}

async fn arrived_numbers_wait_for_each_other_without_registration(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(secs(5)));
    let first = begin(&worker, "ann", 1, &job).await;
    assert_waiting(&comes(&worker, "ann", 3, &job).await);
    assert_waiting(&comes(&worker, "ann", 2, &job).await);
    world.clock.advance(secs(5)).await;
    assert_eq!(first.await.unwrap(), Outcome::Ran);
    let job = Job::takes(ms(0));
    assert_waiting(&comes(&worker, "ann", 3, &job).await);
    assert_eq!(comes(&worker, "ann", 2, &job).await, Outcome::Ran);
    assert_eq!(comes(&worker, "ann", 3, &job).await, Outcome::Ran);
    // A gap is not seen.
    assert_eq!(comes(&worker, "ann", 9, &job).await, Outcome::Ran);
}

async fn a_waiting_number_stays_in_the_store_without_its_consumers(world: World) {
    let job = Job::takes(ms(0));
    let first = world.worker("a", Policy::new().on_broken_order(OnBrokenOrder::Skip(secs(60))));
    register(&first, "ann", &[1]).await;
    assert_waiting(&comes(&first, "ann", 3, &job).await);
    first.store.kill();
    drop(first);
    let (second, alerts) = alerting(&world, OnBrokenOrder::Skip(secs(60)));
    world.clock.advance(secs(60) - ms(1)).await;
    assert_waiting(&comes(&second, "ann", 3, &job).await);
    // The time counts from the first delivery to any worker.
    world.clock.advance(ms(1)).await;
    assert_eq!(comes(&second, "ann", 3, &job).await, Outcome::Ran);
    assert_eq!(alerts.take(), [("its predecessor was never seen".to_owned(), true)]);
}

async fn a_dead_2_holds_3_tells_of_it_and_releases_it_after_its_time(world: World) {
    let (worker, alerts) = alerting(&world, OnBrokenOrder::Skip(secs(60)));
    let (fails, job) = (Job::ends(ms(0), crate::common::End::Err), Job::takes(ms(0)));
    register(&worker, "ann", &[1, 2, 3, 4]).await;
    assert_eq!(comes(&worker, "ann", 1, &job).await, Outcome::Ran);
    assert!(matches!(comes(&worker, "ann", 2, &fails).await, Outcome::Dead { .. }));
    assert_held(&comes(&worker, "ann", 3, &job).await);
    assert_eq!(alerts.take(), [("its predecessor is dead".to_owned(), false)]);
    assert_waiting(&comes(&worker, "ann", 4, &job).await);
    world.clock.advance(secs(60) - ms(1)).await;
    assert_held(&comes(&worker, "ann", 3, &job).await);
    world.clock.advance(ms(1)).await;
    // 4 is not let go before 3: that one is alive.
    assert_waiting(&comes(&worker, "ann", 4, &job).await);
    alerts.take();
    assert_eq!(comes(&worker, "ann", 3, &job).await, Outcome::Ran);
    assert_eq!(alerts.take(), [("its predecessor is dead".to_owned(), true)]);
    assert_eq!(comes(&worker, "ann", 4, &job).await, Outcome::Ran);
    assert_eq!((job.runs(), alerts.take()), (3, Vec::new()));
}

async fn a_registered_number_that_is_never_sent_is_held_and_released(world: World) {
    let (held, alerts) = alerting(&world, OnBrokenOrder::Hold(secs(60)));
    let job = Job::takes(ms(0));
    register(&held, "ann", &[1, 2, 3]).await;
    assert_eq!(comes(&held, "ann", 1, &job).await, Outcome::Ran);
    assert_waiting(&comes(&held, "ann", 3, &job).await);
    world.clock.advance(secs(60)).await;
    assert_held(&comes(&held, "ann", 3, &job).await);
    assert_eq!(alerts.take(), [("its predecessor was never seen".to_owned(), false)]);
    // It was sent after all, and sets its successor free.
    assert_eq!(comes(&held, "ann", 2, &job).await, Outcome::Ran);
    assert_eq!(comes(&held, "ann", 3, &job).await, Outcome::Ran);
}

async fn halted_numbers_die_one_after_the_other_without_a_run(world: World) {
    let (worker, _) = alerting(&world, OnBrokenOrder::Halt(secs(60)));
    let job = Job::takes(ms(0));
    register(&worker, "ann", &[1, 2, 3]).await;
    assert_waiting(&comes(&worker, "ann", 2, &job).await);
    world.clock.advance(secs(60)).await;
    assert!(matches!(comes(&worker, "ann", 2, &job).await, Outcome::Dead { .. }), "1 is lost");
    assert!(matches!(comes(&worker, "ann", 3, &job).await, Outcome::Dead { .. }), "2 is dead");
    assert!(matches!(comes(&worker, "ann", 4, &job).await, Outcome::Dead { .. }), "and so on");
    assert!(matches!(comes(&worker, "ann", 3, &job).await, Outcome::Dead { .. }), "a duplicate is told the same");
    assert_eq!(job.runs(), 0);
}

async fn streams_of_other_names_and_tenants_are_not_delayed(world: World) {
    let (worker, job) = (world.worker("a", Policy::new()), Job::takes(ms(0)));
    register(&worker, "ann", &[1, 2]).await;
    assert_waiting(&comes(&worker, "ann", 2, &job).await);
    assert_eq!(comes(&worker, "bob", 2, &job).await, Outcome::Ran);
    let of_a_tenant = Call::new(id("ann 2").tenant("shop")).sequence("ann", 2);
    assert_eq!(worker.deliver_call(of_a_tenant, &job).await.0, Outcome::Ran);
    // A stream of several handlers goes by its identity.
    let crossed = |key: &str, number| {
        Call::new(id(key)).sequence(&idempotent::Identity::new(idempotent::Scene::Mq, "orders", "o-17"), number)
    };
    worker
        .executor
        .register(&idempotent::Identity::new(idempotent::Scene::Mq, "orders", "o-17"), [1, 2])
        .await
        .unwrap();
    assert_waiting(&worker.deliver_call(crossed("parcel", 2), &job).await.0);
    assert_eq!(worker.deliver_call(crossed("payment", 1), &job).await.0, Outcome::Ran);
    assert_eq!(worker.deliver_call(crossed("parcel", 2), &job).await.0, Outcome::Ran);
    // A stream without a name is a mistake, not one that all share.
    let torn = Call::new(id("x")).sequence(&None::<&str>, 1);
    assert_eq!(worker.deliver_call(torn, &job).await.0, Outcome::BadKey);
}

async fn a_late_number_runs_after_the_active_one_and_is_reported(world: World) {
    let (worker, alerts) = alerting(&world, OnBrokenOrder::default());
    let (slow, job) = (Job::takes(secs(100)), Job::takes(ms(0)));
    let second = begin(&worker, "ann", 2, &slow).await;
    assert_eq!(slow.runs(), 1);
    assert_waiting(&comes(&worker, "ann", 1, &job).await);
    // Its lease was renewed for longer than the first one lasted.
    world.clock.advance(secs(99)).await;
    until_runs(&world.clock).await;
    assert_waiting(&comes(&worker, "ann", 1, &job).await);
    world.clock.advance(secs(1)).await;
    assert_eq!(second.await.unwrap(), Outcome::Ran);
    assert_eq!(alerts.take(), [], "it has not run yet");
    assert_eq!(worker.executor.counts().late(), 0);
    assert_eq!(comes(&worker, "ann", 1, &job).await, Outcome::Ran);
    assert_eq!(worker.executor.counts().late(), 1);
    assert!(format!("{:?}", worker.executor.counts()).contains(r#""late": 1"#));
    assert_eq!(alerts.take(), [("a larger number of its stream was let in before".to_owned(), true)]);
    assert_eq!(comes(&worker, "ann", 3, &job).await, Outcome::Ran);
}

async fn a_skipped_number_does_not_run_concurrently_with_the_skipping_one(world: World) {
    let (worker, _) = alerting(&world, OnBrokenOrder::Skip(secs(60)));
    let (slow, job) = (Job::takes(secs(20)), Job::takes(ms(0)));
    register(&worker, "ann", &[1, 2]).await;
    assert_waiting(&comes(&worker, "ann", 2, &slow).await);
    world.clock.advance(secs(60)).await;
    let second = begin(&worker, "ann", 2, &slow).await;
    assert_eq!(slow.runs(), 1, "it has skipped 1");
    assert_waiting(&comes(&worker, "ann", 1, &job).await);
    world.clock.advance(secs(20)).await;
    assert_eq!(second.await.unwrap(), Outcome::Ran);
    // The next number does not run concurrently.
    let late = begin(&worker, "ann", 1, &slow).await;
    assert_eq!(slow.runs(), 2);
    assert_waiting(&comes(&worker, "ann", 3, &job).await);
    world.clock.advance(secs(20)).await;
    assert_eq!(late.await.unwrap(), Outcome::Ran);
    assert_eq!(comes(&worker, "ann", 3, &job).await, Outcome::Ran);
}

async fn a_late_number_is_refused_where_the_policy_says_so(world: World) {
    let (worker, job) = (world.worker("a", Policy::new().on_late(OnLate::Refuse)), Job::takes(ms(0)));
    assert_eq!(comes(&worker, "ann", 2, &job).await, Outcome::Ran);
    for _ in 0..2 {
        let (outcome, answer) = worker.deliver_call(numbered("ann", 1), &job).await;
        assert!(matches!(outcome, Outcome::Dead { .. }), "{outcome:?}");
        let text = answer.unwrap_err().to_string();
        let told =
            "halted before it ran: a larger number of its stream was let in before (it is number 1 of a stream of `";
        assert!(text.starts_with(told) && text.contains("`on_late = run`"), "{text}");
    }
    assert_eq!(worker.executor.counts().late(), 1, "its second delivery was a duplicate");
    assert_eq!(comes(&worker, "ann", 2, &job).await, Outcome::Replayed, "it is not late, but done");
    assert_eq!(comes(&worker, "ann", 3, &job).await, Outcome::Ran, "the stream goes on");
    assert_eq!(job.runs(), 2);
}

async fn a_duplicate_gets_its_answer_wherever_its_stream_is(world: World) {
    let (worker, alerts) = alerting(&world, OnBrokenOrder::default());
    let job = Job::takes(ms(0));
    register(&worker, "ann", &[1, 2, 3]).await;
    for number in [1, 2] {
        assert_eq!(comes(&worker, "ann", number, &job).await, Outcome::Ran);
    }
    for number in [1, 2, 1] {
        assert_eq!(comes(&worker, "ann", number, &job).await, Outcome::Replayed);
    }
    assert_eq!(comes(&worker, "ann", 3, &job).await, Outcome::Ran);
    assert_eq!((job.runs(), alerts.take()), (3, Vec::new()));
}

async fn a_run_that_was_killed_holds_the_next_until_it_was_taken_over(world: World) {
    let (killed, worker) = (world.worker("a", Policy::new()), world.worker("b", Policy::new()));
    let job = Job::takes(secs(10));
    let first = begin(&killed, "ann", 1, &job).await;
    killed.kill(first).await;
    assert_waiting(&comes(&worker, "ann", 2, &job).await);
    world.clock.advance(secs(31)).await;
    until_runs(&world.clock).await;
    assert_waiting(&comes(&worker, "ann", 2, &job).await);
    let job = Job::takes(ms(0));
    assert_eq!(comes(&worker, "ann", 1, &job).await, Outcome::Ran);
    assert_eq!(comes(&worker, "ann", 2, &job).await, Outcome::Ran);
}

async fn a_run_that_was_killed_and_is_not_sent_again_is_missing_from_its_leases_end_on(world: World) {
    let killed = world.worker("a", Policy::new());
    let (worker, alerts) = alerting(&world, OnBrokenOrder::Hold(secs(60)));
    let first = begin(&killed, "ann", 1, &Job::takes(secs(10))).await;
    killed.kill(first).await;
    let job = Job::takes(ms(0));
    assert_waiting(&comes(&worker, "ann", 2, &job).await);
    world.clock.advance(secs(89)).await;
    assert_waiting(&comes(&worker, "ann", 2, &job).await);
    world.clock.advance(secs(1)).await;
    assert_held(&comes(&worker, "ann", 2, &job).await);
    assert_eq!(alerts.take(), [("its predecessor was never seen".to_owned(), false)]);
}

async fn an_admitted_number_without_a_claim_blocks_others_for_a_lease(world: World) {
    let (stopped, worker) = (world.worker("a", Policy::new().lease(secs(60))), world.worker("b", Policy::new()));
    let job = Job::takes(ms(0));
    stopped.store.fail_before(StoreOperation::Claim, FOREVER);
    let began = world.clock.now();
    let second = begin(&stopped, "ann", 2, &job).await;
    while !second.is_finished() {
        world.clock.advance(ms(100)).await;
        until_runs(&world.clock).await;
    }
    assert!(matches!(second.await.unwrap(), Outcome::StoreDown(_)));
    let until = began + secs(60);
    assert!(until - world.clock.now() > secs(1), "it gives up in time");
    // A late number could run concurrently if its claim were slow.
    assert_waiting(&comes(&worker, "ann", 1, &job).await);
    world.clock.advance(until - world.clock.now() - ms(1)).await;
    assert_waiting(&comes(&worker, "ann", 1, &job).await);
    world.clock.advance(ms(1)).await;
    assert_eq!(comes(&worker, "ann", 1, &job).await, Outcome::Ran);
    assert_eq!(comes(&worker, "ann", 2, &job).await, Outcome::Ran);
}

async fn a_completion_releases_the_next_number_after_a_lost_order_update(world: World) {
    let (worker, other) = (world.worker("a", Policy::new()), world.worker("b", Policy::new()));
    let job = Job::takes(secs(5));
    let first = begin(&worker, "ann", 1, &job).await;
    worker.store.fail_before(StoreOperation::CompareAndSwap, FOREVER);
    world.clock.advance(secs(5)).await;
    assert_eq!(first.await.unwrap(), Outcome::Ran, "its effect is recorded, whatever becomes of the note");
    assert_eq!(comes(&other, "ann", 2, &Job::takes(ms(0))).await, Outcome::Ran);
}

async fn a_stream_remembers_a_consumed_number_longer_than_the_record(world: World) {
    let policy = Policy::new().retain(secs(100)).on_broken_order(OnBrokenOrder::Hold(secs(60)));
    let (worker, job) = (world.worker("a", policy), Job::takes(ms(0)));
    register(&worker, "ann", &[1, 2]).await;
    assert_eq!(comes(&worker, "ann", 1, &job).await, Outcome::Ran);
    world.clock.advance(secs(200)).await;
    assert_eq!(state(&world, "ann 1").await, StateKind::Absent, "its retention is over");
    assert_eq!(comes(&worker, "ann", 2, &job).await, Outcome::Ran, "that is not to have never been seen");
}

async fn a_number_waits_in_place_by_policy(world: World) {
    let (worker, job) =
        (world.worker("a", Policy::new().on_in_flight(OnInFlight::Wait(secs(30)))), Job::takes(secs(5)));
    let first = begin(&worker, "ann", 1, &job).await;
    let second = begin(&worker, "ann", 2, &job).await;
    assert_eq!(job.runs(), 1);
    world.clock.advance(secs(5)).await;
    assert_eq!(first.await.unwrap(), Outcome::Ran);
    let told = async {
        while job.runs() < 2 {
            world.clock.settle().await;
            tokio::time::sleep(ms(1)).await;
            world.clock.advance(ms(1)).await;
        }
    };
    tokio::time::timeout(secs(60), told).await.unwrap();
    world.clock.advance(secs(5)).await;
    assert_eq!(second.await.unwrap(), Outcome::Ran);
}

async fn in_a_batch_one_of_a_stream_runs(world: World) {
    let worker = world.worker("a", Policy::new());
    register(&worker, "ann", &[1, 2, 3]).await;
    for outcomes in [["waiting", "ran", "ran"], ["ran", "replayed", "replayed"]] {
        let calls = vec![numbered("ann", 2), numbered("ann", 1), numbered("bob", 1)];
        assert_eq!(deliver_batch(&worker, calls).await, outcomes);
    }
}
