//! Whole runs over the SQLite store, compared with the two prepared statements that they need, on one connection that
//! tasks use in turn.
use std::path::Path;
use std::sync::Arc;

use idempotent::Executor;
use idempotent_sqlx::{SqliteStore, Synchronous};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{ConnectOptions, query};
use tokio::sync::Mutex;

use crate::floors::hash;
use crate::memory::run;
use crate::report::{Goal, Report, drive};

/// The modes. The default waits for the disk on every commit.
const MODES: [(&str, Synchronous, SqliteSynchronous, u64); 2] = [
    ("", Synchronous::Full, SqliteSynchronous::Full, 256),
    (", synchronous = normal", Synchronous::Normal, SqliteSynchronous::Normal, 1_024),
];

pub async fn all(report: &Report) {
    for (suffix, synchronous, by_hand, operations) in MODES {
        let (fresh, duplicate) = (format!("fresh{suffix}"), format!("duplicate{suffix}"));
        if !report.wants("sqlite", &fresh) && !report.wants("sqlite", &duplicate) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::builder(place(folder.path(), "ours.db")).synchronous(synchronous).open().await;
        let executor = Executor::new(store.unwrap());
        let bare = Arc::new(Bare::open(folder.path(), by_hand).await);
        let ours = {
            let executor = executor.clone();
            move |number| run(executor.clone(), number)
        };
        let write = {
            let bare = bare.clone();
            move |number| {
                let bare = bare.clone();
                async move { bare.insert_and_update(number).await }
            }
        };
        let read = move |number| {
            let bare = bare.clone();
            async move { bare.look_up(number).await }
        };
        let rounds = |tasks| report.rounds(21, operations, tasks);
        // As many keys as there are duplicates, with a margin for the rounds.
        let mut from = rounds(1).rounds * rounds(1).operations;
        drive(64, 0, from, &Arc::new(ours.clone())).await;
        drive(64, 0, from, &Arc::new(write.clone())).await;
        for tasks in [1, 64] {
            let at_once = Some(usize::try_from(tasks).unwrap());
            let pair = rounds(tasks).nanos(from, ours.clone(), write.clone()).await;
            report.pair(("sqlite", &fresh, at_once), "runs/s", pair.rates(), Goal::AtLeast(0.9));
            from += rounds(tasks).rounds * rounds(tasks).operations;
            let pair = rounds(tasks).nanos(0, ours.clone(), read.clone()).await;
            report.pair(("sqlite", &duplicate, at_once), "runs/s", pair.rates(), Goal::AtLeast(0.9));
        }
        assert_eq!(executor.counts().of("ran"), from);
    }
}

fn place(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

/// The table of the store, used with minimal statements.
struct Bare(Mutex<SqliteConnection>);

const INSERT: &str = "INSERT INTO idempotent_record VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
const UPDATE: &str = "UPDATE idempotent_record SET state=?, value=?, expires_at=?, taken_over=?, display=?, updated_at=? \
                      WHERE id=?";
const SELECT: &str = "SELECT * FROM idempotent_record WHERE id=?";
const NOW: i64 = 1_750_000_000_000_000;

impl Bare {
    async fn open(folder: &Path, synchronous: SqliteSynchronous) -> Self {
        let path = place(folder, "bare.db");
        // The store creates the table.
        drop(SqliteStore::open(&*path).await.unwrap());
        let options = SqliteConnectOptions::new().filename(path).synchronous(synchronous).disable_statement_logging();
        Self(Mutex::new(options.connect().await.unwrap()))
    }

    async fn insert_and_update(&self, number: u64) {
        let id = hash(number).to_be_bytes();
        let insert = query(INSERT).bind(&id[..]).bind(1_i64).bind("idempotent:mq:bench").bind(1_i64).bind(&id[..]);
        let insert = insert.bind(NOW).bind(1_i64).bind(NOW).bind(None::<i64>).bind(None::<Vec<u8>>).bind(NOW);
        let insert = insert.bind(NOW).bind(NOW).bind(None::<Vec<u8>>).bind(None::<String>).bind(None::<String>);
        insert.execute(&mut *self.0.lock().await).await.unwrap();
        let update = query(UPDATE).bind(2_i64).bind(None::<Vec<u8>>).bind(NOW).bind(None::<i64>).bind(None::<String>);
        let updated = update.bind(NOW).bind(&id[..]).execute(&mut *self.0.lock().await).await.unwrap();
        assert_eq!(updated.rows_affected(), 1);
    }

    async fn look_up(&self, number: u64) {
        let id = hash(number).to_be_bytes();
        let found = query(SELECT).bind(&id[..]).fetch_optional(&mut *self.0.lock().await).await.unwrap();
        assert!(found.is_some());
    }
}
