//! Consumes real webhook deliveries, redeliveries included, with one effect for each key.
//!
//! ```text
//! cargo run --bin consume                                 # 494 deliveries, 287 effects
//! cargo run --bin consume                                 # again: all known, nothing runs
//! cargo run --bin consume -- --fresh --fail-every 3
//! cargo run --features servers --bin consume -- --store redis://127.0.0.1:6379     # a fleet's store
//! cargo run --features servers --bin consume -- --store postgres://app@127.0.0.1/shop   # and mysql://…
//! cargo run --bin consume -- --level transactional                        # one effect a key, also under kill -9
//! cargo run --features servers --bin consume -- --source 'rabbitmq://guest:guest@localhost/?queue=webhooks' \
//!     --publish examples/data/webhooks.jsonl --idle 5s                          # over a real broker
//! ```
//!
//! This file has the essential parts: the annotated handler, and the worker that settles each delivery by the outcome
//! of its run. The other files replace parts of a real service: a broker (`broker.rs`, `input.rs`, `delivery.rs`,
//! `dead.rs`), a database (`effects.rs`; in the transaction of the run: `level.rs`), a command line (`args.rs`,
//! `places.rs`, `store.rs`) and output (`tally.rs`, `malformed.rs`, `summary.rs`, `screen.rs`, `held.rs`).
//!
//! With `--source`, the broker is a real one, and the consumer runtime settles: the same handler, in `queues.rs` and a
//! file for each broker in `queues/`. Try `kill -9` during `--fresh --slow-ms 200`, and run it again. `data/README.md`
//! describes the input lines and the exit codes.
mod args;
mod broker;
mod dead;
mod delivery;
mod effects;
mod held;
mod input;
mod level;
mod malformed;
mod places;
#[cfg(feature = "servers")]
mod queues;
mod screen;
mod store;
mod summary;
mod tally;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Parser;
use futures_util::FutureExt;
use idempotent::store::{Entropy, OsEntropy};
use idempotent::{Disposition, Executor, Outcome, Policy, Scene, Tracing, idempotent};
use sqlx::Sqlite;
#[cfg(feature = "servers")]
use sqlx::{MySql, Postgres};
use tokio::task::JoinSet;
use tracing_subscriber::filter::LevelFilter;

use self::args::Args;
use self::broker::Broker;
use self::dead::DeadLetters;
use self::effects::Effects;
use self::held::Held;
use self::input::{Input, Source};
use self::level::consume_in;
use self::malformed::Malformed;
use self::places::Places;
#[cfg(feature = "servers")]
use self::queues::Queue;
use self::screen::Screen;
use self::summary::{Ended, Over, Summary};
use self::tally::Tally;

/// Under which the keys of this handler are remembered: data at rest, so it is not left to the function's name.
const SCOPE: &str = "consume";

/// The handler. A duplicate of a delivery that was consumed does not get here, nor does one whose twin is being
/// worked on, in this process or another; one whose run failed does.
#[idempotent(scene = mq, scope = SCOPE, key = key, with = job)]
async fn consume(job: &Job, worker: &str, key: &str) -> anyhow::Result<()> {
    job.rehearse().await?;
    job.effects.insert(key, worker).await
}

/// The handler, at the level that was asked for.
async fn handle(job: &Job, worker: &str, key: &str) -> anyhow::Result<()> {
    match &job.effects {
        Effects::Apart(_) => consume(job, worker, key).await,
        Effects::InFile(_) => consume_in::<Sqlite>(job, worker, key).await,
        #[cfg(feature = "servers")]
        Effects::InPostgres(_) => consume_in::<Postgres>(job, worker, key).await,
        #[cfg(feature = "servers")]
        Effects::InMySql(_) => consume_in::<MySql>(job, worker, key).await,
    }
}

/// Receives deliveries until all are settled, and settles each by the outcome of its run.
async fn work(job: Arc<Job>, broker: Arc<Broker>, worker: String) -> anyhow::Result<()> {
    while let Some(delivery) = broker.next().await {
        let (answer, outcome) = Outcome::capture(handle(&job, &worker, &delivery.key)).await;
        let returned = match &answer {
            Ok(()) => Disposition::Ack,
            Err(_) => Disposition::Retry { after: Duration::from_secs(1) },
        };
        match outcome.as_ref().map_or(returned.clone(), |outcome| outcome.settle(returned)) {
            Disposition::Ack => broker.ack(delivery),
            Disposition::DeadLetter { .. } => {
                let reason = answer.err().map_or_else(String::new, |error| format!(": {error:#}"));
                job.screen.say(&format!("line {} is dead{reason}", delivery.number));
                broker.bury(delivery)?;
            }
            Disposition::Retry { after } => {
                if let (Some(Outcome::StoreDown(_)), Err(error)) = (outcome, answer) {
                    job.store_failed(&error)?;
                }
                broker.come_back(delivery, after);
            }
            unknown => bail!("this example does not know what to do with {unknown:?}"),
        }
    }
    Ok(())
}

