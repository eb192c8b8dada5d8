//! A process that is killed at a point of a run in one transaction.
use idempotent_core::{Event, Executor, Observer, Outcome, Rejection, RunInfo};
use idempotent_sqlx::Inbox;
use serde::{Deserialize, Serialize, Serializer};

use super::steps::{dies, free, killed_at, point_and_address};
use super::world::{Own, World};
use crate::inbox::{Failure, call};

const BEFORE_CLAIM: &str = "before the claim";
const AFTER_CLAIM: &str = "after the claim";
const AFTER_WRITE: &str = "after the write";
const BEFORE_COMMIT: &str = "before the commit";
const AFTER_COMMIT: &str = "after the commit";
const BEFORE_ACK: &str = "before the acknowledgement";

/// The points, with the effects that the killed process leaves and the outcome of the redelivery.
const POINTS: [(&str, i64, Outcome); 6] = [
    (BEFORE_CLAIM, 0, Outcome::Ran),
    (AFTER_CLAIM, 0, Outcome::Ran),
    (AFTER_WRITE, 0, Outcome::Ran),
    (BEFORE_COMMIT, 0, Outcome::Ran),
    (AFTER_COMMIT, 1, Outcome::Replayed),
    (BEFORE_ACK, 1, Outcome::Replayed),
];

/// A result that is encoded between the end of the handler and the commit.
#[derive(Deserialize)]
struct Receipt {
    #[serde(skip)]
    point: String,
}

impl Serialize for Receipt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        dies(&self.point, BEFORE_COMMIT);
        serializer.collect_map([("", ""); 0])
    }
}

/// Kills the process at the end of a run, before the caller receives the result.
#[derive(Debug)]
struct AtTheEnd(String);

impl Observer for AtTheEnd {
    fn on(&self, _: &RunInfo<'_>, event: &Event<'_>) {
        if matches!(event, Event::Ended { .. }) {
            dies(&self.0, AFTER_COMMIT);
        }
    }
}

/// The inbox, by the word of its mode.
fn inbox(world: &World, mode: &str, observer: impl Observer) -> Inbox<super::world::Database> {
    let executor = Executor::builder(world.store.clone()).observer(observer).build().unwrap();
    if mode == "leased" { Inbox::leased(&executor) } else { Inbox::new(&executor) }
}

/// Handles a delivery of the message `name`.
async fn consume(world: &World, mode: &str, name: &str, point: &str) -> (Result<(), Failure>, Option<Outcome>) {
    dies(point, BEFORE_CLAIM);
    let inbox = inbox(world, mode, AtTheEnd(point.to_owned()));
    let handler = async |mut tx: Own| {
        dies(point, AFTER_CLAIM);
        world.effect(&mut tx, name).await?;
        dies(point, AFTER_WRITE);
        Ok::<_, Failure>(Receipt { point: point.to_owned() })
    };
    let (answer, outcome) = Outcome::capture(inbox.run(call(name), handler)).await;
    dies(point, BEFORE_ACK);
    (answer.map(drop), outcome)
}

/// Handles a delivery as soon as the database has rolled back the transaction of the killed process.
async fn redeliver(world: &World, mode: &str, name: &str) -> Option<Outcome> {
    loop {
        match consume(world, mode, name, "").await {
            (Err(Failure::Rejected(Rejection::InFlight { .. })), _) => tokio::task::yield_now().await,
            (answer, outcome) => {
                answer.unwrap();
                return outcome;
            }
        }
    }
}

/// Runs the process that is killed. Does nothing without a point.
#[tokio::test]
async fn process() {
    let Some((name, address)) = point_and_address() else { return };
    let (mode, point) = name.split_once(' ').unwrap();
    let world = World::again(&address).await;
    consume(&world, mode, &name, point).await.0.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_killed_at_any_of_six_points_leaves_one_effect_after_its_redelivery() {
    let world = World::new().await;
    for mode in ["inside", "leased"] {
        for (point, left, outcome) in &POINTS {
            let name = format!("{mode} {point}");
            killed_at(module_path!(), &name, &world.address());
            assert_eq!(world.effects(&name).await, *left, "{name}");
            if mode == "leased" && *left == 0 && *point != BEFORE_CLAIM {
                free(&world, &name).await;
            }
            assert_eq!(redeliver(&world, mode, &name).await.as_ref(), Some(outcome), "{name}");
            assert_eq!(world.effects(&name).await, 1, "{name}");
            assert_eq!(redeliver(&world, mode, &name).await, Some(Outcome::Replayed), "{name}: once more");
            assert_eq!(world.effects(&name).await, 1, "{name}: once more");
        }
    }
}
