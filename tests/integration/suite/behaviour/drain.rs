//! Drains, and servers that drain at their end, on a virtual clock.
use crate::common::{Job, World, ms, secs};
use idempotent::executor::Stopped;
use idempotent::store::StateKind;
use idempotent::{Clock, Disposition, Outcome, Policy};
use idempotent_testkit::StoreOperation;
use tokio::sync::oneshot;

on_all_stores! {
    a_drain_lets_runs_finish_and_abandons_the_rest
    a_drain_gives_back_what_has_not_started
    a_server_that_is_stopped_ends_before_the_runs_that_its_clients_have_left
    a_server_with_open_connections_and_one_that_ends_by_itself_are_drained
    a_run_inside_the_future_of_a_server_does_not_outlast_the_grace
}

/// A drain without a broker.
async fn a_drain_lets_runs_finish_and_abandons_the_rest(world: World) {
    let worker = world.worker("a", Policy::new().lease(secs(6)));
    let (short, long) = (Job::takes(secs(2)), Job::takes(secs(60)));
    let one = worker.spawn("one", &short).await;
    let two = worker.spawn("two", &short).await;
    let three = worker.spawn("three", &long).await;
    let drain = worker.drain(secs(5));
    world.clock.settle().await;
    let refused = worker.outcome("four", &short).await;
    assert!(matches!(refused, Outcome::Draining { .. }), "{refused:?}");
    world.clock.advance(ms(4999)).await;
    assert!(!drain.is_finished() && !three.is_finished());
    assert!(world.asked(StoreOperation::Renew).len() >= 2, "renewed until the end");
    world.clock.advance(ms(1)).await;
    let drained = drain.await.unwrap();
    assert_eq!((drained.finished, drained.abandoned), (2, 1));
    assert_eq!((one.await.unwrap().0, two.await.unwrap().0), (Outcome::Ran, Outcome::Ran));
    let (outcome, _) = three.await.unwrap();
    assert_eq!(outcome, Outcome::Abandoned);
    assert!(matches!(outcome.disposition(), Disposition::Retry { .. }));
    assert_eq!(world.record("three").await.unwrap().state.kind(), StateKind::Consuming, "its effect is unknown");
    assert_eq!(worker.executor.drain(secs(5)).await.finished, 0, "a second time there is nothing left to do");
}

async fn a_drain_gives_back_what_has_not_started(world: World) {
    let worker = world.worker("a", Policy::new());
    worker.store.delay_reply(StoreOperation::Claim, ms(500));
    let job = Job::takes(ms(0));
    let run = worker.spawn("k", &job).await;
    let drain = worker.drain(secs(5));
    world.clock.advance(ms(500)).await;
    assert!(matches!(run.await.unwrap().0, Outcome::Draining { .. }));
    drain.await.unwrap();
    assert_eq!(job.runs(), 0);
    let other = world.worker("b", Policy::new());
    assert_eq!(other.outcome("k", &job).await, Outcome::Ran);
    assert_eq!(job.attempts(), [1], "refunded");
}

async fn a_server_that_is_stopped_ends_before_the_runs_that_its_clients_have_left(world: World) {
    let worker = world.worker("a", Policy::new());
    let left = worker.spawn("left", &Job::takes(secs(5))).await;
    let (stop, stopping) = oneshot::channel::<()>();
    let executor = worker.executor.clone();
    let late = Job::takes(ms(0));
    let server = {
        let (worker, late, clock) = (worker.clone(), late.clone(), world.clock.clone());
        async move |stopped: Stopped| {
            stopped.await;
            // A request in progress is still answered.
            let answered = worker.outcome("late", &late).await;
            clock.sleep_until(clock.now() + secs(2)).await;
            answered
        }
    };
    let serving =
        tokio::spawn(async move { executor.serve_until(async { _ = stopping.await }, secs(10), server).await });
    world.clock.advance(secs(1)).await;
    assert!(!serving.is_finished() && !worker.executor.is_draining());
    assert_eq!(late.runs(), 0, "not before the stop");
    stop.send(()).unwrap();
    world.clock.advance(secs(2)).await;
    assert!(!serving.is_finished(), "a run goes on");
    world.clock.advance(secs(2)).await;
    let served = serving.await.unwrap();
    assert_eq!((served.output, served.drained.finished, served.drained.abandoned), (Some(Outcome::Ran), 1, 0));
    assert_eq!((left.await.unwrap().0, late.runs()), (Outcome::Ran, 1));
}

async fn a_server_with_open_connections_and_one_that_ends_by_itself_are_drained(world: World) {
    for (never_ends, took) in [(true, secs(3)), (false, secs(0))] {
        let worker = world.worker("a", Policy::new());
        let job = Job::takes(if never_ends { secs(60) } else { secs(0) });
        let run = worker.spawn(if never_ends { "long" } else { "short" }, &job).await;
        let executor = worker.executor.clone();
        let server = async move |stopped: Stopped| match never_ends {
            true => std::future::pending().await,
            false => drop(stopped),
        };
        let stop = async move {
            if !never_ends {
                std::future::pending().await
            }
        };
        let serving = tokio::spawn(async move { executor.serve_until(stop, secs(3), server).await });
        world.clock.advance(took).await;
        let served = serving.await.unwrap();
        assert_eq!((served.output.is_none(), served.drained.abandoned), (never_ends, usize::from(never_ends)));
        assert!(worker.executor.is_draining());
        drop(run.await);
    }
}

/// A server that answers one request at a time, in its own future.
async fn a_run_inside_the_future_of_a_server_does_not_outlast_the_grace(world: World) {
    let worker = world.worker("a", Policy::new());
    let executor = worker.executor.clone();
    let server = async move |_: Stopped| worker.outcome("long", &Job::takes(secs(60))).await;
    let serving = tokio::spawn(async move { executor.serve_until(async {}, secs(3), server).await });
    world.clock.settle().await;
    world.clock.advance(secs(3)).await;
    world.until(|| serving.is_finished()).await;
    let served = serving.await.unwrap();
    assert_eq!((served.drained.finished, served.drained.abandoned), (0, 1));
    assert!(matches!(served.output, None | Some(Outcome::Abandoned)), "{served:?}");
}
