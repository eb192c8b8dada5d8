//! The lateness of each technique for delayed work, on real servers, for the table of the guide `docs::delay`.
//!
//! ```text
//! cargo test -p idempotent-tests --test examples lateness -- --ignored --nocapture
//! ```
//!
//! The measurement asserts nothing about speed, only that no task is early and that a lost event stays lost. Two tests, which are not
//! ignored, show this for a scan and for keyspace events without a measurement.
use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use idempotent::Timestamp;
use idempotent::delay::{DelayTable, ScheduledTask};
use idempotent::delay_queue::{DelayMessage, DelayQueue, DelaySource};
use idempotent::mq::{OutboundMessage, Publish, Received, Retry, Settlement, Source};
use idempotent::rabbitmq::{Queue, RabbitPublisher, RabbitSource};
use idempotent_harness::servers::{PostgresServer, RabbitServer, RedisServer};
use redis::aio::{MultiplexedConnection, PubSub};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};

/// The number of tasks, which are due from 3 s after the last scheduling, about 20 ms apart.
const TIMES: u32 = 100;
const MINUTE: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_secs(1);

fn after(number: u32) -> Duration {
    Duration::from_secs(3) + Duration::from_micros(19_937) * number
}

/// The due time of each task from before its scheduling, and its delivery time.
#[derive(Default)]
struct Measured {
    due: HashMap<String, Instant>,
    late: Vec<Duration>,
}

impl Measured {
    fn schedules(&mut self, id: &str, after: Duration) {
        self.due.insert(id.to_owned(), Instant::now() + after);
    }

    fn came(&mut self, id: &str) {
        let (now, due) = (Instant::now(), self.due.remove(id).expect("nobody scheduled it, or it came twice"));
        // Where the clock that decides is another one than ours.
        assert!(now + Duration::from_millis(2) >= due, "{:?} early", due - now);
        self.late.push(now.saturating_duration_since(due));
    }

    fn print(mut self, technique: &str) {
        assert!(self.due.is_empty(), "{} did not come", self.due.len());
        self.late.sort_unstable();
        let at = |percent: usize| self.late[(self.late.len() - 1) * percent / 100].as_secs_f64() * 1e3;
        println!("| {technique} | {:.1} | {:.1} | {:.1} |", at(50), at(99), at(100));
    }

