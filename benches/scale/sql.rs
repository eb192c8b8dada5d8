//! The bytes, the write-ahead log and the processor time of a record in PostgreSQL.
use std::sync::Arc;
use std::time::Duration;

use idempotent::{Executor, PostgresStore, Store};
use idempotent_harness::servers::PostgresServer;

use crate::ours;
use crate::report::{Goal, Pair, Report, drive};

pub const STORE: &str = "postgres";
const HEAP: &str = "heap of a consumed record";
const INDEX: &str = "index of a consumed record";
const CYCLE: &str = "cycle, CPU of the server";
const BATCHED: &str = "cycle in a batch of 64, CPU of the server";
const WAL: &str = "WAL of a cycle";
const FIRST_WAL: &str = "WAL of a cycle after a checkpoint";
const PURGED: &str = "WAL of a purged record";
const FIRST_PURGED: &str = "WAL of a purged record after a checkpoint";
const DIVIDED: &str = "cycle in 16 partitions, CPU of the server, to one table";
const DIVIDED_BATCH: &str = "cycle in a batch of 64 in 16 partitions, CPU of the server, to one table";
/// The callers, with a connection each.
const TASKS: u64 = 16;
const BATCH: u64 = 64;
pub const TABLE: &str = "records";

pub async fn all(report: &Report) {
    let cases = [HEAP, INDEX, CYCLE, BATCHED, WAL, FIRST_WAL, PURGED, FIRST_PURGED, DIVIDED, DIVIDED_BATCH];
    if !cases.iter().any(|case| report.wants(STORE, case)) {
        return;
    }
    let server = PostgresServer::start_durable();
    let builder = PostgresStore::builder(server.url()).connections(TASKS as u32).table(TABLE).create(true);
    let store = builder.connect().await.unwrap();
    let bench = Bench { server: &server, executor: Executor::new(store.clone()) };
    let (filled, cycles) = if report.is_tried() { (256, 128) } else { (200_000, 20_000) };
    let value = |case, unit, value| report.value((STORE, case, None), unit, value, Goal::None);

    bench.batches(0, filled).await;
    for (case, size) in [(HEAP, "pg_table_size"), (INDEX, "pg_indexes_size")] {
        value(case, "B", bench.number(&format!("SELECT {size}('{TABLE}')::float8 / {filled}")));
    }
    let (micros, wal) = bench.measure(cycles, bench.singles(filled, cycles)).await;
    value(CYCLE, "us", micros);
    value(WAL, "B", wal);
    let (micros, _) = bench.measure(cycles, bench.batches(2 * filled, cycles)).await;
    value(BATCHED, "us", micros);
    bench.server.psql("postgres", "CHECKPOINT");
    let (_, wal) = bench.measure(cycles, bench.singles(4 * filled, cycles)).await;
    value(FIRST_WAL, "B", wal);
    value(PURGED, "B", bench.purged(&store, cycles, false).await);
    value(FIRST_PURGED, "B", bench.purged(&store, cycles, true).await);
    divided(report, &bench, filled, cycles).await;
}

/// Compares the processor time of the server for a table with partitions and for one without, in turns.
async fn divided(report: &Report, bench: &Bench<'_>, filled: u64, cycles: u64) {
    let builder = PostgresStore::builder(bench.server.url()).connections(TASKS as u32).table("divided").create(true);
    let store = builder.partitions(16).connect().await.unwrap();
    let divided = Bench { server: bench.server, executor: Executor::new(store) };
    divided.batches(0, filled).await;
    let rounds = if report.is_tried() { 1 } else { 3 };
    for (case, is_batch) in [(DIVIDED, false), (DIVIDED_BATCH, true)] {
        let mut pairs = Vec::new();
        for round in 0..rounds {
            let from = (8 + 8 * round + 4 * u64::from(is_batch)) * filled;
            let value = divided.cycles(from, cycles, is_batch).await;
            pairs.push((value, bench.cycles(from, cycles, is_batch).await));
        }
        report.pair((STORE, case, None), "us", Pair::medians(&pairs), Goal::None);
    }
}

