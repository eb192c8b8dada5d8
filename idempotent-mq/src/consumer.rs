//! The consumer runtime: receives deliveries, runs handlers, and settles.
//!
//! One delivery passes through these tasks: `intake` owns the source and receives. The dispatcher in this file orders deliveries and
//! passes them to the tasks of the `pool`. A worker (`worker`) runs a delivery and settles it (`settle`). A delivery without a run has
//! a task of its own. `keep_alive` extends visibility timeouts meanwhile. All tasks share the `ConsumerState` (`state`).
mod builder;
mod counts;
mod dead_letter;
mod decision;
mod gauges;
mod intake;
mod keep_alive;
mod lanes;
mod message_log;
mod node_breakers;
mod observer;
mod pool;
mod postponed_retries;
mod settle;
mod state;
mod store_breaker;
mod worker;

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use idempotent_core::{Key, Timer};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tracing::{Instrument, error};

pub use self::builder::ConsumerBuilder;
pub use self::counts::{ConsumerCounters, ConsumerCounts};
pub use self::gauges::ConsumerGauges;
use self::intake::{Intake, IntakeEvent};
use self::message_log::without_run;
use self::observer::GuardedObserver;
pub use self::observer::{DeliveryObserver, SettledDelivery, StartedDelivery};
use self::pool::WorkerPool;
pub(crate) use self::state::Phase;
use self::state::{ConsumerState, DeliveryJob};
use self::worker::{WorkerResult, WorkerTask, put_off, work};
use crate::consumer::builder::ConsumerParts;
use crate::consumer::counts::DeliveryEnd;
use crate::consumer::decision::Decision;
use crate::consumer::lanes::Lanes;
use crate::consumer::node_breakers::NodeBreakers;
use crate::consumer::postponed_retries::PostponedRetries;
use crate::consumer::store_breaker::StoreBreaker;
use crate::handler::{HandlerRun, PreparedRun};
use crate::{Source, SourceError, SourceErrorKind};

/// A consumer that receives deliveries from a [`Source`], runs a handler for each that is not a duplicate, and settles each by
/// the outcome of its run. The [crate's docs](crate) have an example.
pub struct Consumer<S: Source> {
    shared: Arc<ConsumerState<S::Tag>>,
    source: S,
    probe: Key,
    concurrency: usize,
    prefetch: usize,
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
        let shared = ConsumerState {
            postponed: PostponedRetries::new(capabilities.delays),
            breaker: Arc::new(StoreBreaker::new(clock, entropy, counters.clone(), nodes)),
            counters,
            phase: watch::Sender::new(Phase::Running),
            held: Mutex::default(),
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
        let (concurrency, prefetch, grace) = (parts.concurrency, parts.prefetch, parts.grace);
        Self { shared: Arc::new(shared), source, probe, concurrency, prefetch, grace }
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
        let Self { shared, source, probe, concurrency, prefetch, grace } = self;
        let (news, told) = mpsc::unbounded_channel();
        let mut services = JoinSet::new();
        let places = Arc::new(Semaphore::new(prefetch));
        services.spawn(Intake { source, shared: shared.clone(), places, news }.run());
        let watched = shared.clone();
        services.spawn(async move { watched.breaker.probe_all(&**watched.context.executor.store(), &probe).await });
        if let Some(interval) = shared.capabilities.keep_alive {
            services.spawn(keep_alive::keep_alive(shared.clone(), interval));
        }
        let lanes = Lanes::new();
        let dispatcher = Dispatcher {
            shared: shared.clone(),
            told: Some(told),
            lanes,
            services,
            settling: JoinSet::new(),
            pool: WorkerPool::new(),
            concurrency,
            broken: None,
        };
        let broken = dispatcher.run(stop, grace).await;
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
            .field("prefetch", &self.prefetch)
            .finish_non_exhaustive()
    }
}

/// A delivery that waits for a free handler.
struct QueuedJob<Tag> {
    job: DeliveryJob<Tag>,
    run: HandlerRun,
}

