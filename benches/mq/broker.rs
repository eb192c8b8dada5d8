//! The parts that the benches of brokers share: the ways to consume a filled queue, and the comparison of their slices.
#[path = "../redis/cpu.rs"]
mod cpu;
#[path = "../core/report.rs"]
pub mod report;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use idempotent::mq::{Consumer, ConsumerCounters, HandlerResult, KeyFrom, Message, MessageHandler, Messages, Source};
use idempotent::{Executor, MemoryStore, RedisStore};
use idempotent_harness::servers::RedisServer;
use tokio::runtime::Runtime;

use self::report::{Goal, Pair, Report, turns};

/// The maximum number of messages that a consumer holds.
pub const PREFETCH: usize = 256;
/// The usual number of messages in a slice, and the number of rounds in a measurement.
pub const MESSAGES: u64 = 20_000;
const ROUNDS: usize = 21;

/// Returns a few hundred bytes, like a typical order.
pub fn body() -> String {
    let lines = (0..8).map(|line| format!(r#"{{"sku":"desk-{line}","qty":{line},"cents":12900}}"#));
    format!(r#"{{"order":17,"customer":"c-8431","lines":[{}]}}"#, lines.collect::<Vec<_>>().join(","))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// The bare client.
    Bare,
    /// The bare client, which waits for its acknowledgements.
    Waiting,
    /// The consumer runtime without keys.
    Unprotected,
    /// The consumer runtime with keys, in memory.
    Memory,
    /// The consumer runtime with keys, in Redis.
    Redis,
}

/// A way, its floor, and the goal for its throughput.
pub type Compared = (&'static str, Way, Way, Goal);

/// The comparisons of a broker whose bare client has one way.
pub const COMPARED: [Compared; 3] = [
    ("unprotected", Way::Unprotected, Way::Bare, Goal::None),
    ("memory", Way::Memory, Way::Bare, Goal::AtLeast(0.9)),
    ("redis", Way::Redis, Way::Bare, Goal::AtLeast(0.6)),
];

/// A running broker with a queue that is filled before it is consumed.
pub trait Broker {
    type Source: Source;

    fn url(&self) -> String;

    /// Publishes and confirms `messages` messages. Their ids are their numbers, starting at `from`.
    async fn fill(&self, from: u64, messages: u64);

    async fn source(&self, url: &str) -> Self::Source;

    /// Consumes by the bare client, which may wait for its acknowledgements.
    async fn bare(&self, url: &str, waits: bool, messages: u64) -> Consumed;
}

/// The environment that all ways share.
pub struct Place<B> {
    pub runtime: Runtime,
    pub broker: B,
    redis: Executor,
}

impl<B: Broker> Place<B> {
    pub fn new(redis: &RedisServer, start: impl AsyncFnOnce() -> B) -> Self {
        let runtime = cpu::runtime(2);
        let (broker, store) =
            runtime.block_on(async { (start().await, RedisStore::connect(redis.url()).await.unwrap()) });
        Self { runtime, broker, redis: Executor::new(store) }
    }

    /// Fills the queue with new messages.
    pub fn fill(&self, messages: u64) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        self.runtime.block_on(self.broker.fill(NEXT.fetch_add(messages, Relaxed), messages));
    }

    /// Consumes `messages` existing messages from the broker at this URL.
    pub fn consume(&self, way: Way, url: &str, messages: u64) -> Consumed {
        let (executor, handler) = match way {
            Way::Bare => return self.runtime.block_on(self.broker.bare(url, false, messages)),
            Way::Waiting => return self.runtime.block_on(self.broker.bare(url, true, messages)),
            Way::Unprotected => (Executor::new(MemoryStore::new()), TimedHandler::unprotected()),
            Way::Memory => (Executor::new(MemoryStore::new()), TimedHandler::keyed()),
            Way::Redis => (self.redis.clone(), TimedHandler::keyed()),
        };
        self.runtime.block_on(async {
            let source = self.broker.source(url).await;
            handler.consume(source, &executor, messages).await
        })
    }
}

/// Runs the whole bench of a broker.
pub fn bench<B: Broker>(name: &'static str, compared: &[Compared], messages: u64, start: impl AsyncFnOnce() -> B) {
    let report = Report::from_args(name);
    report.title();
    let wanted = wanted(&report, compared);
    if !wanted.is_empty() {
        let redis = RedisServer::start();
        compare(&report, &Place::new(&redis, start), &redis, &wanted, messages);
    }
}

fn case(floor: Way) -> &'static str {
    if floor == Way::Bare { "to bare" } else { "to bare, confirmed" }
}

/// Returns the comparisons that the command line asks for.
pub fn wanted(report: &Report, compared: &[Compared]) -> Vec<Compared> {
    compared.iter().copied().filter(|(name, _, floor, _)| report.wants(name, case(*floor))).collect()
}

/// Measures the ways in alternating slices, and reports each with its floor.
pub fn compare<B: Broker>(
    report: &Report,
    place: &Place<B>,
    redis: &RedisServer,
    compared: &[Compared],
    messages: u64,
) {
    let mut ways: Vec<Way> = Vec::new();
    for way in compared.iter().flat_map(|(_, way, floor, _)| [*floor, *way]) {
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    let rounds = Rounds::take(report, place, redis, ways, messages);
    for (name, way, floor, goal) in compared {
        let pair = |what: &str, unit, figure: fn(&Taken) -> f64, goal| {
            let pair = rounds.pair(*way, *floor, figure);
            report.pair((name, &format!("{}{what}", case(*floor)), Some(PREFETCH)), unit, pair, goal);
        };
        pair("", "messages/s", Taken::rate, *goal);
        pair(", CPU here", "us", Taken::cpu, Goal::None);
    }
}

/// The result of a slice.
#[derive(Clone, Copy)]
struct Taken {
    messages: u64,
    consumed: Consumed,
}

impl Taken {
    fn rate(&self) -> f64 {
        self.messages as f64 / self.consumed.wall.as_secs_f64()
    }

    /// Returns the processor time of this process for each message, in µs.
    fn cpu(&self) -> f64 {
        self.consumed.here.as_secs_f64() * 1e6 / self.messages as f64
    }
}

/// Rounds, each with a slice of every way.
struct Rounds {
    ways: Vec<Way>,
    taken: Vec<Vec<Taken>>,
}

impl Rounds {
    fn take<B: Broker>(report: &Report, place: &Place<B>, redis: &RedisServer, ways: Vec<Way>, messages: u64) -> Self {
        let (rounds, messages) = if report.is_tried() { (1, messages.min(500)) } else { (ROUNDS, messages) };
        let mut taken = Vec::new();
        for round in 0..rounds {
            // Without this command, the server's tables would grow during the whole run.
            redis.command(&["FLUSHALL", "SYNC"]);
            let mut slices = vec![None; ways.len()];
            for at in turns(round, ways.len()) {
                place.fill(messages);
                let consumed = place.consume(ways[at], &place.broker.url(), messages);
                slices[at] = Some(Taken { messages, consumed });
            }
            taken.push(slices.into_iter().map(Option::unwrap).collect());
        }
        Self { ways, taken }
    }

    /// Returns the figure of one way compared with another.
    fn pair(&self, ours: Way, floor: Way, figure: impl Fn(&Taken) -> f64) -> Pair {
        let at = |way| self.ways.iter().position(|taken| *taken == way).expect("a way that was taken");
        let (ours, floor) = (at(ours), at(floor));
        let rounds = self.taken.iter().map(|round| (figure(&round[ours]), figure(&round[floor])));
        Pair::medians(&rounds.collect::<Vec<_>>())
    }
}

/// The time from the first delivery to the last acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Consumed {
    wall: Duration,
    /// The processor time of this process.
    here: Duration,
}

/// The start time, and the processor time until then.
pub struct Begun(Instant, Duration);

impl Begun {
    pub fn now() -> Self {
        Self(Instant::now(), cpu::spent(std::process::id()))
    }

    pub fn ended(&self) -> Consumed {
        Consumed { wall: self.0.elapsed(), here: cpu::spent(std::process::id()).saturating_sub(self.1) }
    }
}

/// A handler that does nothing, and the time of its first call.
struct TimedHandler {
    handler: MessageHandler,
    begun: Arc<OnceLock<Begun>>,
}

type Handler = Box<dyn Fn(Message<()>) -> std::future::Ready<HandlerResult> + Send + Sync>;

impl TimedHandler {
    /// Creates a handler without keys.
    fn unprotected() -> Self {
        Self::new(|handler| Messages::raw().unprotected(handler))
    }

    /// Creates a handler with the message id as the key.
    fn keyed() -> Self {
        Self::new(|handler| Messages::raw().keyed(KeyFrom::message_id()).run(handler))
    }

    fn new(with: impl FnOnce(Handler) -> MessageHandler) -> Self {
        let begun = Arc::new(OnceLock::new());
        let noted = begun.clone();
        let handler: Handler = Box::new(move |_| {
            noted.get_or_init(Begun::now);
            std::future::ready(HandlerResult::Done)
        });
        Self { handler: with(handler), begun }
    }

    async fn consume(self, source: impl Source, executor: &Executor, messages: u64) -> Consumed {
        let consumer = Consumer::builder(source, "orders", executor).concurrency(PREFETCH).prefetch(PREFETCH);
        let consumer = consumer.build(self.handler).unwrap();
        let (counters, begun) = (consumer.counters(), self.begun);
        let mut consumed = None;
        let counts = consumer.run(async { consumed = Some(all(&counters, &begun, messages).await) }).await.unwrap();
        assert_eq!((counts.acked, counts.received), (messages, messages), "{counts:?}");
        consumed.unwrap()
    }
}

async fn all(counters: &ConsumerCounters, begun: &OnceLock<Begun>, messages: u64) -> Consumed {
    while counters.counts().acked < messages {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    begun.get().unwrap().ended()
}
