//! A timing wheel over SQLite: precise to the ms, with one query for many messages.
use std::time::{Duration, Instant};

use idempotent_mq::{Delay, Received, Settlement, Source};
use idempotent_sqlx::{DelayTable, DelayTableSource, ScheduledTask};
use sqlx::Sqlite;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};

const WINDOW: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);

async fn open(folder: &tempfile::TempDir) -> DelayTable<Sqlite> {
    let options = SqliteConnectOptions::new().filename(folder.path().join("work.db")).create_if_missing(true);
    let options = options.journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().max_connections(4).connect_with(options).await.unwrap();
    DelayTable::builder(pool).create(true).poll(Duration::from_secs(3_600)).open().await.unwrap()
}

/// Takes so many, acknowledges them, and says when each came.
async fn come(source: &mut DelayTableSource<Sqlite>, count: usize) -> Vec<(String, Instant)> {
    let settler = source.settler();
    let mut came = Vec::new();
    while came.len() < count {
        let received = tokio::time::timeout(MINUTE, source.receive(100)).await.expect("nothing came").unwrap();
        let Received::Deliveries(taken) = received else { panic!("{received:?}") };
        for (delivery, tag) in taken {
            settler.settle(&delivery, &tag, &Settlement::Ack).await.unwrap();
            came.push((delivery.id.unwrap(), Instant::now()));
        }
    }
    came
}

#[tokio::test]
async fn on_the_wheel_a_window_is_one_look_and_nothing_comes_early() {
    const TIMES: u64 = 40;
    let folder = tempfile::tempdir().unwrap();
    let table = open(&folder).await;
    let mut source = table.source().on_wheel(WINDOW);
    // Before it begins, and while it waits.
    let mut due = Vec::new();
    for number in 0..TIMES {
        let after = Duration::from_millis(300 + number * 10);
        let before = Instant::now();
        table.put(&ScheduledTask::after(format!("{number:02}"), after, "")).await.unwrap();
        due.push(before + after);
    }
    let asked = table.__asked();
    let came = come(&mut source, due.len()).await;
    let ids: Vec<_> = came.iter().map(|(id, _)| id.clone()).collect();
    assert!(ids.is_sorted(), "{ids:?}");
    assert!(came.iter().zip(&due).all(|((_, came), due)| came >= due), "something came early");
    // One to take and one to acknowledge each at most, and looks: one for a window, and one where a timer was ahead of the
    // database's clock. Without a wheel there is one for each time that comes.
    let asked = table.__asked() - asked;
    assert!(asked <= 2 * TIMES + TIMES / 2, "{asked} statements for {TIMES} times");
    // What is scheduled while it waits goes onto the wheel by itself.
    let (taken, ()) = tokio::join!(come(&mut source, 1), async {
        tokio::task::yield_now().await;
        table.put(&ScheduledTask::after("new", Duration::from_millis(50), "")).await.unwrap();
    });
    assert_eq!(taken[0].0, "new");
    // And what is called off does not come.
    table.put(&ScheduledTask::after("off", Duration::from_millis(100), "")).await.unwrap();
    table.cancel("off").await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(300), source.receive(9)).await.is_err());
}

#[tokio::test]
async fn the_wheel_survives_a_restart_and_what_was_due_meanwhile_comes_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    {
        let table = open(&folder).await;
        let mut source = table.source().on_wheel(WINDOW);
        // Long enough for a loaded machine to put both before the first one is due.
        table.put(&ScheduledTask::after("due meanwhile", WINDOW - Duration::from_secs(1), "")).await.unwrap();
        table.put(&ScheduledTask::after("due later", WINDOW, "")).await.unwrap();
        // It is on the wheel, and goes with the process.
        assert!(tokio::time::timeout(Duration::from_millis(20), source.receive(9)).await.is_err());
    }
    // The window passes for the first one.
    let earlier = sqlx::query("UPDATE idempotent_delay SET due_at=due_at-? WHERE seq=1");
    let earlier = earlier.bind(i64::try_from(WINDOW.as_micros()).unwrap());
    let moved = earlier.execute(&pool(&folder).await).await.unwrap();
    assert_eq!(moved.rows_affected(), 1);
    let table = open(&folder).await;
    let came = come(&mut table.source().on_wheel(WINDOW), 2).await;
    assert_eq!(came.iter().map(|(id, _)| &**id).collect::<Vec<_>>(), ["due meanwhile", "due later"]);
}

#[tokio::test]
async fn messages_beyond_the_window_and_of_transactions_arrive_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let table = open(&folder).await;
    let window = Duration::from_millis(200);
    let mut source = table.source().on_wheel(window);
    table.put(&ScheduledTask::after("beyond", window * 3, "")).await.unwrap();
    let came = come(&mut source, 1).await;
    assert_eq!(came[0].0, "beyond");
    let mut tx = pool(&folder).await.begin().await.unwrap();
    table.put_in(&mut tx, &ScheduledTask::after("committed", Duration::from_millis(30), "")).await.unwrap();
    let (came, ()) = tokio::join!(come(&mut source, 1), async { tx.commit().await.unwrap() });
    assert_eq!(came[0].0, "committed");
}

async fn pool(folder: &tempfile::TempDir) -> sqlx::SqlitePool {
    let options = SqliteConnectOptions::new().filename(folder.path().join("work.db"));
    SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap()
}