struct Dispatcher<Tag> {
    shared: Arc<ConsumerState<Tag>>,
    /// The events of the intake, or `None` once it has ended.
    told: Option<mpsc::UnboundedReceiver<IntakeEvent<Tag>>>,
    lanes: Lanes<QueuedJob<Tag>>,
    /// The intake and the other tasks that run as long as the consumer.
    services: JoinSet<()>,
    /// The workers that settle a delivery without a run.
    settling: JoinSet<WorkerResult>,
    pool: WorkerPool<Tag>,
    concurrency: usize,
    broken: Option<SourceError>,
}

/// An event for the dispatcher.
enum DispatcherEvent<Tag> {
    Stop,
    GraceOver,
    RunEnded(Option<u128>, WorkerResult),
    Settled(Result<WorkerResult, JoinError>),
    ServiceEnded(Result<(), JoinError>),
    Intake(Option<IntakeEvent<Tag>>),
}

/// The part of the prefetch whose claims may wait for one silent node of the store: one in four.
const WAITING_SHARE: usize = 4;
/// The number of ready events after which the dispatcher polls all sources of events, including the stop. Polling all of them for each
/// event would cost more than the event.
const READY_IN_A_ROW: usize = 8;
/// The delay of a delivery that the message log could not record.
const UNNOTED: Duration = Duration::from_secs(5);
/// The extra time after the grace period for handlers that block their thread.
const BLOCKED: Duration = Duration::from_secs(2);

