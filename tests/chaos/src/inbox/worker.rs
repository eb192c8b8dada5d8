//! A worker process that handles deliveries in transactions and kills itself at selected points.
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use idempotent::reply::DefaultReply;
use idempotent::store::ClaimMode;
use idempotent::{Call, Discard, Disposition, Executor, Handler, Identity, Json, Lease, Outcome, Policy, Scene};
use sqlx::pool::PoolOptions;
use sqlx::{MySql, Pool, Postgres};
use tokio::sync::mpsc;

use super::database::Engine;
use super::dying_transactions::{Begins, DyingTransactions, Tx};
use super::wire::{Deliver, News, Point, Start};
use super::{InboxDatabase, InboxFlaw};
use crate::dice::Dice;
use crate::dying_store::die;
use crate::failed::Failed;
use crate::process::{self, begin, next};

/// The size of a stored value in bytes.
const KEPT: u64 = 64;

struct Worker<D: Engine> {
    executor: Executor,
    mortal: DyingTransactions<D::Store>,
    /// The pool for effects outside of the run's transaction, for the workers with this bug.
    pool: Pool<D>,
    flaw: Option<InboxFlaw>,
    news: mpsc::UnboundedSender<News>,
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
    let (sender, mut received) = mpsc::unbounded_channel();
    let work = async {
        match start.database {
            InboxDatabase::Postgres | InboxDatabase::PgBouncer => work::<Postgres>(&start, &mut received).await,
            InboxDatabase::MariaDb => work::<MySql>(&start, &mut received).await,
        }
    };
    let read = async {
        while let Some(order) = next::<Deliver>(&mut orders).await? {
            // The other side lives as long as this one.
            let _ = sender.send(order);
        }
        drop(sender);
        Ok(())
    };
    tokio::try_join!(work, read).map(drop)
}

async fn work<D: Engine>(start: &Start, orders: &mut mpsc::UnboundedReceiver<Deliver>) -> anyhow::Result<()> {
    let worker = Arc::new(Worker::<D>::start(start, process::news()).await?);
    worker.tell(News::Ready);
    while let Some(order) = orders.recv().await {
        let worker = worker.clone();
        tokio::spawn(async move { worker.deliver(&order).await });
    }
    Ok(())
}

fn policy() -> Policy {
    let (short, long) = (Duration::from_millis(20), Duration::from_millis(200));
    let delays =
        Policy::new().retry_delay(short).retry_delay_max(long).in_flight_delay(short).in_flight_delay_max(long);
    // Who is killed often must not be given up.
    delays.lease(Duration::from_secs(1)).max_result(KEPT).max_retries(Policy::NO_LIMIT)
}

impl<D: Engine> Worker<D> {
    async fn start(start: &Start, news: mpsc::UnboundedSender<News>) -> anyhow::Result<Self> {
        let pool = PoolOptions::new().max_connections(8).acquire_timeout(Duration::from_secs(2));
        let pool = pool.test_before_acquire(false).connect_lazy(&start.store)?;
        let store = loop {
            match D::open(pool.clone()).await {
                Ok(store) => break store,
                // Faults do not wait until it has started.
                Err(error) => eprintln!("worker {}: {error}", start.worker),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let mortal =
            DyingTransactions::new(Arc::new(store), Dice::new(start.seed, u64::from(start.worker)), start.flaw);
        let executor =
            Executor::builder(Begins(mortal.clone(), PhantomData::<fn() -> D>)).policy(Scene::Mq, policy()).build()?;
        Ok(Self { executor, mortal, pool, flaw: start.flaw, news })
    }

    fn tell(&self, news: News) {
        // Without a receiver, the worker is about to end.
        let _ = self.news.send(news);
    }

    fn die_at(&self, order: &Deliver, point: Point) {
        if order.dies == Some(point) {
            die();
        }
    }

    async fn deliver(&self, order: &Deliver) {
        if let Some(point) = order.dies {
            self.tell(News::Dies(point));
            // So that it is heard.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.die_at(order, Point::BeforeClaim);
        let identity = Identity::new(Scene::Mq, "chaos", &order.key);
        if let (Some(point), Ok(key)) = (order.dies, identity.key(self.executor.namespace())) {
            self.mortal.doom(key, point);
        }
        let (answer, outcome) = Outcome::capture(self.run(Call::new(identity), order)).await;
        let alone: Disposition = (&answer).into();
        match outcome.map_or_else(|| alone.clone(), |outcome| outcome.settle(alone.clone())) {
            Disposition::Ack => {
                self.die_at(order, Point::BeforeAck);
                self.die_at(order, Point::ValueNotKept);
                // It never arrives.
                self.die_at(order, Point::AckLost);
                self.tell(News::Ack { delivery: order.delivery });
            }
            Disposition::Retry { after } => {
                let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                self.tell(News::Nack { delivery: order.delivery, after_ms });
            }
            other => eprintln!("delivery {} is not settled: {other:?}", order.delivery),
        }
    }

    async fn run(&self, call: Call, order: &Deliver) -> Result<String, Failed> {
        if self.flaw == Some(InboxFlaw::ClaimOutside) {
            let run = || async {
                let mut apart = self.pool.begin().await?;
                let value = self.handle(&mut apart, order).await?;
                apart.commit().await?;
                Ok(value)
            };
            return self.executor.run(call, Handler::<DefaultReply, Json, _, _>::new(run)).await;
        }
        // Half of the keys each way.
        let mode = if order.key.is_multiple_of(2) { ClaimMode::Inside } else { ClaimMode::Leased };
        let (call, lender) = call.within::<Tx<D>>(&self.executor, mode);
        let run = || async { self.handle(&mut lender.lend(), order).await };
        // A run without a stored value commits with no statement after its claim.
        match order.key % 4 {
            0 => self.executor.run(call, Handler::<DefaultReply, Discard, _, _>::new(run)).await,
            _ => self.executor.run(call, Handler::<DefaultReply, Json, _, _>::new(run)).await,
        }
    }

    /// Two rows, which belong together.
    async fn handle(&self, tx: &mut D::Connection, order: &Deliver) -> Result<String, Failed> {
        if Lease::current().is_some_and(|lease| lease.taken_over().is_some()) {
            self.tell(News::TakenOver);
        }
        self.die_at(order, Point::BeforeEffect);
        if order.ends {
            return self.end(tx, order).await;
        }
        let key = i64::try_from(order.key).unwrap_or(i64::MAX);
        D::insert(tx, key, 1).await?;
        self.die_at(order, Point::InEffect);
        D::insert(tx, key, 2).await?;
        self.die_at(order, Point::AfterEffect);
        if order.fails {
            return Err(Failed);
        }
        let length = if order.dies == Some(Point::ValueNotKept) { 2 * KEPT } else { order.key % 16 };
        Ok("x".repeat(usize::try_from(length).unwrap_or_default()))
    }

    /// Ends the transaction by a statement, and takes itself for done or failed: only the proof at the end can show it. There is no
    /// effect, because a part of one would be repeated.
    async fn end(&self, tx: &mut D::Connection, order: &Deliver) -> Result<String, Failed> {
        let place = usize::try_from(order.delivery).unwrap_or_default() % D::ENDING.len();
        // A fault may swallow the answer to a `COMMIT`, and a statement has no time limit of its own.
        let ending = D::execute(tx, D::ENDING[place]);
        tokio::time::timeout(Duration::from_secs(5), ending).await.map_err(|_| Failed)??;
        self.tell(News::Ended);
        if order.fails { Err(Failed) } else { Ok("x".repeat(usize::try_from(order.key % 16).unwrap_or_default())) }
    }
}
