//! The job on a real broker: the handler of the consumer runtime, and the end of the run.
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use idempotent::mq::{Consumer, ConsumerCounters, Delivery, Message, Messages, Source, Undecodable};
use idempotent::{Disposition, Outcome};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::told;
use crate::args::Args;
use crate::delivery::Field;
use crate::screen::{self, Signal};
use crate::summary::{Ended, Over};
use crate::{GRACE, Job, PATIENCE};

/// A job, and where its deliveries come from.
pub(super) struct Listening<'a> {
    pub(super) job: &'a Arc<Job>,
    pub(super) args: &'a Args,
    pub(super) process: &'a str,
    pub(super) from: String,
}

/// Deliveries held for each that runs.
const HELD: usize = 4;
/// Between two looks at the counts.
const LOOK: Duration = Duration::from_millis(50);

/// A broker that is away is looked for at longer and longer intervals, 36 s at most: until then it is not merely quiet.
const LONGEST_PAUSE: Duration = Duration::from_secs(40);

/// The reason to stop.
enum Stop {
    Signal(Signal),
    Quiet,
    Failed(anyhow::Error),
}

impl Listening<'_> {
    pub(super) async fn run<S: Source>(self, source: S, dead_letters: String) -> anyhow::Result<Over> {
        self.run_from(ready(()), source, dead_letters).await
    }

    /// Runs the job. The time without deliveries begins when `joined` ends: before that, the broker sends nothing.
    pub(super) async fn run_from<S: Source>(
        self,
        joined: impl Future<Output = ()>,
        source: S,
        dead_letters: String,
    ) -> anyhow::Result<Over> {
        let Self { job, args, process, from } = self;
        let (failing, failures) = mpsc::unbounded_channel();
        let (reader, field) = (job.clone(), args.key.clone());
        let (runner, worker) = (job.clone(), Arc::<str>::from(process));
        let handling = Messages::decoded(move |delivery: &Delivery| key_in(delivery, &reader, &field)).annotated(
            move |message: Message<String>| {
                let (job, worker, failing) = (runner.clone(), worker.clone(), failing.clone());
                async move { handle(&job, &worker, &message, &failing).await }
            },
        );
        let concurrency = usize::from(args.workers);
        let consumer = Consumer::builder(source, from.as_str(), &job.executor)
            .concurrency(concurrency)
            .prefetch(concurrency * HELD)
            .grace(GRACE)
            .build(handling)?;
        match args.idle {
            Some(idle) => job.screen.say(&format!("consuming {from} until nothing has come for {idle:?}")),
            None => job.screen.say(&format!("consuming {from} until Ctrl-C or SIGTERM")),
        }
        let began = Instant::now();
        let mut watch = Watch { job, counters: consumer.counters(), failures, idle: args.idle, last: began };
        let mut stop = None;
        let stopped = consumer.run(async { stop = Some(watch.until_stop(joined).await) }).await;
        let counts = watch.counters.counts();
        job.executor.drain(GRACE).await;
        let left = counts.unsettled + counts.revoked;
        if left > 0 {
            job.screen.say(&format!("{left} deliveries were not settled: the broker delivers them again"));
        }
        let ended = match (stopped, stop) {
            (Err(error), _) => Ended::Failed(anyhow!("{from}: {}", told(&error))),
            (Ok(_), Some(Stop::Failed(error))) => Ended::Failed(error),
            (Ok(_), Some(Stop::Signal(signal))) => Ended::Interrupted(signal),
            (Ok(_), Some(Stop::Quiet) | None) => Ended::Complete,
        };
        let deliveries = counts.acked + counts.expired + counts.dead_lettered;
        Ok(Over { ended, deliveries, elapsed: watch.last - began, from, dead_letters })
    }
}

fn key_in(delivery: &Delivery, job: &Job, field: &Field) -> Result<String, Undecodable> {
    match field.key_in(&delivery.body) {
        Ok(key) => {
            job.tally.delivery(&key);
            Ok(key)
        }
        Err(reason) => {
            job.tally.malformed();
            job.malformed.tell(&named(delivery), &reason, &delivery.body, &job.screen);
            Err(Undecodable(reason.to_string()))
        }
    }
}

fn named(delivery: &Delivery) -> String {
    delivery.id.as_ref().map_or_else(|| "a message without an id".to_owned(), |id| format!("message {id}"))
}

/// Runs a delivery. The runtime settles it. Fatal errors and dead letters are reported.
async fn handle(
    job: &Job,
    worker: &str,
    message: &Message<String>,
    failing: &mpsc::UnboundedSender<anyhow::Error>,
) -> anyhow::Result<()> {
    let (answer, outcome) = Outcome::capture(crate::handle(job, worker, &message.body)).await;
    let Err(error) = answer else { return Ok(()) };
    if matches!(outcome, Some(Outcome::StoreDown(_))) {
        let text = anyhow!("{error}");
        // The listener ends last.
        let _ = failing.send(error);
        return Err(text);
    }
    if outcome.is_some_and(|outcome| matches!(outcome.disposition(), Disposition::DeadLetter { .. })) {
        job.screen.say(&format!("{} is dead: {error:#}", named(&message.delivery)));
    }
    Err(error)
}

/// Looks out for the end.
struct Watch<'a> {
    job: &'a Job,
    counters: ConsumerCounters,
    /// The errors of the store.
    failures: mpsc::UnboundedReceiver<anyhow::Error>,
    idle: Option<Duration>,
    /// The time of the last event.
    last: Instant,
}

impl Watch<'_> {
    async fn until_stop(&mut self, joined: impl Future<Output = ()>) -> Stop {
        let stop = tokio::select! {
            signal = screen::interrupted() => Stop::Signal(signal),
            stop = self.look(joined) => stop,
        };
        if let Stop::Signal(_) = stop {
            screen::stopping(&self.job.screen);
        }
        stop
    }

    async fn look(&mut self, joined: impl Future<Output = ()>) -> Stop {
        let (mut before, mut said, mut away) = (self.counters.counts(), None, None);
        let mut joined = pin!(joined);
        let mut has_joined = false;
        loop {
            tokio::select! {
                () = &mut joined, if !has_joined => (has_joined, self.last) = (true, Instant::now()),
                Some(error) = self.failures.recv() => {
                    if let Err(error) = self.job.store_failed(&error) {
                        return Stop::Failed(error);
                    }
                    said = Some(error);
                }
                () = sleep(LOOK) => {}
            }
            let now = self.counters.counts();
            let down = self.job.tally.store_down_for();
            if now.received > before.received {
                away = None;
            } else if now.source_errors > before.source_errors {
                away = Some(Instant::now());
            }
            if now != before || now.received > now.ended() || down.is_some() {
                (before, self.last) = (now, Instant::now());
            }
            // While it is down nothing is taken, so nothing fails either.
            if down.is_some_and(|down| down >= PATIENCE) {
                return Stop::Failed(said.unwrap_or_else(|| anyhow!("the store has not answered for {PATIENCE:?}")));
            }
            let away = away.is_some_and(|since: Instant| since.elapsed() < LONGEST_PAUSE);
            if has_joined && self.idle.is_some_and(|idle| self.last.elapsed() >= idle) && !away {
                return Stop::Quiet;
            }
        }
    }
}