    async fn all_of(&mut self, source: &mut impl Source) {
        let settler = source.settler();
        while !self.due.is_empty() {
            let received = tokio::time::timeout(MINUTE, source.receive(64)).await.expect("nothing came").unwrap();
            let Received::Deliveries(taken) = received else { panic!("revoked") };
            for (delivery, _) in &taken {
                self.came(delivery.id.as_deref().unwrap());
            }
            for (delivery, tag) in &taken {
                settler.settle(delivery, tag, &Settlement::Ack).await.unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures: cargo test -p idempotent-tests --test examples lateness -- --ignored --nocapture"]
async fn lateness_of_each_technique() {
    println!("| technique | median ms late | p99 | most |");
    println!("|---|---|---|---|");
    scan().await;
    rabbitmq().await;
    wheel().await;
    keyspace_events(0).await;
    keyspace_events(2_000).await;
    polling().await;
    delay_queue().await;
}

async fn sqlite(folder: &tempfile::TempDir) -> sqlx::SqlitePool {
    let options = SqliteConnectOptions::new().filename(folder.path().join("work.db")).create_if_missing(true);
    let options = options.journal_mode(SqliteJournalMode::Wal);
    SqlitePoolOptions::new().max_connections(4).connect_with(options).await.unwrap()
}

/// A table that a scan searches for due tasks.
async fn scanned(folder: &tempfile::TempDir) -> sqlx::SqlitePool {
    let pool = sqlite(folder).await;
    sqlx::raw_sql("CREATE TABLE work (id TEXT, due_at REAL)").execute(&pool).await.unwrap();
    pool
}

/// Takes the tasks that are due at a time, or at that of the database.
async fn due(pool: &sqlx::SqlitePool, at: Option<f64>) -> Vec<String> {
    let due = "DELETE FROM work WHERE due_at <= coalesce(?, unixepoch('now', 'subsec')) RETURNING id";
    sqlx::query_scalar(due).bind(at).fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn a_scan_finds_a_task_in_the_next_round_and_not_before_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let pool = scanned(&folder).await;
    let mut found = Vec::new();
    for round in 0..4_u32 {
        found.push(due(&pool, Some(round.into())).await);
        if round == 0 {
            // Placed just after a round, with a timeout of one round, the first order waits for almost two.
            for (id, due_at) in [("just after round 1", 1.001), ("at round 3", 3.0), ("just before round 3", 2.999)] {
                let insert = sqlx::query("INSERT INTO work VALUES (?, ?)").bind(id).bind(due_at);
                insert.execute(&pool).await.unwrap();
            }
        }
    }
    found[3].sort_unstable();
    assert_eq!(found, [&[][..], &[], &["just after round 1"], &["at round 3", "just before round 3"]]);
}

async fn scan() {
    let folder = tempfile::tempdir().unwrap();
    let pool = scanned(&folder).await;
    let mut measured = Measured::default();
    for number in 0..TIMES {
        let (id, after) = (number.to_string(), after(number));
        measured.schedules(&id, after);
        let insert = sqlx::query("INSERT INTO work VALUES (?, unixepoch('now', 'subsec') + ?)");
        insert.bind(id).bind(after.as_secs_f64() + 0.001).execute(&pool).await.unwrap();
    }
    let mut scans = tokio::time::interval(INTERVAL);
    while !measured.due.is_empty() {
        scans.tick().await;
        due(&pool, None).await.iter().for_each(|id| measured.came(id));
    }
    measured.print("(1) a scan every second");
}

async fn rabbitmq() {
    let server = RabbitServer::start();
    let mut source = RabbitSource::builder(server.url(), Queue::classic("work")).build().unwrap();
    source.declare().await.unwrap();
    let publisher = RabbitPublisher::builder(server.url()).build().unwrap();
    let sent: Vec<_> = (0..TIMES).map(|number| OutboundMessage::new("work", number.to_string(), "")).collect();
    assert!(Publish::publish(&publisher, &sent).await.iter().all(Result::is_ok));
    // Each delay needs a queue, since a message waits for earlier messages with a longer delay.
    let delay = Duration::from_secs(1);
    let settler = source.settler();
    let mut measured = Measured::default();
    while measured.due.len() < TIMES as usize {
        let Received::Deliveries(taken) = source.receive(64).await.unwrap() else { panic!("revoked") };
        for (delivery, tag) in taken {
            measured.schedules(delivery.id.as_deref().unwrap(), delay);
            let retry = Retry::after(delay, Timestamp(1));
            settler.settle(&delivery, &tag, &Settlement::Retry(retry)).await.unwrap();
        }
    }
    measured.all_of(&mut source).await;
    source.close().await;
    measured.print("(2) RabbitMQ, TTL and dead letter exchange, delays of 1 s");
}

async fn wheel() {
    let folder = tempfile::tempdir().unwrap();
    let table = DelayTable::builder(sqlite(&folder).await).create(true).open().await.unwrap();
    for wheel in [true, false] {
        let mut source = table.source();
        if wheel {
            source = source.on_wheel(Duration::from_secs(10));
        }
        let mut measured = Measured::default();
        for number in 0..TIMES {
            measured.schedules(&number.to_string(), after(number));
            table.put(&ScheduledTask::after(number.to_string(), after(number), "")).await.unwrap();
        }
        let asked = table.__asked();
        measured.all_of(&mut source).await;
        // Each is taken, alone or with others, and acknowledged.
        let asked = table.__asked() - asked;
        let what = if wheel { "(3) a timing wheel over SQLite" } else { "(5) SQLite, asleep until the next is due" };
        measured.print(&format!("{what} ({asked} statements for {TIMES} times)"));
    }
}

/// A Redis that tells its listeners of each key that expires.
struct Expiring {
    client: redis::Client,
    connection: MultiplexedConnection,
    _server: RedisServer,
}

impl Expiring {
    async fn start() -> Self {
        let server = RedisServer::start();
        server.command(&["CONFIG", "SET", "notify-keyspace-events", "Ex"]);
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        Self { client, connection, _server: server }
    }

    async fn listen(&self) -> PubSub {
        let mut listening = self.client.get_async_pubsub().await.unwrap();
        listening.subscribe("__keyevent@0__:expired").await.unwrap();
        listening
    }

    async fn set(&mut self, id: &str, after: Duration) {
        let mut set = redis::cmd("SET");
        set.arg(format!("work:{id}")).arg("").arg("PX").arg(u64::try_from(after.as_millis()).unwrap() + 1);
        set.query_async::<()>(&mut self.connection).await.unwrap();
    }

    /// Waits until only this number of keys is left.
    async fn left(&mut self, keys: u64) {
        let waiting =
            async { while redis::cmd("DBSIZE").query_async::<u64>(&mut self.connection).await.unwrap() != keys {} };
        tokio::time::timeout(5 * MINUTE, waiting).await.expect("the keys did not expire");
    }
}

/// The task of the next event.
async fn next(listening: &mut PubSub) -> String {
    let event = tokio::time::timeout(5 * MINUTE, listening.on_message().next()).await.expect("no event came").unwrap();
    let key: String = event.get_payload().unwrap();
    key.strip_prefix("work:").unwrap().to_owned()
}

#[tokio::test]
async fn an_event_without_a_listener_is_lost_and_a_delay_table_delivers_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let open = async || DelayTable::builder(sqlite(&folder).await).create(true).open().await.unwrap();
    let mut redis = Expiring::start().await;
    let mut listening = redis.listen().await;
    redis.set("listened to", Duration::ZERO).await;
    assert_eq!(next(&mut listening).await, "listened to");
    // The process ends, and its tasks fall due.
    let after = Duration::from_millis(50);
    open().await.put(&ScheduledTask::after("restart", after, "")).await.unwrap();
    drop(listening);
    redis.set("restart", after).await;
    redis.left(0).await;
    let mut listening = redis.listen().await;
    redis.set("after the restart", Duration::ZERO).await;
    assert_eq!(next(&mut listening).await, "after the restart", "the first event");
    let mut source = open().await.source();
    let received = tokio::time::timeout(MINUTE, source.receive(9)).await.expect("nothing came").unwrap();
    let Received::Deliveries(taken) = received else { panic!("revoked") };
    assert_eq!(taken.iter().map(|(delivery, _)| delivery.id.as_deref()).collect::<Vec<_>>(), [Some("restart")]);
}

async fn keyspace_events(others: u64) {
    let mut redis = Expiring::start().await;
    // Others of the server's users have keys that end some time, too.
    let mut pipe = redis::pipe();
    for number in 0..others {
        pipe.cmd("SET").arg(format!("other:{number}")).arg("").arg("EX").arg(3_600 + number).ignore();
    }
    if others > 0 {
        pipe.query_async::<()>(&mut redis.connection).await.unwrap();
    }
    let mut listening = redis.listen().await;
    let mut measured = Measured::default();
    for number in 0..TIMES {
        let id = number.to_string();
        measured.schedules(&id, after(number));
        redis.set(&id, after(number)).await;
    }
    while !measured.due.is_empty() {
        measured.came(&next(&mut listening).await);
    }
    measured.print(&format!("(4) Redis keyspace events, among {others} other keys that expire"));
    // While the application is down.
    drop(listening);
    for number in 0..TIMES {
        redis.set(&number.to_string(), Duration::from_millis(50)).await;
    }
    redis.left(others).await;
    let mut listening = redis.listen().await;
    let event = tokio::time::timeout(Duration::from_secs(2), listening.on_message().next()).await;
    assert!(event.is_err(), "an event that was told of nobody came all the same");
    println!("| (4) the same, due while the application is down | {TIMES} of {TIMES} never come | | |");
}

async fn polling() {
    let server = PostgresServer::start();
    let pool = sqlx::PgPool::connect(&server.url()).await.unwrap();
    let open = || DelayTable::builder(pool.clone()).create(true).poll(INTERVAL).open();
    let (table, elsewhere) = (open().await.unwrap(), open().await.unwrap());
    let mut source = table.source();
    let mut measured = Measured::default();
    for number in 0..TIMES {
        measured.schedules(&number.to_string(), after(number));
        elsewhere.put(&ScheduledTask::after(number.to_string(), after(number), "")).await.unwrap();
    }
    measured.all_of(&mut source).await;
    measured.print("(5) PostgreSQL, asleep until the next is due, scheduled long before by another process");
    let mut measured = Measured::default();
    let mut each = Measured::default();
    for number in 0..10 {
        let id = number.to_string();
        let scheduling = async {
            tokio::time::sleep(Duration::from_millis(333)).await;
            measured.schedules(&id, Duration::from_millis(10));
            elsewhere.put(&ScheduledTask::after(&*id, Duration::from_millis(10), "")).await.unwrap();
        };
        let coming = async {
            let Received::Deliveries(taken) = source.receive(9).await.unwrap() else { panic!("revoked") };
            let now = Instant::now();
            source.settler().settle(&taken[0].0, &taken[0].1, &Settlement::Ack).await.unwrap();
            now
        };
        let (came, ()) = tokio::join!(coming, scheduling);
        each.late.push(came.saturating_duration_since(measured.due[&id]));
    }
    each.print("(5) the same, due at once: found by polling every second");
}

async fn delay_queue() {
    let server = RedisServer::start();
    let queue = DelayQueue::connect(server.url(), "work").await.unwrap();
    let mut source = DelaySource::new(&queue);
    let mut measured = Measured::default();
    for number in 0..TIMES {
        measured.schedules(&number.to_string(), after(number));
        queue.send(&DelayMessage::after(after(number), "").id(number.to_string())).await.unwrap();
    }
    measured.all_of(&mut source).await;
    measured.print("the delay queue on Redis");
}
