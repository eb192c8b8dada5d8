//! The runtime: takes deliveries, runs them, settles them.
//!
//! Tasks: intake (`consumer/intake.rs`) owns the source; the dispatcher (here) decides what runs when; each delivery has
//! a worker (`consumer/worker.rs`) that runs it and settles it (`consumer/settle.rs`); the keeper
//! (`consumer/keeper.rs`) keeps alive what is held. `consumer/shared.rs` is what they share.
mod intake;
mod keeper;
mod log;
mod obituary;
mod settle;
mod shared;
mod worker;

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{Key, Timer};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tracing::{error, info};

use self::intake::{Intake, News};
pub(crate) use self::shared::Phase;
use self::shared::{Job, Shared};
use self::worker::{Task, Worked, put_off, work};
use crate::breaker::Breaker;
use crate::builder::Parts;
use crate::counts::End;
use crate::decide::Decision;
use crate::lanes::Lanes;
use crate::postponed::Postponed;
use crate::work::{Prepared, Run};
use crate::{ConsumerBuilder, ConsumerCounters, ConsumerCounts, Source, SourceError};

/// Takes deliveries from a [`Source`], runs a handler for each that is not a duplicate, and settles each by what its run
/// came to. The [crate's docs](crate) have an example.
pub struct Consumer<S: Source> {
    shared: Arc<Shared<S::Tag>>,
    source: S,
    probe: Key,
    concurrency: usize,
    prefetch: usize,
    grace: Duration,
}

impl<S: Source> Consumer<S> {
    /// A consumer of this source. `group` is the queue or consumer group: part of the identity of each key, so that two
    /// groups that get the same message each run it. Fix it: keys are data at rest.
    pub fn builder(
        source: S,
        group: impl Into<Arc<str>>,
        executor: impl AsRef<idempotent_core::Executor>,
    ) -> ConsumerBuilder<S> {
        ConsumerBuilder::new(source, group.into(), executor.as_ref().clone())
    }

    pub(crate) fn new(parts: Parts<S>, probe: Key) -> Self {
        let Parts { source, desk, work, settler, capabilities, rules, .. } = parts;
        let (clock, entropy) = (desk.executor.clock().clone(), desk.executor.entropy().clone());
        let shared = Shared {
            postponed: Postponed::new(capabilities.delays),
            breaker: Breaker::new(clock, entropy),
            counters: ConsumerCounters::default(),
            phase: watch::Sender::new(Phase::Running),
            held: Mutex::default(),
            max_deliveries: parts.max_deliveries,
            max_body: parts.max_body,
            alert_after: parts.alert_after,
            desk,
            work,
            settler,
            capabilities,
            rules,
            log: parts.log,
            alerts: parts.alerts,
        };
        let (concurrency, prefetch, grace) = (parts.concurrency, parts.prefetch, parts.grace);
        Self { shared: Arc::new(shared), source, probe, concurrency, prefetch, grace }
    }

    /// What its deliveries come to, also while it runs.
    #[must_use]
    pub fn counters(&self) -> ConsumerCounters {
        self.shared.counters.clone()
    }

    /// Takes, runs and settles deliveries until `stop` ends. Then it drains: takes no more, gives back what waits and what
    /// has claimed its key and not begun, lets what runs go on for the [grace](ConsumerBuilder::grace), drops what is left
    /// at its next await and gives that back, too; nothing is acknowledged that did not end well. It returns a second after
    /// the grace at the latest (two where a handler blocks its thread).
    ///
    /// A handler that is dropped leaves its key to its lease; one that had not begun frees it, and it was no attempt. The
    /// executor is not drained: others may use it. Drain it afterwards.
    ///
    /// # Errors
    /// The source failed for good, or refused for good to settle a delivery as decided, which was then given back; it has
    /// drained all the same.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Cancellation
    /// Dropping it drops all handlers and settles nothing: the broker delivers everything again once it notices. Keys of
    /// handlers that had started are left to their leases.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<ConsumerCounts, SourceError> {
        let Self { shared, source, probe, concurrency, prefetch, grace } = self;
        let (news, told) = mpsc::unbounded_channel();
        let mut services = JoinSet::new();
        let places = Arc::new(Semaphore::new(prefetch));
        services.spawn(Intake { source, shared: shared.clone(), places, news }.run());
        let watched = shared.clone();
        services.spawn(async move { watched.breaker.probe(&**watched.desk.executor.store(), &probe).await });
        if let Some(interval) = shared.capabilities.keep_alive {
            services.spawn(keeper::keep(shared.clone(), interval));
        }
        let lanes = Lanes::new();
        let dispatcher = Dispatcher {
            shared: shared.clone(),
            told: Some(told),
            lanes,
            workers: JoinSet::new(),
            running: HashMap::new(),
            concurrency,
            broken: None,
        };
        let broken = dispatcher.run(stop, grace).await;
        let counts = shared.counters.counts();
        info!(target: "idempotent", group = &*shared.desk.group, ?counts, "consumer stopped");
        broken.map_or(Ok(counts), Err)
    }
}

impl<S: Source> fmt::Debug for Consumer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("group", &self.shared.desk.group)
            .field("concurrency", &self.concurrency)
            .field("prefetch", &self.prefetch)
            .finish_non_exhaustive()
    }
}

/// A job that waits for its turn.
struct Waiting<Tag> {
    job: Job<Tag>,
    run: Run,
}

