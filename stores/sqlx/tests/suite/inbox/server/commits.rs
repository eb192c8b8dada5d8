//! Commits whose answer is lost.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Outcome, Rejection};
use idempotent_harness::proxy::{Fault, Proxy};

use super::backend::end_connection;
use super::fixture::{Place, server};
use super::world::{Own, World};
use crate::inbox::{Failure, call, released};

pub(super) async fn run(world: &World, leased: bool, name: &str) -> (Result<(), Failure>, Option<Outcome>) {
    let inbox = if leased { &world.leased } else { &world.inbox };
    Outcome::capture(inbox.run(call(name), async |mut tx: Own| Ok(world.effect(&mut tx, name).await?))).await
}

pub(super) async fn proxied() -> (Proxy, Place) {
    let proxy = Proxy::start(&server().address()).await;
    let mut place = Place::new();
    place.url = place.url.replace(&server().address(), &proxy.address());
    (proxy, place)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_with_a_lost_response_is_looked_up() {
    let (proxy, place) = proxied().await;
    let world = Arc::new(World::at(place, 4).await);
    let faults = [(Fault::CutAfterApply, true), (Fault::CutBeforeSend, false), (Fault::CutMidReply, true)];
    for number in 0..30 {
        for leased in [false, true] {
            let (fault, committed) = faults[number % faults.len()];
            let name = format!("{number}{leased}");
            proxy.fail_next_with("COMMIT", fault);
            let (answer, outcome) = run(&world, leased, &name).await;
            assert_eq!(proxy.disarm(), 0, "{name}: the fault struck: {outcome:?} {answer:?}");
            match committed {
                true => assert_eq!(outcome, Some(Outcome::Ran), "{fault:?}: {answer:?}"),
                false => released(outcome),
            }
            assert_eq!(world.effects(&name).await, i64::from(committed), "{fault:?}");
            let again = run(&world, leased, &name).await.1;
            assert_eq!(again, Some(if committed { Outcome::Replayed } else { Outcome::Ran }));
            assert_eq!(world.effects(&name).await, 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_hangs_is_looked_up_too() {
    let (proxy, place) = proxied().await;
    let world = World::at(place, 8).await;
    proxy.fail_next_with("COMMIT", Fault::HalfOpenAfterApply);
    assert_eq!(run(&world, false, "a").await.1, Some(Outcome::Ran));
    assert_eq!(world.effects("a").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_may_yet_be_one_is_waited_for() {
    let (proxy, place) = proxied().await;
    let world = World::patient(place, 8, Duration::from_secs(2)).await;
    for leased in [false, true] {
        let name = leased.to_string();
        // On its way for longer than anybody waits for an answer; meanwhile its transaction is open.
        proxy.fail_next_with("COMMIT", Fault::Delay(Duration::from_secs(5)));
        let (answer, outcome) = run(&world, leased, &name).await;
        assert_eq!(outcome, Some(Outcome::Ran), "{answer:?}");
        assert_eq!(world.effects(&name).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_ends_in_the_handlers_hands_rolls_back() {
    let world = World::new().await;
    for leased in [false, true] {
        let inbox = if leased { &world.leased } else { &world.inbox };
        let name = leased.to_string();
        let run_it = inbox.run(call(&name), async |mut tx: Own| {
            world.effect(&mut tx, &name).await?;
            end_connection(&mut tx, &world.other).await;
            Ok::<_, Failure>(())
        });
        let (answer, outcome) = Outcome::capture(run_it).await;
        assert!(matches!(answer, Err(Failure::Rejected(Rejection::RolledBack { .. }))), "{answer:?}");
        released(outcome);
        assert_eq!(world.effects(&name).await, 0);
        assert_eq!(run(&world, leased, &name).await.1, Some(Outcome::Ran));
    }
}