struct Bench<'a> {
    server: &'a PostgresServer,
    executor: Executor,
}

impl Bench<'_> {
    /// Returns the processor time of the server in µs for each new message.
    async fn cycles(&self, from: u64, messages: u64, is_batch: bool) -> f64 {
        let (micros, _) = match is_batch {
            true => self.measure(messages, self.batches(from, messages)).await,
            false => self.measure(messages, self.singles(from, messages)).await,
        };
        micros
    }

    /// Runs new messages one by one.
    async fn singles(&self, from: u64, messages: u64) {
        let executor = self.executor.clone();
        drive(TASKS, from, messages, &Arc::new(move |number| ours::run(executor.clone(), number))).await;
    }

    /// Runs new messages in batches.
    async fn batches(&self, from: u64, messages: u64) {
        let executor = self.executor.clone();
        let run = Arc::new(move |number: u64| {
            let first = from + number * BATCH;
            ours::run_batch(executor.clone(), first..(first + BATCH).min(from + messages))
        });
        drive(TASKS, 0, messages.div_ceil(BATCH), &run).await;
    }

    /// Returns the processor time of the server in µs, and the bytes of its log, for each message of some work.
    async fn measure(&self, messages: u64, work: impl Future<Output = ()>) -> (f64, f64) {
        let (log, before) = (self.position(), spent(self.server.pid()));
        work.await;
        let time = spent(self.server.pid()).saturating_sub(before);
        (time.as_secs_f64() * 1e6 / messages as f64, self.logged_since(&log) / messages as f64)
    }

    /// Returns the bytes of the log for each record that a purge removes, with the `VACUUM` after it. Right after a checkpoint,
    /// these include an image of each page. Otherwise, the insertion of the records has logged the pages already.
    async fn purged(&self, store: &PostgresStore, records: u64, after_checkpoint: bool) -> f64 {
        // Other records leave nothing to do for the measured `VACUUM`.
        self.server.psql("postgres", &format!("VACUUM {TABLE}"));
        self.server.psql("postgres", "CHECKPOINT");
        let columns = "1,'a',2,decode(md5(i::text),'hex'),1,1,0,NULL,NULL,1,1,1,NULL,NULL,NULL";
        let fill = format!(
            "INSERT INTO {TABLE} SELECT decode(md5('expired' || i),'hex'),{columns} FROM generate_series(1,{records}) AS i"
        );
        self.server.psql("postgres", &fill);
        if after_checkpoint {
            self.server.psql("postgres", "CHECKPOINT");
        }
        let (log, mut removed) = (self.position(), 0);
        while removed < records {
            let step = store.capabilities().purge.unwrap().purge(10_000).await.unwrap();
            assert!(step > 0, "{removed} of {records} expired records were removed");
            removed += step as u64;
        }
        self.server.psql("postgres", &format!("VACUUM {TABLE}"));
        self.logged_since(&log) / records as f64
    }

    /// Returns the end of the write-ahead log.
    fn position(&self) -> String {
        self.server.psql("postgres", "SELECT pg_current_wal_insert_lsn()")
    }

    fn logged_since(&self, position: &str) -> f64 {
        self.number(&format!("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '{position}')"))
    }

    fn number(&self, query: &str) -> f64 {
        self.server.psql("postgres", query).parse().unwrap()
    }
}

/// Returns the processor time of the server's processes that are running.
fn spent(server: u32) -> Duration {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let nanos = |folder: std::path::PathBuf| {
        let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
        // The name of the program is in parentheses, and may contain any character.
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()?;
        let times = std::fs::read_to_string(folder.join("schedstat")).ok()?;
        (parent == server).then_some(())?;
        times.split(' ').next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(processes.filter_map(nanos).sum())
}
