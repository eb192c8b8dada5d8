//! Places an order in six steps over three systems, and kills the worker once in each step: stock is locked exactly once.
//!
//! Run the example with `cargo run -p idempotent-examples --example order_steps`. For each step it starts a worker process that dies
//! after the effect and before the record of the step, which is the worst moment. The next worker replays the recorded
//! steps, and repeats the step without a record under the same key, which the service recognises. Then an order is
//! refused for good, and its stock is released.
#![allow(clippy::print_stdout, reason = "an example that asserts what it shows")]
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use idempotent::steps::step_key;
use idempotent::{Disposition, Executor, Rejection, SqliteStore, idempotent, step};
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;

#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error(transparent)]
    Idempotent(#[from] Rejection),
    #[error("refused for good")]
    Refused,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

struct Shop {
    executor: Executor,
    /// Stock and payment, two services that recognise the key of a repeated request.
    services: SqlitePool,
    orders: SqlitePool,
    dies_in: String,
}

impl Shop {
    /// Kills the process after the effect of a step, before its record.
    fn may_die(&self, step: &str) {
        if self.dies_in == step {
            std::process::abort();
        }
    }

    /// Sends the request of a step.
    async fn ask(&self, step: &str, what: &str, order: &str, key: &str) -> Result<(), OrderError> {
        ask(&self.services, what, order, key).await?;
        self.may_die(step);
        Ok(())
    }
}

/// Sends a request to a service. A table represents the remote side: it stores each request with its key.
async fn ask(services: &SqlitePool, what: &str, order: &str, key: &str) -> Result<(), OrderError> {
    if (what, order) == ("charge", "refused") {
        return Err(OrderError::Refused);
    }
    let request = sqlx::query("INSERT INTO requests VALUES (?, ?)").bind(format!("{what}/{order}"));
    request.bind(key.to_owned()).execute(services).await?;
    Ok(())
}

// Without steps, a second run after a failure in the third step would lock stock twice.
#[idempotent(key = order, with = shop.executor, scope = "order", lease = "1s",
             permanent = |error| matches!(error, OrderError::Refused))]
async fn place_order(shop: &Shop, order: &str) -> Result<u64, OrderError> {
    let keys = (step_key("lock_stock")?, step_key("unlock_stock")?, step_key("charge")?);
    step("check_stock", || shop.ask("check_stock", "check", order, "")).await?;

    let (services, unlock, of) = (shop.services.clone(), keys.1, order.to_owned());
    step("lock_stock", || shop.ask("lock_stock", "lock", order, &keys.0))
        .compensate(move || async move { ask(&services, "unlock", &of, &unlock).await })
        .await?;

    // The primary key of the table recognises a repeated step.
    let number: u64 = step("insert_order", || async {
        let insert = "INSERT INTO orders VALUES (?1, 'new') ON CONFLICT (id) DO UPDATE SET id = id RETURNING rowid";
        let number: i64 = sqlx::query_scalar(insert).bind(order).fetch_one(&shop.orders).await?;
        shop.may_die("insert_order");
        Ok::<_, OrderError>(number.unsigned_abs())
    })
    .await?;

    step("charge", || shop.ask("charge", "charge", order, &keys.2)).await?;

    for (name, status) in [("set_status", "paid"), ("close_order", "closed")] {
        step(name, || async {
            let update = sqlx::query("UPDATE orders SET status = ?2 WHERE id = ?1").bind(order).bind(status);
            update.execute(&shop.orders).await?;
            shop.may_die(name);
            Ok::<_, OrderError>(())
        })
        .await?;
    }
    Ok(number)
}

/// Handles one delivery, and retries as long as the disposition says so.
async fn work(folder: &Path, order: &str, dies_in: &str) -> anyhow::Result<()> {
    let store = SqliteStore::open(folder.join("records.db").display().to_string()).await?;
    let orders = database(folder, "orders", "orders (id TEXT PRIMARY KEY, status TEXT)").await?;
    let services = database(folder, "services", "requests (what TEXT, key TEXT)").await?;
    let shop = Shop { executor: Executor::new(store), services, orders, dies_in: dies_in.into() };
    while let (_, Disposition::Retry { after }) = Disposition::of(place_order(&shop, order)).await {
        tokio::time::sleep(after.min(Duration::from_millis(200))).await;
    }
    Ok(())
}

async fn database(folder: &Path, name: &'static str, table: &'static str) -> Result<SqlitePool, sqlx::Error> {
    let options = SqliteConnectOptions::new().filename(folder.join(format!("{name}.db"))).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await?;
    sqlx::query(sqlx::AssertSqlSafe(format!("CREATE TABLE IF NOT EXISTS {table}"))).execute(&pool).await?;
    Ok(pool)
}

/// Runs a worker process. Returns whether the process ended well.
async fn worker(folder: &Path, order: &str, dies_in: &str) -> std::io::Result<bool> {
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command.arg(folder).args([order, dies_in]).stderr(std::process::Stdio::null());
    Ok(command.status().await?.success())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if let [folder, order, dies_in] = &std::env::args().skip(1).collect::<Vec<_>>()[..] {
        return work(Path::new(folder), order, dies_in).await;
    }
    let folder = tempfile::tempdir()?;
    for dies_in in ["check_stock", "lock_stock", "insert_order", "charge", "set_status", "close_order"] {
        let has_died = !worker(folder.path(), "o-1", dies_in).await?;
        println!("a worker died in {dies_in}: {has_died}");
        ensure!(has_died, "the worker survived {dies_in}");
    }
    for order in ["o-1", "o-1", "refused"] {
        ensure!(worker(folder.path(), order, "nothing").await?, "the worker of {order} failed");
    }
    let services = database(folder.path(), "services", "requests (what TEXT, key TEXT)").await?;
    let counts = "SELECT what, COUNT(*), COUNT(DISTINCT NULLIF(key, '')) FROM requests GROUP BY what";
    let counts: Vec<(String, u32, u32)> = sqlx::query_as(counts).fetch_all(&services).await?;
    for (what, requests, effects) in &counts {
        println!("{what}: {requests} requests, {effects} effects");
    }
    for expected in [("lock/o-1", 2, 1), ("charge/o-1", 2, 1), ("lock/refused", 1, 1), ("unlock/refused", 1, 1)] {
        let is_counted = counts.iter().any(|(what, requests, effects)| (&**what, *requests, *effects) == expected);
        ensure!(is_counted, "expected {expected:?}");
    }
    println!("stock of o-1 was locked 1 time");
    Ok(())
}
