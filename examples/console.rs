//! Serves the web console of a process whose consumer meets duplicates, failures and a handler that hangs.
//!
//! Run the example with `cargo run -p idempotent-examples --features console --example console`, and open the link that it
//! prints. Everything is in memory. The test `pictures` takes the pictures of the guides from this program.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::future::pending;
use std::time::Duration;

use idempotent::console::{Access, Console, Role, TokenList, User};
use idempotent::mq::{Consumer, HandlerResult, KeyFrom, MemoryDeadLetters, MemoryQueue, Message, Messages};
use idempotent::{Executor, Identity, Policy, Rejection, Scene, SqliteStore, idempotent};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::time::interval;

#[derive(Deserialize)]
struct Order {
    id: u64,
    cents: u64,
}

/// Charges an order. Cards of amount 0 are refused, and the payment service never answers for one order.
async fn charge(order: Message<Order>) -> HandlerResult {
    match order.body {
        Order { cents: 0, .. } => HandlerResult::Again { after: None, error: "the card was refused".into() },
        Order { id: 42, .. } => pending().await,
        _ => HandlerResult::Done,
    }
}

/// Sends 60 orders, then one each second. Each third order is sent twice, as by a producer that missed a confirmation.
async fn produce(queue: MemoryQueue) {
    let mut seconds = interval(Duration::from_secs(1));
    for id in 1_u64.. {
        if id > 60 {
            seconds.tick().await;
        }
        let cents = if id % 20 == 17 { 0 } else { 500 + id };
        for _ in 0..1 + u8::from(id % 3 == 0) {
            queue.send(format!(r#"{{"id":{id},"cents":{cents}}}"#));
        }
    }
}

/// Books an entry of an account in the order of the registered numbers.
#[idempotent(key = (account, number), sequence = (account, number), scope = "entries", with = executor)]
async fn book(executor: &Executor, account: &str, number: u64) -> Result<(), Rejection> {
    Ok(())
}

/// Leaves a stream that waits for entry 101, which was lost.
async fn leave_a_blocked_stream(executor: &Executor) -> Result<(), Rejection> {
    executor.register(&Identity::new(Scene::Mq, "entries", "acc-4"), [100, 101, 102]).await?;
    book(executor, "acc-4", 100).await?;
    match book(executor, "acc-4", 102).await {
        Ok(()) => unreachable!("entry 101 has not been booked"),
        Err(_waits) => Ok(()),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let policy = Policy::new().max_retries(2).retry_delay(Duration::from_millis(100));
    let executor = Executor::builder(SqliteStore::open(":memory:").await?).policy(Scene::Mq, policy).build()?;
    leave_a_blocked_stream(&executor).await?;
    let queue = MemoryQueue::new("orders");
    let handling = Messages::json().keyed(KeyFrom::body("order", |order: &Order| order.id.to_string())).run(charge);
    let consumer = Consumer::builder(queue.source(), "billing", &executor).build(handling)?;

    let letters = queue.clone();
    let (tokens, token) = TokenList::one_time(User::new("ann", Role::Admin))?;
    let console = Console::builder()
        .store("orders", executor.store().clone())
        .executor("billing", executor.clone())
        .consumer("billing", consumer.counters())
        .queue_with_store(
            "orders",
            move || {
                let letters = MemoryDeadLetters::new(&letters);
                async { Ok::<_, String>(Box::new(letters) as Box<_>) }
            },
            executor.store().clone(),
        )
        .access(Access::tokens(tokens))
        .secure_cookie(false) // a loopback address without TLS
        .build()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/login?token={token}", listener.local_addr()?);
    let app = console.router();
    tokio::select! {
        () = produce(queue) => {}
        ended = consumer.run(pending()) => drop(ended?),
        ended = async { axum::serve(listener, app).await } => ended?,
    }
    Ok(())
}
