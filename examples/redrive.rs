//! Redrives dead letters of RabbitMQ or Redis Streams into their queue.
//!
//! ```text
//! cargo run -p idempotent-examples --features rabbitmq,redis --example redrive -- --url amqp://guest:guest@localhost/%2f --queue orders --dry-run
//! cargo run -p idempotent-examples --features rabbitmq,redis --example redrive -- --url amqp://guest:guest@localhost/%2f --queue orders --limit 10
//! cargo run -p idempotent-examples --features rabbitmq,redis --example redrive -- --url redis://127.0.0.1 --queue orders --store redis://127.0.0.1
//! ```
//!
//! Bodies and headers stay unchanged. A dead letter is removed after its queue has confirmed the message, so a killed
//! redrive loses nothing. `--store` names the store of the queue's consumers: without this option, a message with a
//! dead key is dead-lettered again at once.
#![allow(clippy::print_stdout, reason = "it tells what it does")]
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use clap::Parser;
use idempotent::mq::{DeadLetters, Redrive, StoredLetter};
use idempotent::rabbitmq::RabbitDeadLetters;
use idempotent::redis_streams::StreamsDeadLetters;
use idempotent::{Store, connect};

#[derive(Debug, Parser)]
#[command(about = "Puts dead letters back into their queue, on RabbitMQ or Redis Streams")]
struct Args {
    /// The broker: amqp://… or redis://…
    #[arg(long)]
    url: String,
    /// The queue or stream from which the messages were dead-lettered
    #[arg(long)]
    queue: String,
    /// The maximum number of messages
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    limit: u64,
    /// Only list the dead letters
    #[arg(long)]
    dry_run: bool,
    /// The store of the consumers: the keys of redriven messages may be claimed again
    #[arg(long)]
    store: Option<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut letters: Box<dyn DeadLetters> = if args.url.starts_with("amqp") {
        Box::new(RabbitDeadLetters::new(&args.url, &args.queue)?)
    } else {
        Box::new(StreamsDeadLetters::new(&args.url, args.queue.clone())?)
    };
    let there = letters.count().await?;
    if args.dry_run {
        let shown = show(&mut *letters, args.limit).await?;
        println!("{shown} of {there} would be put back into {}", args.queue);
        return Ok(());
    }
    let mut redrive = Redrive::new().limit(args.limit);
    if let Some(url) = &args.store {
        let store: Arc<dyn Store> = Arc::new(connect(url).await?);
        redrive = redrive.letting_go(store);
    }
    let redriven = redrive.run(&mut *letters).await;
    println!("{} of {there} put back into {}", redriven.put_back, args.queue);
    if redriven.unread > 0 {
        println!("{} could not be read: another reader holds them; close it", redriven.unread);
    }
    match redriven.failed {
        Some(failed) => {
            Err(anyhow::Error::new(failed).context("the next one could not be put back, and lies where it lay"))
        }
        None => Ok(()),
    }
}

/// Nothing of bodies and headers: they may be secret.
async fn show(letters: &mut dyn DeadLetters, limit: u64) -> anyhow::Result<u64> {
    let mut shown = 0;
    while shown < limit
        && let Some(StoredLetter { delivery, letter, .. }) = letters.next().await?
    {
        shown += 1;
        let (id, bytes) = (delivery.id.as_deref().unwrap_or("no id"), delivery.body.len());
        match letter {
            Some(letter) => {
                let died = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_micros(letter.last_at.0));
                let (attempts, deaths, reason) = (letter.attempts, letter.deaths, letter.reason);
                println!("{shown}. {id}, {bytes} bytes: {reason}; attempt {attempts}, death {deaths}, {died}");
            }
            None => println!("{shown}. {id}, {bytes} bytes: dead-lettered by another program"),
        }
    }
    Ok(shown)
}