struct Dispatcher<Tag> {
    shared: Arc<Shared<Tag>>,
    /// `None` once intake has ended.
    told: Option<mpsc::UnboundedReceiver<News<Tag>>>,
    lanes: Lanes<Waiting<Tag>>,
    workers: JoinSet<Worked>,
    /// Those of them that run something, with their lanes.
    running: HashMap<Id, Option<u128>>,
    concurrency: usize,
    broken: Option<SourceError>,
}

/// What the dispatcher waits for.
enum Next<Tag> {
    Stop,
    GraceOver,
    Worked(Result<(Id, Worked), JoinError>),
    News(Option<News<Tag>>),
}

/// When a delivery comes again that could not be noted.
const UNNOTED: Duration = Duration::from_secs(5);
/// What handlers that block their thread are given beyond the grace.
const BLOCKED: Duration = Duration::from_secs(2);

impl<Tag: Send + Sync + 'static> Dispatcher<Tag> {
    async fn run(mut self, stop: impl Future<Output = ()>, grace: Duration) -> Option<SourceError> {
        let mut stop = std::pin::pin!(stop);
        let mut timer: Option<Timer> = None;
        loop {
            self.start_ready();
            if timer.is_some() && self.told.is_none() && self.workers.is_empty() {
                return self.broken;
            }
            let next = tokio::select! {
                biased;
                () = &mut stop, if timer.is_none() => Next::Stop,
                () = due(&mut timer) => Next::GraceOver,
                Some(worked) = self.workers.join_next_with_id() => Next::Worked(worked),
                news = told(&mut self.told) => Next::News(news),
            };
            match next {
                Next::Stop => timer = Some(self.drain(grace)),
                Next::GraceOver if self.shared.has_reached(Phase::Closing) => return self.broken,
                Next::GraceOver => {
                    self.shared.phase.send_replace(Phase::Closing);
                    timer = Some(self.sleep(BLOCKED));
                }
                Next::Worked(worked) => {
                    if let Some(refused) = self.worked(worked) {
                        self.broken.get_or_insert(refused);
                        if timer.is_none() {
                            timer = Some(self.drain(grace));
                        }
                    }
                }
                Next::News(Some(News::Job(job))) => self.take(job),
                Next::News(Some(News::Revoked)) => {
                    let revoked = self.lanes.take(|waiting| waiting.job.held.is_revoked());
                    revoked.into_iter().for_each(|waiting| waiting.job.end(End::Revoked));
                }
                Next::News(Some(News::Broken(broken))) => {
                    self.broken = Some(broken);
                    if timer.is_none() {
                        timer = Some(self.drain(grace));
                    }
                }
                Next::News(None) => self.told = None,
            }
        }
    }

    fn sleep(&self, time: Duration) -> Timer {
        self.shared.clock().sleep_until(self.shared.clock().now() + time)
    }

    /// Stops intake, and gives back what waits.
    fn drain(&mut self, grace: Duration) -> Timer {
        self.shared.phase.send_replace(Phase::Draining);
        for waiting in self.lanes.take(|_| true) {
            self.settle(waiting.job, Decision::GiveBack, End::GivenBack);
        }
        self.sleep(grace)
    }

    /// A delivery that was handed over.
    fn take(&mut self, job: Job<Tag>) {
        if self.shared.has_reached(Phase::Draining) {
            return self.settle(job, Decision::GiveBack, End::GivenBack);
        }
        if let Some((decision, end)) = self.shared.triage(job.delivery()) {
            return self.settle(job, decision, end);
        }
        if !job.held.noted {
            let decision = put_off(UNNOTED, "the message log is down");
            return self.settle(job, decision, End::Deferred);
        }
        match self.shared.prepare(&job) {
            Ok(Prepared { lane, run }) => self.lanes.push(lane, Waiting { job, run }),
            Err(decision) => self.settle(job, decision, End::DeadLettered),
        }
    }

    fn start_ready(&mut self) {
        while self.running.len() < self.concurrency
            && let Some((lane, Waiting { job, run })) = self.lanes.next()
        {
            let worker = self.workers.spawn(work(job, Task::Run(run)));
            self.running.insert(worker.id(), lane);
        }
    }

    /// Needs no turn: nothing is run.
    fn settle(&mut self, job: Job<Tag>, decision: Decision, end: End) {
        self.workers.spawn(work(job, Task::Settle(decision, end)));
    }

    /// Says what the source refuses for good.
    fn worked(&mut self, worked: Result<(Id, Worked), JoinError>) -> Option<SourceError> {
        let (id, Worked { put_off: put_off_by, refused }) = worked.unwrap_or_else(|failed| {
            error!(target: "idempotent", error = %failed, "a worker of the consumer failed");
            (failed.id(), Worked::default())
        });
        let Some(Some(lane)) = self.running.remove(&id) else { return refused };
        if let Some(after) = put_off_by.filter(|_| self.shared.capabilities.keeps_order) {
            for waiting in self.lanes.take_behind(lane) {
                let decision = put_off(after, "behind one of its key that comes again");
                self.settle(waiting.job, decision, End::Deferred);
            }
        }
        self.lanes.done(lane);
        refused
    }
}

/// Ends when the timer does, if there is one.
async fn due(timer: &mut Option<Timer>) {
    match timer {
        Some(timer) => timer.await,
        None => pending().await,
    }
}

async fn told<Tag>(told: &mut Option<mpsc::UnboundedReceiver<News<Tag>>>) -> Option<News<Tag>> {
    match told {
        Some(told) => told.recv().await,
        None => pending().await,
    }
}
