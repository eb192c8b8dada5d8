//! Attempts of runs whose record is rolled back with their transaction, under a consumer.
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Call, DeliveryContext, Executor, Identity, Lease, Outcome, Policy, Scene};
use idempotent_mq::{
    Consumer, DelaySupport, Delivery, Message, Messages, Position, Received, Schedule, Settle, Settlement, Source,
    SourceCapabilities, SourceError,
};
use idempotent_sqlx::Inbox;
use sqlx::Sqlite;
use tokio::sync::watch;

use super::world::{Own, World};
use crate::inbox::{Failure, call, released};

/// A queue that delivers again at once what is to be tried again, with its mark.
#[derive(Clone)]
struct Queue(Arc<Kept>);

/// The waiting deliveries, and the settlements of the earlier ones.
type Kept = (Mutex<VecDeque<Delivery>>, watch::Sender<Vec<Settlement>>);

#[async_trait]
impl Source for Queue {
    type Tag = ();

    fn capabilities(&self) -> SourceCapabilities {
        SourceCapabilities::new(DelaySupport::Any)
    }

    fn settler(&self) -> Arc<dyn Settle<()>> {
        Arc::new(self.clone())
    }

    async fn receive(&mut self, _: usize) -> Result<Received<()>, SourceError> {
        let mut settled = self.0.1.subscribe();
        loop {
            let next = self.0.0.lock().unwrap().pop_front();
            match next {
                Some(delivery) => return Ok(Received::Deliveries(vec![(delivery, ())])),
                None => settled.changed().await.unwrap(),
            }
        }
    }

    async fn close(&mut self) {}
}

#[async_trait]
impl Settle<()> for Queue {
    async fn settle(&self, delivery: &Delivery, (): &(), settlement: &Settlement) -> Result<(), SourceError> {
        if let Settlement::Retry(retry) = settlement {
            let mut copy = delivery.clone();
            (copy.attempt, copy.first_at) = (Some(retry.attempt), Some(retry.first_at));
            self.0.0.lock().unwrap().push_back(copy);
        }
        self.0.1.send_modify(|all| all.push(settlement.clone()));
        Ok(())
    }

    async fn keep_alive(&self, _: &[&()]) -> Result<(), SourceError> {
        Ok(())
    }
}

/// Returns the attempt number of each run, and the settlement of its delivery.
async fn consumed(world: &World, leased: bool, schedule: Option<Schedule>) -> (Vec<u32>, Vec<Settlement>) {
    let second = Duration::from_secs(1);
    let policy = Policy::new().max_retries(3).retry_delay(second).jitter(0);
    let executor = Executor::builder(world.store.clone()).policy(Scene::Mq, policy).build().unwrap();
    let runs = Arc::new(Mutex::new(Vec::new()));
    let inbox = if leased { Inbox::<Sqlite>::leased(&executor) } else { Inbox::<Sqlite>::new(&executor) };
    let seen = runs.clone();
    let handling = Messages::raw().annotated(move |message: Message<()>| {
        let (inbox, seen) = (inbox.clone(), seen.clone());
        async move {
            let call = Call::new(Identity::new(Scene::Mq, "charges", &message.delivery.id));
            let run = inbox.run(call, async |_: Own| {
                seen.lock().unwrap().push(Lease::current().unwrap().attempt());
                Err::<(), _>(Failure::Own("no stock"))
            });
            run.await
        }
    });
    let first = Delivery::new(Position::of("orders"), b"{}".to_vec()).id(format!("m{leased}")).marked(1);
    let queue = Queue(Arc::new((Mutex::new([first].into()), watch::Sender::default())));
    let builder = Consumer::builder(queue.clone(), "billing", &executor);
    let builder = match schedule {
        Some(schedule) => builder.schedule(schedule),
        None => builder,
    };
    let mut settled = queue.0.1.subscribe();
    let stop = async move {
        let over = |all: &Vec<Settlement>| {
            // Without a limit there would be no end.
            all.len() >= 6 || all.iter().any(|one| matches!(one, Settlement::DeadLetter(_)))
        };
        settled.wait_for(over).await.unwrap();
    };
    builder.build(handling).unwrap().run(stop).await.unwrap();
    let (runs, settled) = (runs.lock().unwrap().clone(), queue.0.1.borrow().clone());
    (runs, settled)
}

trait Marked {
    fn marked(self, attempt: u32) -> Self;
}

impl Marked for Delivery {
    fn marked(mut self, attempt: u32) -> Self {
        self.attempt = Some(attempt);
        self
    }
}

fn delays(settled: &[Settlement]) -> Vec<(u64, u32)> {
    let retries = settled.iter().filter_map(|settlement| match settlement {
        Settlement::Retry(retry) => Some((retry.after.as_secs(), retry.attempt)),
        _ => None,
    });
    retries.collect()
}

#[tokio::test]
async fn a_run_that_always_rolls_back_is_dead_lettered_after_the_same_number_of_attempts() {
    let world = World::new().await;
    let schedule = || Schedule::exponential(Duration::from_secs(2), Duration::from_secs(60));
    for leased in [false, true] {
        let (runs, settled) = consumed(&world, leased, Some(schedule())).await;
        assert_eq!(runs, [1, 2, 3, 4], "leased: {leased}");
        assert_eq!(delays(&settled), [(2, 2), (4, 3), (8, 4)], "leased: {leased}");
        let Some(Settlement::DeadLetter(letter)) = settled.last() else { panic!("{settled:?}") };
        assert_eq!((letter.attempts, letter.deaths, settled.len()), (4, 1, 4), "{letter:?}");
        assert!(letter.reason.starts_with("given up after 4 runs"), "{letter:?}");
    }
}

/// Without a schedule of the consumer, the executor's hint determines the delay.
#[tokio::test]
async fn the_delays_between_runs_that_roll_back_grow_by_the_policy_too() {
    let world = World::new().await;
    let (runs, settled) = consumed(&world, false, None).await;
    assert_eq!(runs, [1, 2, 3, 4]);
    let seconds: Vec<_> = delays(&settled).into_iter().map(|(after, _)| after).collect();
    assert!(seconds.is_sorted() && seconds[0] >= 1 && seconds[2] > seconds[0], "{seconds:?}");
}

#[tokio::test]
async fn a_mark_counts_for_its_own_delivery_and_not_for_a_run_whose_record_stays() {
    let world = World::new().await;
    let attempt = async |_: Own| Ok::<_, Failure>(Lease::current().unwrap().attempt());
    let counted = world
        .executor
        .scope_of_delivery(DeliveryContext::new().attempt(7), world.leased.run(call("stays"), attempt))
        .await
        .unwrap();
    assert_eq!(counted, 1);
    let counted = world
        .executor
        .scope_of_delivery(DeliveryContext::new().attempt(7), world.inbox.run(call("goes"), attempt))
        .await
        .unwrap();
    assert_eq!(counted, 7);
    assert_eq!(world.inbox.run(call("outside"), attempt).await.unwrap(), 1);
    let failing = world.inbox.run(call("last"), async |_: Own| Err::<(), _>(Failure::Own("no")));
    released(Outcome::capture(world.executor.scope_of_delivery(DeliveryContext::new().attempt(2), failing)).await.1);
}
