//! The consumer runtime: receives deliveries, runs handlers, and settles.
//!
//! One delivery passes through these tasks: `intake` owns the source, receives, and puts deliveries into the `job_queue`. A worker takes
//! one from there, runs it (`worker`) and settles it (`settle`). The dispatcher in this file starts workers, drains, and gives a
//! delivery without a run a task of its own. `keep_alive` extends visibility timeouts meanwhile. All tasks share the `ConsumerState`
//! (`state`).
mod builder;
mod counts;
mod dead_letter;
mod decision;
mod gauges;
mod intake;
mod job_queue;
mod keep_alive;
mod lanes;
mod message_log;
mod node_breakers;
mod observer;
mod postponed_retries;
mod settings;
mod settle;
mod state;
mod store_breaker;
mod worker;

use std::fmt;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{Key, Timer};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tracing::{Instrument, error};

pub use self::builder::ConsumerBuilder;
pub use self::counts::{ConsumerCounters, ConsumerCounts};
pub use self::gauges::ConsumerGauges;
use self::intake::Intake;
use self::job_queue::{JobQueue, Orders, serve};
use self::observer::GuardedObserver;
pub use self::observer::{DeliveryObserver, SettledDelivery, StartedDelivery};
pub use self::settings::ConsumerSettings;
pub(crate) use self::state::Phase;
use self::state::{ConsumerState, DeliveryJob};
use self::worker::{WorkerResult, WorkerTask, work};
use crate::consumer::builder::ConsumerParts;
use crate::consumer::counts::DeliveryEnd;
use crate::consumer::decision::Decision;
use crate::consumer::node_breakers::NodeBreakers;
use crate::consumer::postponed_retries::PostponedRetries;
use crate::consumer::store_breaker::StoreBreaker;
use crate::{Source, SourceError, SourceErrorKind};

/// A consumer that receives deliveries from a [`Source`], runs a handler for each that is not a duplicate, and settles each by
/// the outcome of its run. The [crate's docs](crate) have an example.
pub struct Consumer<S: Source> {
    shared: Arc<ConsumerState<S::Tag>>,
    source: S,
    probe: Key,
    concurrency: usize,
    claims_ahead: usize,
    grace: Duration,
}

impl<S: Source> Consumer<S> {
    /// Creates a builder of a consumer of this source.
    ///
    /// `group` is the queue or consumer group. The group is part of the identity of each key, so two groups that receive the
    /// same message each run their handler. Keep the group stable, because stored keys contain it.
    pub fn builder(
        source: S,
        group: impl Into<Arc<str>>,
        executor: impl AsRef<idempotent_core::Executor>,
    ) -> ConsumerBuilder<S> {
        ConsumerBuilder::new(source, group.into(), executor.as_ref().clone())
    }

    pub(crate) fn new(parts: ConsumerParts<S>, probe: Key) -> Self {
        let ConsumerParts { source, mut context, work, settler, capabilities, rules, .. } = parts;
        let (clock, entropy) = (context.executor.clock().clone(), context.executor.entropy().clone());
        let counters = ConsumerCounters::default();
        counters.set_capacity(parts.concurrency);
        let (executor, group) = (context.executor.clone(), context.group.clone());
        let nodes = NodeBreakers::new(executor, group, counters.clone(), (parts.prefetch / WAITING_SHARE).max(1));
        if let Some(nodes) = &nodes {
            context.admit_by(Arc::new(nodes.clone()));
        }
        if parts.claims_ahead > 0 {
            let turns = Arc::new(Semaphore::new(parts.concurrency));
            counters.count_turns(turns.clone());
            context.claims = context.claims.turns(turns.clone());
            context.turns = Some(turns);
        }
        let shared = ConsumerState {
            postponed: PostponedRetries::new(capabilities.delays),
            breaker: Arc::new(StoreBreaker::new(clock, entropy, counters.clone(), nodes)),
            counters,
            phase: watch::Sender::new(Phase::Running),
            held: Mutex::default(),
            prefetch: parts.prefetch,
            freed: Notify::new(),
            max_deliveries: parts.max_deliveries,
            max_body: parts.max_body,
            alert_after: parts.alert_after,
            context,
            work,
            settler,
            capabilities,
            rules,
            log: parts.log,
            logged_as: parts.logged_as,
            alerts: parts.alerts,
            observer: parts.observer.map(GuardedObserver::new),
        };
        let (concurrency, claims_ahead, grace) = (parts.concurrency, parts.claims_ahead, parts.grace);
        Self { shared: Arc::new(shared), source, probe, concurrency, claims_ahead, grace }
    }

    /// Returns a handle on the counts, which also works while the consumer runs.
    #[must_use]
    pub fn counters(&self) -> ConsumerCounters {
        self.shared.counters.clone()
    }

