//! The store against its floor: what it writes and reads, by hand, prepared, on one connection that tasks take in
//! turn. Rounds of both alternate, and the figure is the median of their ratios: 1 is as fast as the floor, 2 twice.
//!
//! ```text
//! cargo bench -p idempotent-sqlx --bench floor [-- fresh|duplicate|normal|full …]
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use idempotent_core::{
    Auto, Call, Claim, ClaimRequest, Completion, Discard, Executor, Handler, Held, Identity, Key, OnExpiry, OwnerToken,
    Rejection, Scene, Settled, Store,
};
use idempotent_sqlx::{SqliteStore, Synchronous};
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use tokio::sync::Mutex;

/// How long a round of the floor is to take.
const ROUND: Duration = Duration::from_millis(50);
const ROUNDS: usize = 60;

const INSERT: &str = "INSERT INTO idempotent_record VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
const UPDATE: &str = "UPDATE idempotent_record SET state=?, value=?, expires_at=?, taken_over=?, display=?, updated_at=? \
                      WHERE id=?";
const SELECT: &str = "SELECT * FROM idempotent_record WHERE id=?";

/// A number that no other call of this run has.
static NEXT: AtomicU64 = AtomicU64::new(0);

#[derive(Clone)]
enum Side {
    Floor(Arc<Mutex<SqliteConnection>>),
    Store(SqliteStore),
    Executor(Executor),
}

impl Side {
    async fn fresh(&self) {
        let part = NEXT.fetch_add(1, Ordering::Relaxed);
        match self {
            Self::Floor(connection) => {
                let key = key(part);
                insert(connection, &key).await;
                let mut connection = connection.lock().await;
                let update = sqlx::query(UPDATE).bind(2_i64).bind(None::<Box<[u8]>>).bind(3_000_000_i64);
                let update = update.bind(None::<i64>).bind(None::<String>).bind(2_000_000_i64).bind(id(&key));
                assert_eq!(update.execute(&mut *connection).await.unwrap().rows_affected(), 1);
            }
            Self::Store(store) => {
                let request = request(part);
                let claim = store.claim(&request).await.unwrap();
                assert!(matches!(claim, Claim::Acquired(_)));
                assert_eq!(complete(store, request).await, Settled::Done);
            }
            Self::Executor(executor) => assert!(run(executor, part).await.is_ok()),
        }
    }

    async fn duplicate(&self, part: u64) {
        match self {
            Self::Floor(connection) => {
                let mut connection = connection.lock().await;
                let select = sqlx::query(SELECT).bind(id(&key(part)));
                assert!(select.fetch_optional(&mut *connection).await.unwrap().is_some());
            }
            Self::Store(store) => assert!(matches!(store.claim(&request(part)).await.unwrap(), Claim::Consumed(_))),
            Self::Executor(executor) => assert!(run(executor, part).await.is_ok()),
        }
    }

    /// Makes the duplicates' keys consumed.
    async fn consume(&self, count: u64) {
        for part in 0..count {
            match self {
                Self::Floor(connection) => insert(connection, &key(part)).await,
                Self::Store(store) => {
                    let request = request(part);
                    store.claim(&request).await.unwrap();
                    complete(store, request).await;
                }
                Self::Executor(executor) => run(executor, part).await.unwrap(),
            }
        }
    }
}

fn identity(part: u64) -> Identity {
    // As spread over the table as hashes are, and as long as a message's id.
    Identity::new(Scene::Mq, "orders", &format!("{part:036}"))
}

fn key(part: u64) -> Key {
    identity(part).key("idempotent").unwrap()
}

fn id(key: &Key) -> Box<[u8]> {
    Box::new(key.hash().to_be_bytes())
}

async fn insert(connection: &Mutex<SqliteConnection>, key: &Key) {
    let mut connection = connection.lock().await;
    let insert = sqlx::query(INSERT).bind(id(key)).bind(1_i64).bind(key.name().to_owned()).bind(1_i64);
    let insert = insert.bind(id(key)).bind(1_750_000_000_000_000_i64).bind(1_i64).bind(1_750_000_000_000_000_i64);
    let insert = insert.bind(None::<i64>).bind(None::<Box<[u8]>>).bind(1_750_000_000_000_000_i64);
    let insert = insert.bind(1_750_000_000_000_000_i64).bind(1_750_000_000_000_000_i64).bind(None::<Box<[u8]>>);
    let insert = insert.bind(None::<String>).bind(None::<String>);
    insert.execute(&mut *connection).await.unwrap();
}