impl<Tag: Send + Sync + 'static> Dispatcher<Tag> {
    async fn run(mut self, stop: impl Future<Output = ()>, grace: Duration) -> Option<SourceError> {
        let mut stop = std::pin::pin!(stop);
        let mut timer: Option<Timer> = None;
        let mut ready = 0_usize;
        loop {
            self.start_ready();
            if timer.is_some() && self.told.is_none() && self.settling.is_empty() && self.pool.running() == 0 {
                return self.broken;
            }
            ready = ready.saturating_sub(1);
            let event = poll_fn(|context| match ready {
                0 => Poll::Ready(None),
                _ => Poll::Ready(self.ready_event(context)),
            });
            let next = match event.await {
                Some(event) => event,
                None => {
                    ready = READY_IN_A_ROW;
                    tokio::select! {
                        biased;
                        () = &mut stop, if timer.is_none() => DispatcherEvent::Stop,
                        () = due(&mut timer) => DispatcherEvent::GraceOver,
                        Some(settled) = self.settling.join_next() => DispatcherEvent::Settled(settled),
                        Some(ended) = self.services.join_next() => DispatcherEvent::ServiceEnded(ended),
                        (lane, result) = self.pool.end() => DispatcherEvent::RunEnded(lane, result),
                        news = told(&mut self.told) => DispatcherEvent::Intake(news),
                    }
                }
            };
            match next {
                DispatcherEvent::Stop => timer = Some(self.drain(grace)),
                DispatcherEvent::GraceOver if self.shared.has_reached(Phase::Closing) => return self.broken,
                DispatcherEvent::GraceOver => {
                    self.shared.phase.send_replace(Phase::Closing);
                    timer = Some(self.sleep(BLOCKED));
                }
                DispatcherEvent::RunEnded(lane, WorkerResult { put_off, refused }) => {
                    lane.into_iter().for_each(|lane| self.end_of_lane(lane, put_off));
                    refused.into_iter().for_each(|refused| self.breaks(refused, &mut timer, grace));
                }
                DispatcherEvent::Settled(Ok(WorkerResult { refused, .. })) => {
                    refused.into_iter().for_each(|refused| self.breaks(refused, &mut timer, grace));
                }
                DispatcherEvent::Settled(Err(failed)) => {
                    error!(target: "idempotent", error = %failed, "consumer: a worker failed");
                }
                // Without its intake, the consumer would wait for ever.
                DispatcherEvent::ServiceEnded(Err(panicked)) => {
                    let context =
                        "the source, its settler or the message log panicked; repair it, and start the consumer again";
                    self.breaks(
                        SourceError::new(SourceErrorKind::Fatal, context).with_cause(panicked),
                        &mut timer,
                        grace,
                    );
                }
                DispatcherEvent::ServiceEnded(Ok(())) => {}
                DispatcherEvent::Intake(Some(IntakeEvent::Delivery(job))) => self.take(job),
                DispatcherEvent::Intake(Some(IntakeEvent::Revoked)) => {
                    let revoked = self.lanes.take(|waiting| waiting.job.held.is_revoked());
                    revoked.into_iter().for_each(|waiting| waiting.job.end(DeliveryEnd::Revoked));
                }
                DispatcherEvent::Intake(Some(IntakeEvent::Failed(broken))) => self.breaks(broken, &mut timer, grace),
                DispatcherEvent::Intake(None) => self.told = None,
            }
        }
    }

    /// Returns the end of a run or an event of the intake that is ready.
    fn ready_event(&mut self, context: &mut Context<'_>) -> Option<DispatcherEvent<Tag>> {
        if let Poll::Ready((lane, result)) = self.pool.poll_end(context) {
            return Some(DispatcherEvent::RunEnded(lane, result));
        }
        match self.told.as_mut()?.poll_recv(context) {
            Poll::Ready(event) => Some(DispatcherEvent::Intake(event)),
            Poll::Pending => None,
        }
    }

    fn sleep(&self, time: Duration) -> Timer {
        self.shared.clock().sleep_until(self.shared.clock().now() + time)
    }

    /// Drains because of an error. The first error is the one that the consumer returns.
    fn breaks(&mut self, error: SourceError, timer: &mut Option<Timer>, grace: Duration) {
        self.broken.get_or_insert(error);
        if timer.is_none() {
            *timer = Some(self.drain(grace));
        }
    }

    /// Stops the intake, and gives waiting deliveries back.
    fn drain(&mut self, grace: Duration) -> Timer {
        self.shared.phase.send_replace(Phase::Draining);
        for waiting in self.lanes.take(|_| true) {
            self.settle(waiting.job, Decision::GiveBack, DeliveryEnd::GivenBack);
        }
        self.sleep(grace)
    }

    /// Queues or settles a received delivery.
    fn take(&mut self, job: DeliveryJob<Tag>) {
        if self.shared.has_reached(Phase::Draining) {
            return self.settle(job, Decision::GiveBack, DeliveryEnd::GivenBack);
        }
        if let Some(end) = without_run(&job) {
            return self.settle(job, Decision::Ack, end);
        }
        if let Some((decision, end)) = self.shared.triage(job.delivery()) {
            return self.settle(job, decision, end);
        }
        if !job.held.noted {
            let decision = put_off(UNNOTED, "the message log is down");
            return self.settle(job, decision, DeliveryEnd::Deferred);
        }
        match self.shared.prepare(&job) {
            Ok(PreparedRun { lane, run }) => self.lanes.push(lane, QueuedJob { job, run }),
            Err(decision) => self.settle(job, decision, DeliveryEnd::DeadLettered),
        }
    }

    fn start_ready(&mut self) {
        while self.pool.running() < self.concurrency
            && let Some((lane, QueuedJob { job, run })) = self.lanes.next()
        {
            self.pool.run(lane, job, run);
        }
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

    /// Lets the next delivery of a lane run. If the ended one is retried, and the source keeps order, the waiting ones are deferred.
    fn end_of_lane(&mut self, lane: u128, put_off_by: Option<Duration>) {
        if let Some(after) = put_off_by.filter(|_| self.shared.capabilities.keeps_order) {
            for waiting in self.lanes.take_behind(lane) {
                let decision = put_off(after, "an earlier message of its key is retried");
                self.settle(waiting.job, decision, DeliveryEnd::Deferred);
            }
        }
        self.lanes.done(lane);
    }
}

/// Waits for the timer, or forever without one.
async fn due(timer: &mut Option<Timer>) {
    match timer {
        Some(timer) => timer.await,
        None => pending().await,
    }
}

async fn told<Tag>(told: &mut Option<mpsc::UnboundedReceiver<IntakeEvent<Tag>>>) -> Option<IntakeEvent<Tag>> {
    match told {
        Some(told) => told.recv().await,
        None => pending().await,
    }
}
