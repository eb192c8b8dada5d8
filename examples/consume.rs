//! Consumes real webhook deliveries, redeliveries included, with one effect for each key.
//!
//! ```text
//! cargo run --release --example consume                       # 494 deliveries, 287 effects
//! cargo run --release --example consume                       # again: all known, nothing runs
//! cargo run --release --example consume -- --fresh --fail-every 3
//! cargo run --release --example consume -- --store redis://127.0.0.1:6379     # a fleet's store
//! ```
//!
//! What to look at is in this file: the annotated handler, and the worker that settles each delivery by what the
//! handler's run came to. The folder `consume/` holds what a real service gets from elsewhere: a broker
//! (`broker.rs`, `input.rs`, `delivery.rs`, `dead.rs`), a database (`effects.rs`), a command line (`args.rs`,
//! `places.rs`, `fresh.rs`) and something to look at (`tally.rs`, `malformed.rs`, `summary.rs`, `screen.rs`, `held.rs`). Try also `kill -9` in
//! the middle of `--fresh --slow-ms 200`, and run it again. What it makes of a line, and its exit codes, are in
//! `data/README.md`.
#[path = "consume/args.rs"]
mod args;
#[path = "consume/broker.rs"]
mod broker;
#[path = "consume/dead.rs"]
mod dead;
#[path = "consume/delivery.rs"]
mod delivery;
#[path = "consume/effects.rs"]
mod effects;
#[path = "consume/fresh.rs"]
mod fresh;
#[path = "consume/held.rs"]
mod held;
#[path = "consume/input.rs"]
mod input;
#[path = "consume/malformed.rs"]
mod malformed;
#[path = "consume/places.rs"]
mod places;
#[path = "consume/screen.rs"]
mod screen;
#[path = "consume/summary.rs"]
mod summary;
#[path = "consume/tally.rs"]
mod tally;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Parser;
use idempotent::{Disposition, Entropy, Executor, OsEntropy, Outcome, Policy, Scene, Tracing, idempotent};
use tokio::task::JoinSet;

use self::args::Args;
use self::broker::Broker;
use self::dead::DeadLetters;
use self::delivery::Delivery;
use self::effects::Effects;
use self::held::Held;
use self::input::{Input, Source};
use self::malformed::Malformed;
use self::places::Places;
use self::screen::Screen;
use self::summary::{Ended, Summary};
use self::tally::Tally;

/// Under which the keys of this handler are remembered: data at rest, so it is not left to the function's name.
const SCOPE: &str = "consume";

/// The handler. A duplicate of a delivery that was consumed does not get here, nor does one whose twin is being
/// worked on, in this process or another; one whose run failed does.
#[idempotent(scene = mq, scope = SCOPE, key = delivery.key, with = job)]
async fn consume(job: &Job, worker: &str, delivery: &Delivery) -> anyhow::Result<()> {
    job.rehearse().await?;
    job.effects.insert(&delivery.key, worker).await
}

/// Takes deliveries until all are settled, and settles each by what its run came to.
async fn work(job: Arc<Job>, worker: String) -> anyhow::Result<()> {
    while let Some(delivery) = job.broker.next().await {
        let (answer, outcome) = Outcome::capture(consume(&job, &worker, &delivery)).await;
        let returned = match &answer {
            Ok(()) => Disposition::Ack,
            Err(_) => Disposition::Retry { after: Duration::from_secs(1) },
        };
        match outcome.as_ref().map_or(returned.clone(), |outcome| outcome.settle(returned)) {
            Disposition::Ack => job.broker.ack(delivery),
            Disposition::DeadLetter { .. } => {
                let reason = answer.err().map_or_else(String::new, |error| format!(": {error:#}"));
                job.screen.say(&format!("line {} is dead{reason}", delivery.number));
                job.broker.bury(delivery)?;
            }
            Disposition::Retry { after } => {
                if let (Some(Outcome::StoreDown(_)), Err(error)) = (outcome, answer) {
                    job.store_failed(&error)?;
                }
                job.broker.come_back(delivery, after);
            }
            unknown => bail!("this example does not know what to do with {unknown:?}"),
        }
    }
    Ok(())
}

/// What a worker needs.
struct Job {
    executor: Executor,
    effects: Effects,
    broker: Broker,
    tally: Tally,
    malformed: Malformed,
    screen: Screen,
    /// Handler runs so far, for `--fail-every`.
    runs: AtomicU64,
    fail_every: Option<u64>,
    slow: Duration,
}

impl AsRef<Executor> for Job {
    fn as_ref(&self) -> &Executor {
        &self.executor
    }
}

