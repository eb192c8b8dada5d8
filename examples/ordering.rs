//! Handles messages in order over three workers, without a broker that keeps the order.
//!
//! The queue delivers in the worst order: points of a user, a parcel after its payment, and entries of an account whose
//! numbers have gaps. A worker returns a message whose turn has not come. One of ann's messages is dead-lettered: the
//! messages after it are held, and released after a while. Run it with `cargo run -p idempotent-examples --example ordering`.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idempotent::ordering::OnBrokenOrder;
use idempotent::{Disposition, Executor, Identity, MemoryStore, Policy, Rejection, Scene, idempotent};

#[derive(Clone, Debug)]
enum Message {
    Points { user: &'static str, number: u64, of: i64 },
    Payment { order: &'static str },
    Parcel { order: &'static str },
    Entry { account: &'static str, number: u64 },
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Idempotent(#[from] Rejection),
    #[error("points cannot be below zero")]
    BelowZero,
}

/// The effects, in their order.
type Done = Arc<Mutex<Vec<String>>>;

fn note(done: &Done, what: String) {
    println!("  {what}");
    done.lock().unwrap_or_else(PoisonError::into_inner).push(what);
}

/// Credits points after the previous number; the first number has none.
#[idempotent(
    key = (user, number),
    after = (number > 1).then(|| (user, number - 1)),
    scope = "points",
    max_retries = 1,
)]
async fn credit(done: &Done, user: &str, number: u64, of: i64) -> Result<(), Failure> {
    if of < 0 {
        return Err(Failure::BelowZero);
    }
    note(done, format!("{user} {number}"));
    Ok(())
}

#[idempotent(key = order, scope = "payments")]
async fn pay(done: &Done, order: &str) -> Result<(), Failure> {
    note(done, format!("paid {order}"));
    Ok(())
}

/// Sends a parcel after a call of another handler.
#[idempotent(key = order, after = Identity::new(Scene::Mq, "payments", order), scope = "parcels")]
async fn send(done: &Done, order: &str) -> Result<(), Failure> {
    note(done, format!("sent {order}"));
    Ok(())
}

/// Books an entry of a stream whose producer has registered the numbers.
#[idempotent(key = (account, number), sequence = (account, number), scope = "entries")]
async fn book(done: &Done, account: &str, number: u64) -> Result<(), Failure> {
    note(done, format!("{account} entry {number}"));
    Ok(())
}

/// Registers the numbers of entries, which their sender does before it sends them.
async fn number(executor: &Executor, account: &str, numbers: &[u64]) -> Result<(), Rejection> {
    let stream = Identity::new(Scene::Mq, "entries", account);
    executor.register(&stream, numbers.iter().copied()).await?;
    Ok(())
}

async fn handle(done: &Done, message: &Message) -> Result<(), Failure> {
    match *message {
        Message::Points { user, number, of } => credit(done, user, number, of).await,
        Message::Payment { order } => pay(done, order).await,
        Message::Parcel { order } => send(done, order).await,
        Message::Entry { account, number } => book(done, account, number).await,
    }
}

/// A queue that does not keep an order.
type Queue = Arc<Mutex<VecDeque<Message>>>;

/// Handles messages until the queue is empty. A message to retry goes to the end of the queue.
async fn work(executor: Executor, queue: Queue, done: Done) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(message) = next else { return };
        let (_, disposition) = executor.scope(Disposition::of(handle(&done, &message))).await;
        match disposition {
            Disposition::Retry { after } => {
                tokio::time::sleep(after.min(Duration::from_millis(20))).await;
                queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(message);
            }
            Disposition::DeadLetter { reason } => println!("  dead-lettered: {message:?}: {reason}"),
            _ => {}
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // In production minutes. The retries of what is broken have to fit into it.
    let patience = OnBrokenOrder::Skip(Duration::from_secs(1));
    let policy = Policy::new().on_broken_order(patience).retry_delay(Duration::from_millis(10));
    let executor = Executor::builder(MemoryStore::new()).policy(Scene::Mq, policy).build()?;
    number(&executor, "acc-4", &[100, 250, 251]).await?;
    let points = |user, number, of| Message::Points { user, number, of };
    let queue: Queue = Arc::new(Mutex::new(VecDeque::from([
        Message::Parcel { order: "o-17" },
        Message::Entry { account: "acc-4", number: 251 },
        Message::Entry { account: "acc-4", number: 250 },
        Message::Entry { account: "acc-4", number: 100 },
        points("ann", 3, 5),
        points("bob", 3, 5),
        points("ann", 2, -1),
        points("bob", 2, 5),
        points("ann", 1, 5),
        points("bob", 1, 5),
        Message::Payment { order: "o-17" },
    ])));
    let done = Done::default();
    let workers = (0..3).map(|_| tokio::spawn(work(executor.clone(), queue.clone(), done.clone())));
    for worker in workers.collect::<Vec<_>>() {
        worker.await?;
    }
    // A worker ends at an empty queue, also if another one returns a message right after.
    work(executor.clone(), queue, done.clone()).await;

    let done = done.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let of = |user: &str| done.iter().filter(|what| what.contains(user)).cloned().collect::<Vec<_>>();
    assert_eq!(of("bob"), ["bob 1", "bob 2", "bob 3"]);
    assert_eq!(of("ann"), ["ann 1", "ann 3"], "2 is dead, and 3 was let go after its time");
    assert_eq!(of("acc-4"), ["acc-4 entry 100", "acc-4 entry 250", "acc-4 entry 251"]);
    assert_eq!(of("o-17"), ["paid o-17", "sent o-17"]);
    let counts = executor.counts();
    println!("put off {} times, held {} times", counts.of("waiting"), counts.of("held"));
    assert!(counts.of("waiting") > 0 && counts.of("held") > 0);
    Ok(())
}