fn request(part: u64) -> ClaimRequest {
    ClaimRequest {
        key: key(part),
        owner: OwnerToken(u128::from(part) + (1 << 100)),
        lease: Duration::from_secs(30),
        fingerprint: None,
        max_attempts: 5,
        on_expiry: OnExpiry::Takeover,
        memory: Duration::from_secs(3_600),
        display: None,
    }
}

async fn complete(store: &SqliteStore, request: ClaimRequest) -> Settled {
    let held = Held::unanswered(request.key, request.owner);
    store.complete(&held, &Completion { value: None, retain: Duration::from_secs(3_600) }).await.unwrap()
}

async fn run(executor: &Executor, part: u64) -> Result<(), Rejection> {
    let handler = Handler::<Auto, Discard, _, _>::new(|| async { Ok::<_, Rejection>(()) });
    executor.run(Call::new(identity(part)), handler).await
}

/// Runs `total` calls in `tasks` tasks.
async fn round<F: Future<Output = ()> + Send>(
    tasks: usize,
    total: usize,
    call: impl Fn() -> F + Clone + Send + 'static,
) -> Duration {
    let left = Arc::new(AtomicUsize::new(total));
    let start = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let (left, call) = (left.clone(), call.clone());
            tokio::spawn(async move {
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                    call().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    start.elapsed()
}

async fn timed(side: &Side, duplicate: bool, tasks: usize, total: usize) -> Duration {
    const KEYS: u64 = 1_000;
    let side = side.clone();
    if duplicate {
        round(tasks, total, move || {
            let side = side.clone();
            async move { side.duplicate(NEXT.fetch_add(1, Ordering::Relaxed) * 7_919 % KEYS).await }
        })
        .await
    } else {
        round(tasks, total, move || {
            let side = side.clone();
            async move { side.fresh().await }
        })
        .await
    }
}

async fn open(folder: &Path, synchronous: Synchronous) -> [Side; 3] {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let store = async |name| SqliteStore::builder(path(name)).synchronous(synchronous).open().await.unwrap();
    drop(store("floor.db").await);
    let pragma = if synchronous == Synchronous::Full { SqliteSynchronous::Full } else { SqliteSynchronous::Normal };
    let options =
        SqliteConnectOptions::new().filename(path("floor.db")).synchronous(pragma).disable_statement_logging();
    let floor = Side::Floor(Arc::new(Mutex::new(options.connect().await.unwrap())));
    let sides =
        [floor, Side::Store(store("store.db").await), Side::Executor(Executor::new(store("executor.db").await))];
    NEXT.fetch_max(1_000, Ordering::Relaxed);
    for side in &sides {
        side.consume(1_000).await;
    }
    sides
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn measure(sides: &[Side; 3], duplicate: bool, tasks: usize, label: &str) {
    let mut total = 64.max(tasks);
    while timed(&sides[0], duplicate, tasks, total).await < ROUND / 2 {
        total *= 2;
    }
    let (mut ratios, mut cost) = ([const { Vec::new() }; 2], [const { Vec::new() }; 3]);
    for _ in 0..ROUNDS {
        let mut took = [0.0; 3];
        for (side, took) in sides.iter().zip(&mut took) {
            *took = timed(side, duplicate, tasks, total).await.as_secs_f64();
        }
        (0..2).for_each(|side| ratios[side].push(took[0] / took[side + 1]));
        (0..3).for_each(|side| cost[side].push(took[side] * 1e6 / total as f64));
    }
    let ([store, executor], [floor, a, b]) = (ratios.map(median), cost.map(median));
    println!("{label:30} {store:5.2} {executor:8.2}   ({floor:.1}, {a:.1}, {b:.1} µs)");
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |label: &str| words.iter().all(|word| label.contains(word.as_str()));
    // `cargo test --benches` runs this too.
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    println!("rate / rate of the floor       store executor   (median µs per call: floor, store, executor)");
    for (name, synchronous) in [("normal", Synchronous::Normal), ("full", Synchronous::Full)] {
        for (kind, duplicate) in [("fresh", false), ("duplicate", true)] {
            let folder = tempfile::tempdir().unwrap();
            let sides = open(folder.path(), synchronous).await;
            for tasks in [1, 64] {
                let label = format!("{kind}, c={tasks}, {name}");
                if wanted(&label) {
                    measure(&sides, duplicate, tasks, &label).await;
                }
            }
        }
    }
}
