//! A worker: a process that runs the deliveries it is given through an executor, until its stdin ends or it is killed.
mod handler;
mod rogue;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use futures_util::FutureExt;
use idempotent::{
    Auto, Call, Disposition, Executor, Fingerprint, Handler, Identity, Json, OnInFlight, OnLeaseLost, Outcome, Policy,
    Scene,
};
use idempotent_testkit::history::{Journal, Kind, Line, Recording};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};

use self::handler::Failure;
use crate::dice::Dice;
use crate::journal::Part;
use crate::mortal::{Mortal, die};
use crate::target::connect;
use crate::time;
use crate::weakness::Weakness;
use crate::wire::{Dies, Message, News, Order, Start, line};

/// How often a key may run before it is dead.
pub(crate) const RUNS: u32 = 6;
/// How long dead and failed keys are remembered, and consumed ones: longer than any run of the harness.
pub(crate) const MEMORY: Duration = Duration::from_secs(3_600);

#[derive(Debug)]
struct Worker {
    id: u32,
    executor: Executor,
    store: Recording,
    mortal: Arc<Mortal>,
    journal: Arc<Part>,
    effects: File,
    news: mpsc::UnboundedSender<News>,
    answers: Mutex<Answers>,
    asked: AtomicU64,
}

/// What the harness is asked, and who waits for the answer.
#[derive(Debug, Default)]
struct Answers {
    written: HashMap<u64, oneshot::Sender<bool>>,
    buried: HashMap<u64, oneshot::Sender<()>>,
}

/// Runs until stdin ends.
///
/// # Errors
/// If it cannot be started, or does not understand what it is told.
///
/// # Cancellation
/// Dropping it leaves its deliveries to the runtime.
pub async fn run() -> anyhow::Result<()> {
    // A stopped worker must not outlive a harness that was killed.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    let Some(start) = orders.next_line().await? else { return Ok(()) };
    let start: Start = serde_json::from_str(&start).context("its first line")?;
    let (news, told) = mpsc::unbounded_channel();
    tokio::spawn(tell(told));
    let worker = Arc::new(Worker::start(&start, news).await?);
    worker.tell(News::Ready);
    while let Some(order) = orders.next_line().await? {
        match serde_json::from_str(&order).with_context(|| order.clone())? {
            Order::Deliver { delivery, message, rogue: true, .. } => {
                let worker = worker.clone();
                tokio::spawn(async move { worker.go_rogue(delivery, &message).await });
            }
            Order::Deliver { delivery, message, altered, dies, .. } => {
                let worker = worker.clone();
                tokio::spawn(async move { worker.deliver(delivery, &message, altered, dies).await });
            }
            Order::Wrote { effect, accepted } => {
                let waits = worker.answers().written.remove(&effect);
                waits.map(|waits| waits.send(accepted));
            }
            Order::Buried { delivery } => {
                let waits = worker.answers().buried.remove(&delivery);
                waits.map(|waits| waits.send(()));
            }
        }
    }
    Ok(())
}

/// Writes to stdout what the worker has to say.
async fn tell(mut told: mpsc::UnboundedReceiver<News>) {
    let mut out = tokio::io::stdout();
    while let Some(news) = told.recv().await {
        let said = async {
            out.write_all(line(&news).as_bytes()).await?;
            out.flush().await
        };
        if said.await.is_err() {
            // Nobody listens any more.
            return;
        }
    }
}

fn policy() -> Policy {
    let (short, long) = (Duration::from_millis(50), Duration::from_millis(500));
    Policy::new()
        .max_retries(RUNS - 1)
        .memory(MEMORY)
        .retain(MEMORY)
        .retry_delay(short)
        .retry_delay_max(long)
        .in_flight_delay(short)
        .in_flight_delay_max(long)
}

impl Worker {
    async fn start(start: &Start, news: mpsc::UnboundedSender<News>) -> anyhow::Result<Self> {
        let journal = Arc::new(Part::create(&start.history)?);
        let dice = Dice::new(start.seed, u64::from(start.worker));
        let weakness = start.weakness.as_deref().and_then(Weakness::named);
        let store = loop {
            match connect(&start.store, weakness).await {
                Ok(store) => break store,
                // Faults do not wait until it has started.
                Err(error) => eprintln!("worker {}: {error:#}", start.worker),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        let mortal = Arc::new(Mortal::new(store, dice));
        let store = Recording::new(mortal.clone(), journal.clone(), start.worker);
        Ok(Self {
            id: start.worker,
            executor: Executor::builder(store.clone())
                .namespace(&*start.namespace)
                .policy(Scene::Mq, policy())
                .build()?,
            store,
            mortal,
            journal,
            effects: OpenOptions::new().create(true).append(true).open(&start.effects)?,
            news,
            answers: Mutex::default(),
            asked: AtomicU64::new(0),
        })
    }

    async fn deliver(&self, delivery: u64, message: &Message, altered: bool, dies: Option<Dies>) {
        let identity = Identity::new(Scene::Mq, "chaos", &message.key);
        // Of a number: never refused.
        let Ok(key) = identity.key(self.executor.namespace()) else { return };
        if let Some(at @ (Dies::AtClaim | Dies::AtComplete)) = dies {
            self.mortal.doom(key.clone(), at);
        }
        let payload = if altered { "another" } else { "this" };
        let call = Call::new(identity).policy(terms(message)).fingerprint(Ok(Fingerprint::of_bytes(payload)));
        let handler =
            Handler::<Auto, Json, _, _>::new(|| self.handle(&key, message, dies)).permanent(Failure::is_for_good);
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
                self.answers().buried.insert(delivery, waits);
                self.tell(News::Bury { delivery });
                if buried.await.is_ok() {
                    self.note(key.as_str(), Kind::DeadLettered);
                    self.ack(key.as_str(), delivery);
                }
            }
            Disposition::Retry { after } => {
                let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                self.nack(key.as_str(), delivery, after_ms);
            }
            _ => eprintln!("worker {}: a disposition it does not know; its delivery is left unsettled", self.id),
        }
    }

    fn ack(&self, key: &str, delivery: u64) {
        self.note(key, Kind::Ack);
        self.tell(News::Ack { delivery });
    }

    fn nack(&self, key: &str, delivery: u64, after_ms: u64) {
        self.note(key, Kind::Nack);
        self.tell(News::Nack { delivery, after_ms });
    }

    fn note(&self, key: &str, event: Kind) {
        self.journal.event(&Line { key: Some(key.to_owned()), ..Line::new(time::now(), self.id, event) });
    }

    fn tell(&self, news: News) {
        // Nobody listens any more: the worker is about to end.
        let _ = self.news.send(news);
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::Relaxed)
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