/// The shared state of the workers.
struct Job {
    executor: Executor,
    effects: Effects,
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

/// The time for which the store may be unreachable.
const PATIENCE: Duration = Duration::from_secs(30);

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
    args.level.check(&places)?;
    let from = From::open(args).await?;
    places.prepare(args.fresh)?;
    let tally = Tally::default();
    let slow = Duration::from_millis(args.slow_ms);
    let store = store::open(&places.store).await?;
    let executor =
        Executor::builder(store).policy(Scene::Mq, policy(slow)).observer((Tracing, tally.clone())).build()?;
    if args.fresh && places.is_shared() {
        store::forget(&executor).await?;
    }
    let effects = Effects::open(&places, places.forgets() || args.fresh).await?;
    let held = Held::look(&executor, screen).await;
    let process = format!("{}-{:08x}", std::process::id(), OsEntropy.bits()? >> 96);
    let job = Arc::new(Job {
        executor,
        effects,
        tally,
        malformed: Malformed::default(),
        screen: screen.clone(),
        runs: AtomicU64::new(0),
        fail_every: args.fail_every,
        slow,
    });
    let mut announcing = Box::pin(held.announce(job.executor.clone(), screen.clone()));
    // The keys that are certain already are announced before the first claim takes them over.
    let is_announced = announcing.as_mut().now_or_never().is_some();
    let announcing = (!is_announced).then(|| tokio::spawn(announcing));
    let over = match from {
        From::File(input) => take(&job, input, args, &process).await?,
        #[cfg(feature = "servers")]
        From::Queue(queue, input) => {
            if let Some(input) = input {
                queue.publish(input, screen).await?;
            }
            queue.consume(&job, args, &process).await?
        }
    };
    if let Some(announcing) = announcing {
        announcing.abort();
    }
    screen.end();
    let effects = job.effects.rows().await.ok();
    job.effects.close().await;
    let counted = job.tally.read();
    let malformed = job.malformed.rest(&args.key, &counted);
    Ok(Summary { over, counted, places, level: args.level, effects, malformed })
}

/// The source of the deliveries.
enum From {
    File(Input),
    /// A queue, and the input that is published to it first.
    #[cfg(feature = "servers")]
    Queue(Queue, Option<Input>),
}

impl From {
    /// Opens the source. Errors are reported before anything is removed.
    async fn open(args: &Args) -> anyhow::Result<Self> {
        let Some(url) = &args.source else {
            if args.publish.is_some() || args.idle.is_some() {
                bail!(
                    "--publish and --idle are about a broker's queue: name it with --source, or read a file with --input"
                );
            }
            return Ok(Self::File(Input::open(Source::of(args.input.as_deref()))?));
        };
        Self::queue(url, args).await
    }

    #[cfg(feature = "servers")]
    async fn queue(url: &str, args: &Args) -> anyhow::Result<Self> {
        let queue = Queue::parse(url)?;
        let input = args.publish.as_deref().map(|file| Input::open(Source::of(Some(file)))).transpose()?;
        queue.declare().await?;
        Ok(Self::Queue(queue, input))
    }

    #[cfg(not(feature = "servers"))]
    async fn queue(_: &str, _: &Args) -> anyhow::Result<Self> {
        bail!(
            "--source: this build has no broker clients; run `cargo run --features servers --bin consume`, \
             or with `--features rocketmq`, `kafka`, `kafka-tls` or `sqs` for one of these brokers"
        )
    }
}

/// Takes the deliveries of a file, by the broker in this process.
async fn take(job: &Arc<Job>, input: Input, args: &Args, process: &str) -> anyhow::Result<Over> {
    let dead = input.source.dead_letters();
    let broker = Broker::new(DeadLetters::create(dead.clone())?, job.tally.clone(), job.screen.clone());
    let broker = Arc::new(broker);
    job.screen.begin(&input);
    let began = Instant::now();
    let reading = input.read(job.clone(), broker.clone(), args.key.clone());
    let mut workers: JoinSet<_> =
        (1..=args.workers).map(|number| work(job.clone(), broker.clone(), format!("{process}-{number}"))).collect();
    let ended = tokio::select! {
        ended = finish(&mut workers, &broker) => ended,
        signal = screen::interrupted() => {
            screen::stopping(&job.screen);
            broker.close();
            job.executor.drain(GRACE).await;
            match finish(&mut workers, &broker).await {
                Ended::Complete => Ended::Interrupted(signal),
                failed => failed,
            }
        }
    };
    let ended = match (ended, reading.error()) {
        (Ended::Complete, Some(error)) => Ended::Failed(error),
        (ended, _) => ended,
    };
    let counted = job.tally.read();
    // What was cut short counts what is settled.
    let deliveries = if matches!(ended, Ended::Complete) { counted.read } else { counted.settled() };
    let (from, dead_letters) = ("the input".to_owned(), dead.display().to_string());
    Ok(Over { ended, deliveries, elapsed: began.elapsed(), from, dead_letters })
}

/// The time that running handlers have after a stop signal.
const GRACE: Duration = Duration::from_secs(10);

/// Ends when the last worker has; one that cannot go on ends them all.
async fn finish(workers: &mut JoinSet<anyhow::Result<()>>, broker: &Broker) -> Ended {
    let mut ended = Ended::Complete;
    while let Some(worker) = workers.join_next().await {
        if let Err(error) = worker.map_err(anyhow::Error::from).flatten() {
            broker.close();
            ended = Ended::Failed(error);
        }
    }
    ended
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    // What the library logs: without a subscriber a dead letter leaves no trace on the screen.
    let screen = Screen::default();
    let lines = screen.clone();
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(move || lines.line()).init();
    match run(&args, &screen).await {
        Ok(summary) => summary.tell(args.json, &screen),
        Err(error) => {
            screen.say(&format!("error: {error}"));
            ExitCode::from(2)
        }
    }
}
