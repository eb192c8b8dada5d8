//! Redis as the fast tier of a database server, without the outbox.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use idempotent_core::{
    CacheTier, Call, Clock, DefaultReply, Executor, Handler, Identity, Json, Key, Outcome, Policy, Rejection, Scene,
    StateKind, Store, TieredStore,
};
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::{RedisServer, Value};
use idempotent_redis::RedisStore;
use idempotent_testkit::{Subject, VirtualClock};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use super::fixture::{Place, server};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_secs(1);

/// A server with a database for each law, because the laws use the same keys.
static REDIS: LazyLock<RedisServer> = LazyLock::new(|| RedisServer::builder().args(["--databases", "1000"]).start());
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// Two processes over both, for the laws: by the test's clock but for Redis, where facts live on for longer than they may.
pub(crate) async fn subject() -> Subject {
    let (place, database) = (Place::new(), DATABASES.fetch_add(1, SeqCst));
    let test = VirtualClock::new();
    let clock: Arc<dyn Clock> = Arc::new(test.clone());
    let open = async || {
        let redis = RedisStore::connect(format!("{}/{database}", REDIS.url())).await.unwrap();
        let durable = place.builder().clock(clock.clone()).connect().await.unwrap();
        TieredStore::builder(durable, redis.fast_tier()).clock(clock.clone()).build()
    };
    Subject::new(open().await).second(open().await).planting(place.rows()).rounds(10).on_clock(test)
}

/// A Redis and a table of a test's own, and a way to each that a test can watch and cut.
struct World {
    redis: RedisServer,
    place: Place,
}

/// One process: its executor, and its ways to both.
struct Process {
    executor: Executor,
    store: TieredStore,
    to_redis: Proxy,
    to_server: Proxy,
    /// Statements sent to the server, and what prepares them.
    sent: Arc<AtomicU32>,
}

/// A handler: how often it was run, and whether it may go on.
struct Job {
    runs: watch::Sender<u32>,
    open: Semaphore,
    fails: bool,
}

impl Job {
    fn quick() -> Arc<Self> {
        Self::new(Semaphore::MAX_PERMITS, false)
    }

    /// Creates a job whose runs wait for [`go`](Self::go).
    fn held() -> Arc<Self> {
        Self::new(0, false)
    }

    fn failing() -> Arc<Self> {
        Self::new(Semaphore::MAX_PERMITS, true)
    }

    fn new(permits: usize, fails: bool) -> Arc<Self> {
        Arc::new(Self { runs: watch::Sender::new(0), open: Semaphore::new(permits), fails })
    }

    fn runs(&self) -> u32 {
        *self.runs.borrow()
    }

    async fn begun(&self, runs: u32) {
        self.runs.subscribe().wait_for(|begun| *begun >= runs).await.unwrap();
    }

    fn go(&self) {
        self.open.add_permits(1);
    }

    async fn run(&self) -> Result<u32, Failure> {
        self.runs.send_modify(|runs| *runs += 1);
        self.open.acquire().await.unwrap().forget();
        if self.fails { Err(Failure::NoStock) } else { Ok(17) }
    }
}

