//! A delay queue on Redis: a message at a time, one that is merged, some by priority, and one that fails.
//!
//! ```text
//! redis-server --port 6379 &
//! cargo run -p idempotent-examples --features redis --example delay_queue -- redis://127.0.0.1:6379
//! ```
//!
//! The call to order 17 fails twice and then succeeds. The call to order 18 always fails and is dead-lettered.
#![allow(clippy::print_stdout, reason = "an example")]
use std::error::Error;
use std::time::{Duration, Instant};

use idempotent::delay_queue::{DelayDeadLetters, DelayMessage, DelayQueue, DelaySource};
use idempotent::mq::{Consumer, DeadLetters, KeyFrom, Message, Messages, Schedule, StoredLetter};
use idempotent::{Executor, Policy, Scene, connect};

async fn call(message: Message<()>) -> Result<(), &'static str> {
    let what = String::from_utf8_lossy(&message.delivery.body).into_owned();
    let attempt = message.delivery.attempt.unwrap_or(1);
    println!("{what} (attempt {attempt})");
    match what.as_str() {
        "call order 17" if attempt < 3 => Err("busy"),
        "call order 18" => Err("no such number"),
        _ => Ok(()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    // A topic for this run: what another one has left is none of ours.
    let topic = format!("calls-{}", std::process::id());
    let queue = DelayQueue::connect(&url, topic).await.map_err(|error| {
        format!("{error}\nThis example needs a Redis: start `redis-server --port 6379`, or name another one's URL.")
    })?;

    // Three changes of one article within a second: one message, a second after the first.
    for _ in 0..3 {
        let sent = queue.send(&DelayMessage::merged("article-1", Duration::from_secs(1), "index article 1")).await?;
        println!("article 1 was changed: {}", if sent.is_new { "a message" } else { "merged" });
    }
    // The larger goes first; those of one priority as they were sent.
    for (priority, what) in [(20, "newsletter"), (100, "call order 17"), (100, "call order 18")] {
        queue.send(&DelayMessage::priority(priority, what)).await?;
    }
    // At a time, by the server's clock; the id is what it is called off by.
    let in_two_seconds = idempotent::Timestamp(u64::try_from(now().as_micros())?) + Duration::from_secs(2);
    queue.send(&DelayMessage::at(in_two_seconds, "cancel order 19").id("unpaid-19")).await?;
    queue.send(&DelayMessage::at(in_two_seconds, "cancel order 20").id("unpaid-20")).await?;
    println!("order 20 is paid: {:?}", queue.cancel("unpaid-20").await?);

    let policy = Policy::new().max_retries(3);
    let executor = Executor::builder(connect(&url).await?).policy(Scene::Mq, policy).build()?;
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(call);
    let consumer = Consumer::builder(DelaySource::new(&queue), "calls", &executor)
        .schedule(Schedule::exponential(Duration::from_millis(100), Duration::from_millis(200)))
        .build(handling)?;
    let (empty, began) = (queue.clone(), Instant::now());
    let counts = consumer.run(async move {
        while began.elapsed() < Duration::from_secs(30) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            match empty.counts().await {
                Ok(counts) if counts.ready + counts.waiting + counts.in_flight > 0 => {}
                _ => break,
            }
        }
    });
    let counts = counts.await?;
    println!("{} acknowledged, {} retried, {} dead-lettered", counts.acked, counts.retried, counts.dead_lettered);
    let mut letters = DelayDeadLetters::new(&queue);
    while let Some(StoredLetter { delivery, letter, .. }) = letters.next().await? {
        let why = letter.map(|letter| letter.reason.into_owned()).unwrap_or_default();
        println!("dead: {} ({why})", String::from_utf8_lossy(&delivery.body));
    }
    queue.purge().await?;
    Ok(())
}

fn now() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
