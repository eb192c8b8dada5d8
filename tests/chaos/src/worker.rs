//! A worker: a process that runs the deliveries it is given through an executor, until its stdin ends or it is killed.
mod context;
mod handler;
mod rogue;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use idempotent::reply::DefaultReply;
use idempotent::{
    Call, Disposition, Executor, Fingerprint, Handler, Identity, Json, OnInFlight, OnLeaseLost, Outcome, Policy, Scene,
};
use idempotent_testkit::history::Kind;
use tokio::sync::{mpsc, oneshot};

pub(crate) use self::context::HandlerContext;
pub(crate) use self::handler::Failure;
use crate::dying_store::die;
use crate::process::{self, begin, next};
use crate::wire::{Dies, Message, News, Order, Start};

/// The maximum of runs before a key is dead.
pub(crate) const RUNS: u32 = 6;
/// The retention of dead, failed and consumed keys, which is longer than any run of the harness.
pub(crate) const MEMORY: Duration = Duration::from_secs(3_600);

#[derive(Debug)]
struct Worker {
    context: HandlerContext,
    executor: Executor,
    /// Waiters for the confirmation that a dead letter is stored.
    buried: Mutex<HashMap<u64, oneshot::Sender<()>>>,
}

/// Handles deliveries until the end of stdin.
///
/// # Errors
/// The worker could not start, or received an invalid message.
///
/// # Cancellation
/// Its deliveries continue in the runtime.
pub async fn run() -> anyhow::Result<()> {
    let Some((start, mut orders)) = begin::<Start>().await? else { return Ok(()) };
    let news = process::news();
    if start.origin.is_some() {
        return crate::mq::work(&start, news, orders).await;
    }
    let worker = Arc::new(Worker::start(&start, news).await?);
    worker.context.tell(News::Ready);
    while let Some(order) = next(&mut orders).await? {
        match order {
            Order::Deliver { delivery, message, rogue: true, .. } => {
                let worker = worker.clone();
                tokio::spawn(async move { worker.go_rogue(delivery, &message).await });
            }
            Order::Deliver { delivery, message, altered, dies, .. } => {
                let worker = worker.clone();
                tokio::spawn(async move { worker.deliver(delivery, &message, altered, dies).await });
            }
            Order::Wrote { effect, accepted } => worker.context.wrote(effect, accepted),
            Order::Buried { delivery } => {
                let waits = worker.buried().remove(&delivery);
                waits.map(|waits| waits.send(()));
            }
            // It dies where a delivery says so.
            Order::Peace => {}
        }
    }
    Ok(())
}

/// Returns the policy for failures and duplicates.
pub(crate) fn policy() -> Policy {
    let (short, long) = (Duration::from_millis(50), Duration::from_millis(500));
    Policy::new()
        .max_retries(RUNS - 1)
        .retain_failures(MEMORY)
        .retain(MEMORY)
        .retry_delay(short)
        .retry_delay_max(long)
        .in_flight_delay(short)
        .in_flight_delay_max(long)
}

impl Worker {
    async fn start(start: &Start, news: mpsc::UnboundedSender<News>) -> anyhow::Result<Self> {
        let context = HandlerContext::start(start, news).await?;
        let executor = Executor::builder(context.store.clone())
            .namespace(&*start.namespace)
            .policy(Scene::Mq, policy())
            .build()?;
        Ok(Self { context, executor, buried: Mutex::default() })
    }

    async fn deliver(&self, delivery: u64, message: &Message, altered: bool, dies: Option<Dies>) {
        let identity = Identity::new(Scene::Mq, "chaos", &message.key);
        // Of a number: never refused.
        let Ok(key) = identity.key(self.executor.namespace()) else { return };
        if let Some(at @ (Dies::AtClaim | Dies::AtComplete)) = dies {
            self.context.mortal.doom(key.clone(), at);
        }
        let payload = if altered { "another" } else { "this" };
        let call = Call::new(identity).policy(terms(message)).fingerprint(Ok(Fingerprint::of_bytes(payload)));
        let handler = Handler::<DefaultReply, Json, _, _>::new(|| self.context.handle(&key, message, dies))
            .permanent(Failure::is_for_good);
        let run = Outcome::capture(self.executor.run(call, handler));
        let settled = match AssertUnwindSafe(run).catch_unwind().await {
            Ok((answer, outcome)) => {
                let alone = (&answer).into();
                outcome.map_or_else(|| Disposition::clone(&alone), |outcome| outcome.settle(alone.clone()))
            }
            // The key is free; as after any failure.
            Err(_panic) => Disposition::Retry { after: Duration::from_millis(50) },
        };
        match settled {
            Disposition::Ack => {
                if dies == Some(Dies::BeforeAck) {
                    die();
                }
                self.ack(key.as_str(), delivery);
            }
            Disposition::DeadLetter { .. } => {
                let (waits, buried) = oneshot::channel();
                self.buried().insert(delivery, waits);
                self.context.tell(News::Bury { delivery });
                if buried.await.is_ok() {
                    self.context.note(key.as_str(), Kind::DeadLettered);
                    self.ack(key.as_str(), delivery);
                }
            }
            Disposition::Retry { after } => {
                let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                self.nack(key.as_str(), delivery, after_ms);
            }
            _ => {
                eprintln!("worker {}: a disposition it does not know; its delivery is left unsettled", self.context.id)
            }
        }
    }

    fn ack(&self, key: &str, delivery: u64) {
        self.context.note(key, Kind::Ack);
        self.context.tell(News::Ack { delivery });
    }

    fn nack(&self, key: &str, delivery: u64, after_ms: u64) {
        self.context.note(key, Kind::Nack);
        self.context.tell(News::Nack { delivery, after_ms });
    }

    fn buried(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<()>>> {
        self.buried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn terms(message: &Message) -> Policy {
    let lost = if message.stubborn { OnLeaseLost::Finish } else { OnLeaseLost::Abort };
    let terms = Policy::new().lease(Duration::from_millis(message.lease_ms)).on_lease_lost(lost);
    match message.wait_ms {
        0 => terms,
        ms => terms.on_in_flight(OnInFlight::Wait(Duration::from_millis(ms))),
    }
}