#[derive(Debug)]
enum Failure {
    Rejected(#[allow(dead_code, reason = "for who reads a failed test")] Rejection),
    NoStock,
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

fn id(part: &str) -> Identity {
    Identity::new(Scene::Mq, "tiers", part)
}

fn key() -> Key {
    id("k").key("idempotent").unwrap()
}

/// Returns whether the request is a statement, and not the ping of a pool.
fn is_statement(request: &[u8]) -> bool {
    request.len() > 5
}

impl World {
    async fn new() -> Self {
        let world = Self { redis: RedisServer::start(), place: Place::new() };
        world.place.open().await;
        world
    }

    /// One that has prepared all of its statements.
    async fn process(&self, lease: Duration) -> Process {
        let (to_redis, to_server) =
            (Proxy::start(&self.redis.address()).await, Proxy::start(&server().address()).await);
        let sent = Arc::new(AtomicU32::new(0));
        let count = sent.clone();
        // Meets none: it only looks.
        let counts = move |request: &[u8]| {
            count.fetch_add(u32::from(is_statement(request)), SeqCst);
            false
        };
        to_server.fail_next_if(counts, Fault::CutBeforeSend);
        let url = self.place.url.replace(&server().address(), &to_server.address());
        let durable = Place { url, ..self.place.clone() }.builder().connections(1).connect().await.unwrap();
        let redis = RedisStore::connect(to_redis.url()).await.unwrap();
        // A process that is to be killed at a request must not continue without its fast tier.
        let store = TieredStore::builder(durable, redis.fast_tier()).patience(Duration::from_secs(60)).build();
        let policy = Policy::new().lease(lease).jitter(0);
        let executor = Executor::builder(store.clone()).policy(Scene::Mq, policy).build().unwrap();
        let process = Process { executor, store, to_redis, to_server, sent };
        let warm = format!("warm {}", DATABASES.fetch_add(1, SeqCst));
        assert_eq!(deliver(&process.executor, &warm, Job::quick()).await, Outcome::Ran);
        process
    }

    fn flush(&self) {
        self.redis.command(&["FLUSHALL"]);
    }

    /// Returns whether Redis contains a fact of the key.
    fn redis_knows(&self) -> bool {
        self.redis.command(&["EXISTS", key().as_str()]) == Value::Integer(1)
    }
}

impl Process {
    async fn deliver(&self, job: &Arc<Job>) -> Outcome {
        deliver(&self.executor, "k", job.clone()).await
    }

    /// In a task of its own, whose handler has begun by the time this returns.
    async fn begin(&self, job: &Arc<Job>) -> JoinHandle<Outcome> {
        let runs = job.runs();
        let (executor, own) = (self.executor.clone(), job.clone());
        let run = tokio::spawn(async move { deliver(&executor, "k", own).await });
        job.begun(runs + 1).await;
        run
    }

    /// Redelivers without a delay until the result is more than a deferral.
    async fn redeliver(&self, job: &Arc<Job>) -> Outcome {
        loop {
            let outcome = self.deliver(job).await;
            if !outcome.is_deferral() {
                return outcome;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Statements that the database has had of it.
    fn sent(&self) -> u32 {
        self.sent.load(SeqCst)
    }

    /// SIGKILL: nothing of it goes on, and its connections end.
    async fn kill(self, run: JoinHandle<Outcome>) {
        self.to_redis.cut_all();
        self.to_server.cut_all();
        run.abort();
        assert!(run.await.is_err_and(|ended| ended.is_cancelled()), "it got past where it was to stand still");
    }
}

async fn deliver(executor: &Executor, part: &str, job: Arc<Job>) -> Outcome {
    let handler = Handler::<DefaultReply, Json, _, _>::new(move || async move { job.run().await });
    let (_, outcome) = Outcome::capture(executor.run(Call::new(id(part)), handler)).await;
    outcome.unwrap()
}

#[tokio::test]
async fn a_hit_in_redis_sends_the_database_nothing() {
    let world = World::new().await;
    let (one, other, job) = (world.process(LONG).await, world.process(LONG).await, Job::quick());
    assert_eq!(one.deliver(&job).await, Outcome::Ran);
    for process in [&one, &other] {
        let sent = process.sent();
        for _ in 0..10 {
            assert_eq!(process.deliver(&job).await, Outcome::Replayed);
        }
        assert_eq!(process.sent(), sent, "not a statement");
        assert_eq!(process.store.counts().hits, 10);
    }
    assert_eq!(job.runs(), 1);
}

#[tokio::test]
async fn a_miss_is_answered_by_the_database_and_repairs_redis() {
    let world = World::new().await;
    let (process, job) = (world.process(LONG).await, Job::quick());
    assert_eq!(process.deliver(&job).await, Outcome::Ran);
    world.flush();
    assert_eq!((process.deliver(&job).await, job.runs()), (Outcome::Replayed, 1));
    assert!(world.redis_knows(), "repaired");
    let sent = process.sent();
    assert_eq!((process.deliver(&job).await, job.runs()), (Outcome::Replayed, 1));
    assert_eq!(process.sent(), sent, "the next one is a hit");
}

/// S3.5b: the first is still running, so the second is neither run nor acknowledged.
#[tokio::test]
async fn a_flush_under_a_running_handler_lets_no_duplicate_run() {
    let world = World::new().await;
    let (one, other, job) = (world.process(LONG).await, world.process(LONG).await, Job::held());
    let run = one.begin(&job).await;
    assert!(!world.redis_knows(), "a crash from here on leaves no marker");
    for _ in 0..3 {
        world.flush();
        let outcome = other.deliver(&job).await;
        assert!(matches!(outcome, Outcome::InFlight { .. }), "{outcome:?}");
    }
    job.go();
    assert_eq!(run.await.unwrap(), Outcome::Ran);
    world.flush();
    assert_eq!((other.deliver(&job).await, job.runs()), (Outcome::Replayed, 1));
}

#[tokio::test]
async fn a_failed_run_leaves_nothing_in_redis_and_may_run_again() {
    let world = World::new().await;
    let process = world.process(LONG).await;
    for _ in 0..2 {
        let outcome = process.deliver(&Job::failing()).await;
        assert!(matches!(outcome, Outcome::Released { .. }), "{outcome:?}");
        assert!(!world.redis_knows());
    }
    let job = Job::quick();
    assert_eq!(process.deliver(&job).await, Outcome::Ran);
    assert_eq!(process.deliver(&job).await, Outcome::Replayed);
}

/// Known results are returned, and the database decides about all other keys.
#[tokio::test]
async fn while_the_database_is_away_redis_answers_what_it_knows_and_nothing_runs() {
    let world = World::new().await;
    let (process, job) = (world.process(LONG).await, Job::quick());
    assert_eq!(process.deliver(&job).await, Outcome::Ran);
    process.to_server.refuse();
    process.to_server.cut_all();
    assert_eq!(process.deliver(&job).await, Outcome::Replayed);
    world.flush();
    let outcome = process.deliver(&job).await;
    assert!(matches!(outcome, Outcome::StoreDown(_)), "{outcome:?}");
    assert_eq!(job.runs(), 1);
    process.to_server.listen();
    assert_eq!((process.redeliver(&job).await, job.runs()), (Outcome::Replayed, 1));
}

/// A point at which a process stops until it is killed: a request after the end of its handler, and its fault.
type Point = (&'static str, Way, Fault);

enum Way {
    /// The statement of this number.
    Server(u32),
    Redis,
}

/// The steps of a success: the write to the database, the read of the record, the write to Redis, and the settlement.
const POINTS: [Point; 6] = [
    ("before the database is told", Way::Server(0), Fault::HalfOpen),
    ("before the database is heard", Way::Server(0), Fault::HalfOpenAfterApply),
    ("before the record is read", Way::Server(1), Fault::HalfOpen),
    ("before the record is heard", Way::Server(1), Fault::HalfOpenAfterApply),
    ("before Redis is told", Way::Redis, Fault::HalfOpen),
    ("before Redis is heard", Way::Redis, Fault::HalfOpenAfterApply),
];

#[tokio::test]
async fn killed_between_any_two_steps_of_a_success_the_end_is_the_same() {
    for (at, point) in POINTS.iter().enumerate() {
        // A lease that is waited for is a short one.
        let (lease, runs) = if at == 0 { (SHORT, 2) } else { (LONG, 1) };
        killed(point, lease, runs).await;
    }
}

async fn killed((point, way, fault): &Point, lease: Duration, runs: u32) {
    let world = World::new().await;
    let (one, other, job) = (world.process(lease).await, world.process(LONG).await, Job::held());
    let run = one.begin(&job).await;
    let stands = match way {
        Way::Server(number) => {
            let (number, seen) = (*number, AtomicU32::new(0));
            let is_it = move |request: &[u8]| is_statement(request) && seen.fetch_add(1, SeqCst) == number;
            one.to_server.fail_next_if(is_it, *fault);
            &one.to_server
        }
        Way::Redis => {
            one.to_redis.fail_next(*fault);
            &one.to_redis
        }
    };
    job.go();
    stands.until_met(1).await;
    one.kill(run).await;

    // The lease of the dead one ends, where it was one still.
    job.go();
    let outcome = other.redeliver(&job).await;
    let expected = if runs == 2 { Outcome::Ran } else { Outcome::Replayed };
    assert_eq!((outcome, job.runs()), (expected, runs), "{point}");
    let record = other.store.peek(&key()).await.unwrap().unwrap();
    assert_eq!(record.state.kind(), StateKind::Consumed, "{point}");
    let redis = RedisStore::connect(world.redis.url()).await.unwrap();
    let fact = redis.fast_tier().recall(&key()).await.unwrap();
    assert_eq!(fact.and_then(|fact| fact.value).as_deref(), Some(&b"17"[..]), "{point}: Redis knows");
    let sent = other.sent();
    assert_eq!((other.deliver(&job).await, job.runs()), (Outcome::Replayed, runs), "{point}");
    assert_eq!(other.sent(), sent, "{point}: and answers");
}