    /// Receives, runs and settles deliveries until `stop` ends, and then drains.
    ///
    /// Without a `tracing` subscriber, the consumer would show neither retries nor dead letters. It then writes one line to stderr.
    ///
    /// A draining consumer receives nothing more, and gives back deliveries whose handlers have not begun. Running handlers
    /// continue for the [grace period](ConsumerBuilder::grace). The consumer then drops the remaining handlers at their next await and
    /// gives their deliveries back. It acknowledges no delivery whose run did not succeed. The method returns at most 1 s after the
    /// grace period, or 2 s if a handler blocks its thread.
    ///
    /// The key of a dropped handler stays claimed until its lease expires. A handler that had not begun frees its key, and does not
    /// count as an attempt. The executor is not drained, because other code may use it: drain it afterwards.
    ///
    /// # Errors
    /// Returns the error of a source that failed permanently, or that refused to settle a delivery. That delivery was given back,
    /// and the consumer has drained.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    ///
    /// # Cancellation
    /// Dropping the future drops all handlers and settles nothing, so the broker delivers the messages again. Keys of handlers that
    /// had begun stay claimed until their leases expire.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<ConsumerCounts, SourceError> {
        idempotent_core::__private::warn_without_subscriber();
        let Self { shared, source, probe, concurrency, claims_ahead, grace } = self;
        let queue = Arc::new(JobQueue::new(shared.clone(), concurrency + claims_ahead));
        let (mut intake, mut services) = (JoinSet::new(), JoinSet::new());
        intake.spawn(Intake { source, shared: shared.clone(), queue: queue.clone() }.run());
        let watched = shared.clone();
        services.spawn(async move { watched.breaker.probe_all(&**watched.context.executor.store(), &probe).await });
        if let Some(interval) = shared.capabilities.keep_alive {
            services.spawn(keep_alive::keep_alive(shared.clone(), interval));
        }
        let dispatcher = Dispatcher {
            shared: shared.clone(),
            queue,
            intake,
            services,
            settling: JoinSet::new(),
            workers: JoinSet::new(),
            timer: None,
            grace,
            broken: None,
        };
        let broken = dispatcher.run(stop).await;
        let counts = shared.counters.counts();
        counts.log(&shared.context.group);
        broken.map_or(Ok(counts), Err)
    }
}

impl<S: Source> fmt::Debug for Consumer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("group", &self.shared.context.group)
            .field("concurrency", &self.concurrency)
            .field("prefetch", &self.shared.prefetch)
            .finish_non_exhaustive()
    }
}

struct Dispatcher<Tag: Send + Sync + 'static> {
    shared: Arc<ConsumerState<Tag>>,
    queue: Arc<JobQueue<Tag>>,
    intake: JoinSet<()>,
    /// The other tasks that run as long as the consumer.
    services: JoinSet<()>,
    /// The tasks that settle a delivery without a run.
    settling: JoinSet<WorkerResult>,
    workers: JoinSet<()>,
    timer: Option<Timer>,
    grace: Duration,
    broken: Option<SourceError>,
}

/// The part of the prefetch whose claims may wait for one silent node of the store: one in four.
const WAITING_SHARE: usize = 4;
/// The extra time after the grace period for handlers that block their thread.
const BLOCKED: Duration = Duration::from_secs(2);

impl<Tag: Send + Sync + 'static> Dispatcher<Tag> {
    async fn run(mut self, stop: impl Future<Output = ()>) -> Option<SourceError> {
        let mut stop = std::pin::pin!(stop);
        loop {
            self.carry_out(self.queue.take_orders());
            if self.timer.is_some() && self.intake.is_empty() && self.settling.is_empty() && self.workers.is_empty() {
                return self.broken.take();
            }
            tokio::select! {
                biased;
                () = &mut stop, if self.timer.is_none() => self.drain(),
                () = due(&mut self.timer) => {
                    if self.shared.has_reached(Phase::Closing) {
                        return self.broken.take();
                    }
                    self.shared.phase.send_replace(Phase::Closing);
                    self.timer = Some(self.sleep(BLOCKED));
                }
                Some(settled) = self.settling.join_next() => match settled {
                    Ok(WorkerResult { refused, .. }) => refused.into_iter().for_each(|refused| self.breaks(refused)),
                    Err(failed) => error!(target: "idempotent", error = %failed, "consumer: a worker failed"),
                },
                Some(ended) = self.workers.join_next() => {
                    ended.unwrap_or_else(|failed| error!(target: "idempotent", error = %failed, "consumer: a worker failed"));
                }
                // Without its intake, the consumer would wait for ever.
                Some(ended) = self.intake.join_next() => ended.unwrap_or_else(|panicked| self.breaks(of_panic(panicked))),
                Some(ended) = self.services.join_next() => ended.unwrap_or_else(|panicked| self.breaks(of_panic(panicked))),
                () = self.queue.ordered() => {}
            }
        }
    }

    fn carry_out(&mut self, Orders { workers, settlements, failure }: Orders<Tag>) {
        for _ in 0..workers {
            self.workers.spawn(serve(self.queue.clone()));
        }
        for (job, decision, end) in settlements {
            self.settle(job, decision, end);
        }
        failure.into_iter().for_each(|failure| self.breaks(failure));
    }

    fn sleep(&self, time: Duration) -> Timer {
        self.shared.clock().sleep_until(self.shared.clock().now() + time)
    }

    /// Drains because of an error. The first error is the one that the consumer returns.
    fn breaks(&mut self, error: SourceError) {
        self.broken.get_or_insert(error);
        if self.timer.is_none() {
            self.drain();
        }
    }

    /// Stops the intake, gives waiting deliveries back, and starts the grace period.
    fn drain(&mut self) {
        self.shared.phase.send_replace(Phase::Draining);
        self.queue.drain();
        self.timer = Some(self.sleep(self.grace));
    }

    /// Settles a delivery without a run, inside of the observer's span if there is one.
    fn settle(&mut self, job: DeliveryJob<Tag>, decision: Decision, end: DeliveryEnd) {
        let span = job.span(false);
        let worker = work(job, WorkerTask::Settle(decision, end));
        match span {
            Some(span) => self.settling.spawn(worker.instrument(span)),
            None => self.settling.spawn(worker),
        };
    }
}

impl<Tag: Send + Sync + 'static> Drop for Dispatcher<Tag> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn of_panic(panicked: JoinError) -> SourceError {
    let context = "the source, its settler or the message log panicked; repair it, and start the consumer again";
    SourceError::new(SourceErrorKind::Fatal, context).with_cause(panicked)
}

/// Waits for the timer, or forever without one.
async fn due(timer: &mut Option<Timer>) {
    match timer {
        Some(timer) => timer.await,
        None => pending().await,
    }
}
