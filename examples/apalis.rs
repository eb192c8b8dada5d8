//! A worker of apalis that charges the orders of a queue in Redis. Effect and record are one transaction (level L3).
//!
//! ```text
//! cargo build -p idempotent-examples --features apalis --example apalis
//! alias apalis='target/debug/examples/apalis redis://127.0.0.1:6379 postgres://app@localhost/shop'
//! apalis &                                                      # start a worker
//! apalis '{"number": 1, "cents": 500}'                          # charged
//! apalis '{"number": 1, "cents": 500}'                          # sent twice: done, and not charged
//! apalis '{"number": 2, "cents": 0}'                            # dead at once: no retry helps
//! apalis '"what?"'                                              # dead at once: not an order
//! apalis '{"number": 3, "cents": 500, "work_ms": 20000}'        # charged after 20 s
//! redis-cli SMEMBERS orders:dead                                # the ids of the dead tasks
//! redis-cli HGETALL orders:meta:ID
//! ```
//!
//! Start a second worker, and kill with -9 the one that charges order 3: the other one takes it over. SIGTERM lets the
//! running tasks finish. The guide on other runtimes says what apalis does after each outcome.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "an example prints its progress")]
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use apalis::prelude::{
    AbortError, BackendExt, BoxDynError, Data, RetryAfterError, TaskSink, WorkerBuilder, WorkerError,
};
use apalis_redis::{Config, RedisStorage};
use idempotent::{Disposition, Executor, PostgresStore, Rejection, idempotent};
use serde_json::Value;
use sqlx::{PgPool, Postgres, Transaction};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

#[derive(serde::Deserialize)]
struct Order {
    number: i64,
    cents: i64,
    /// The time that the charge takes.
    #[serde(default)]
    work_ms: u64,
}

#[derive(Debug, thiserror::Error)]
enum ChargeError {
    #[error(transparent)]
    Idempotent(#[from] Rejection),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("nothing to charge")]
    Nothing,
}

/// Charges an order, and returns the number of the receipt.
#[idempotent(scene = mq, scope = "charge", key = order.number, lease = "3s", transaction = leased(tx),
             permanent = |error| matches!(error, ChargeError::Nothing))]
async fn charge(order: &Order, tx: &mut Transaction<'_, Postgres>) -> Result<i64, ChargeError> {
    let Order { number, cents, .. } = *order;
    if cents == 0 {
        return Err(ChargeError::Nothing);
    }
    println!("order {number}: charging");
    sleep(Duration::from_millis(order.work_ms)).await;
    let insert = sqlx::query_scalar("INSERT INTO charges (number, cents) VALUES ($1, $2) RETURNING receipt");
    Ok(insert.bind(number).bind(cents).fetch_one(&mut **tx).await?)
}

/// The task of apalis. Its answer tells apalis what to do with the task.
async fn task(body: Value, executor: Data<Executor>) -> Result<Option<i64>, BoxDynError> {
    // The queue contains any JSON: apalis ends the worker if the body does not have the type of the argument.
    let order: Order = serde_json::from_value(body).map_err(AbortError::new)?;
    let number = order.number;
    let (answer, disposition) = executor.scope(Disposition::of(charge(&order))).await;
    match (disposition, answer) {
        (Disposition::Ack, answer) => {
            // A duplicate of a consumed key gets the recorded receipt, or none if the record has no result.
            let receipt = answer.ok();
            println!("order {number}: receipt {}", receipt.unwrap_or_default());
            Ok(receipt)
        }
        (Disposition::DeadLetter { reason }, _) => {
            eprintln!("order {number}: dead, {reason}");
            Err(AbortError::new(reason).into())
        }
        (retry, answer) => {
            let after = if let Disposition::Retry { after } = retry { after } else { Duration::from_secs(1) };
            let reason = answer.err().map_or_else(String::new, |error| error.to_string());
            println!("order {number}: retry");
            eprintln!("order {number}: {reason}");
            // apalis-redis ignores the duration, and waits one second for each attempt so far.
            Err(RetryAfterError::new(reason, after).into())
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let redis = arguments.next().unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let database = arguments.next().unwrap_or_else(|| "postgres://app@localhost/shop".to_owned());
    // A task of a worker that is silent for 3 s is an orphan, and another worker runs it.
    let config = Config::default().queue("orders").heartbeat_interval(Duration::from_secs(1)).missed_heartbeats(3);
    let mut storage = RedisStorage::new(apalis_redis::connect(redis).await?).with_config(config);
    if let Some(body) = arguments.next() {
        let body: Value = serde_json::from_str(&body)?;
        return Ok(storage.push(body).await?);
    }

    let pool = PgPool::connect(&database).await?;
    let table = "CREATE TABLE IF NOT EXISTS charges (receipt bigserial, number bigint, cents bigint)";
    sqlx::query(table).execute(&pool).await?;
    let executor = Executor::new(PostgresStore::builder(&database).create(true).connect().await?);
    // Each process needs a name of its own, also after a restart. Without the interval, the worker looks for tasks only at its heartbeats.
    let worker = WorkerBuilder::new(format!("billing-{:x}", RandomState::new().hash_one(())))
        .backend(storage.poll_with_interval(Duration::from_millis(100)))
        .data(executor)
        .build(task);
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        terminate.recv().await;
        Ok::<(), WorkerError>(())
    };
    Ok(worker.run_until(stop).await?)
}