impl Job {
    /// Being slow and failing, on demand.
    async fn rehearse(&self) -> anyhow::Result<()> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.slow.is_zero() {
            tokio::time::sleep(self.slow).await;
        }
        match self.fail_every {
            Some(every) if run.is_multiple_of(every) => bail!("run {run} fails, as --fail-every {every} asks"),
            _ => Ok(()),
        }
    }

    /// A store that is down for a moment costs a delay; one that stays down, or refuses, ends the job.
    fn store_failed(&self, error: &anyhow::Error) -> anyhow::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(30);
        let known = error.downcast_ref::<idempotent::Rejection>();
        let worth_a_retry = matches!(known, Some(idempotent::Rejection::Store(error)) if error.is_worth_a_retry());
        let (down, news) = self.tally.store_down();
        if worth_a_retry && down < PATIENCE {
            if news {
                self.screen.say(&format!("{error}; trying again for {PATIENCE:?}"));
            }
            return Ok(());
        }
        bail!("{error}")
    }
}

/// Short delays, so that a rehearsal does not take long. A lease of 5 s is what a killed worker costs; a worker
/// that lives renews it, however long its handler takes.
fn policy(slow: Duration) -> Policy {
    let (short, long) = (Duration::from_millis(10), Duration::from_secs(1));
    Policy::new()
        .lease(Duration::from_secs(5))
        .max_run(Duration::from_secs(600).max(slow * 2))
        .retry_delay(short)
        .retry_delay_max(long)
        .in_flight_delay(short * 2)
        .in_flight_delay_max(long)
        .jitter(10)
}

async fn run(args: &Args, screen: &Screen) -> anyhow::Result<Summary> {
    let places = Places::of(args)?;
    let input = Input::open(Source::of(args.input.as_deref()))?;
    let dead_letters = input.source.dead_letters();
    places.prepare(args.fresh)?;
    let tally = Tally::default();
    let slow = Duration::from_millis(args.slow_ms);
    let store = idempotent::connect(&places.store).await?;
    let executor =
        Executor::builder(store).policy(Scene::Mq, policy(slow)).observer((Tracing, tally.clone())).build()?;
    if args.fresh && places.is_shared() {
        fresh::forget(&executor).await?;
    }
    let effects = Effects::open(&places.effects, places.forgets()).await?;
    let broker = Broker::new(DeadLetters::create(dead_letters.clone())?, tally.clone(), screen.clone());
    screen.begin(&input);
    let held = Held::look(&executor, screen).await;

    let began = Instant::now();
    let job = Arc::new(Job {
        executor,
        effects,
        broker,
        tally,
        malformed: Malformed::default(),
        screen: screen.clone(),
        runs: AtomicU64::new(0),
        fail_every: args.fail_every,
        slow,
    });
    let reading = input.read(job.clone(), args.key.clone());
    let announcing = tokio::spawn(held.announce(job.executor.clone(), screen.clone()));
    let process = format!("{}-{:08x}", std::process::id(), OsEntropy.bits()? >> 96);
    let mut workers: JoinSet<_> =
        (1..=args.workers).map(|number| work(job.clone(), format!("{process}-{number}"))).collect();
    let ended = tokio::select! {
        ended = finish(&mut workers, &job) => ended,
        signal = screen::interrupted() => {
            screen.say("stopping: no new delivery is begun, running handlers have 10 s (again: stop at once)");
            tokio::spawn(async { std::process::exit(screen::interrupted().await.code().into()) });
            job.broker.close();
            job.executor.drain(Duration::from_secs(10)).await;
            match finish(&mut workers, &job).await {
                Ended::Complete => Ended::Interrupted(signal),
                failed => failed,
            }
        }
    };
    announcing.abort();
    screen.end();
    let ended = match (ended, reading.error()) {
        (Ended::Complete, Some(error)) => Ended::Failed(error),
        (ended, _) => ended,
    };
    let elapsed = began.elapsed();
    let effects = job.effects.rows().await.ok();
    job.effects.close().await;
    let counted = job.tally.read();
    let malformed = job.malformed.rest(&args.key, &counted);
    Ok(Summary { ended, counted, elapsed, places, dead_letters, effects, malformed })
}

/// Ends when the last worker has; one that cannot go on ends them all.
async fn finish(workers: &mut JoinSet<anyhow::Result<()>>, job: &Job) -> Ended {
    let mut ended = Ended::Complete;
    while let Some(worker) = workers.join_next().await {
        if let Err(error) = worker.map_err(anyhow::Error::from).flatten() {
            job.broker.close();
            ended = Ended::Failed(error);
        }
    }
    ended
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let screen = Screen::default();
    match run(&args, &screen).await {
        Ok(summary) => summary.tell(args.json, &screen),
        Err(error) => {
            screen.say(&format!("error: {error}"));
            ExitCode::from(2)
        }
    }
}
