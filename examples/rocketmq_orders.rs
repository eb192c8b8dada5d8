//! Consumes the callbacks of payments from RocketMQ, each with one effect, however often they are sent or redelivered.
//!
//! ```text
//! cargo run -p idempotent-examples --features rocketmq --example rocketmq_orders -- --name-server localhost:9876
//! ```
//!
//! It sends some callbacks first: each order's twice, one for an order that is not there yet, one that is no callback at
//! all. Then it consumes until SIGTERM or Ctrl-C, and ends what runs. `--store redis://HOST` keeps the keys in Redis:
//! run it again, and nothing is paid a second time.
#![allow(clippy::print_stdout, reason = "it tells what it does")]
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use idempotent::mq::{Consumer, Message, Messages, Schedule};
use idempotent::rocketmq::{RocketMessage, RocketPublisher, RocketSource};
use idempotent::{Executor, Rejection, connect, idempotent};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, Parser)]
#[command(about = "Consumes the callbacks of payments from RocketMQ, each with one effect")]
struct Args {
    /// Where RocketMQ's name server is; several as HOST:PORT;HOST:PORT
    #[arg(long, default_value = "localhost:9876")]
    name_server: String,
    /// Where the keys are kept
    #[arg(long, default_value = "memory:")]
    store: String,
    /// What is consumed
    #[arg(long, default_value = "index12306-pay_result")]
    topic: String,
    /// By whom: its topics for retries and dead letters begin with this
    #[arg(long, default_value = "index12306-order")]
    group: String,
    /// Ends by itself when nothing has come for this long
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u64>,
}

#[derive(Clone, Debug, serde::Deserialize)]
struct PayResult {
    order: String,
    cents: u64,
}

/// A database's stand-in.
#[derive(Default)]
struct Orders {
    tried: Mutex<HashSet<String>>,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("order is not there yet")]
    NotThere,
    #[error(transparent)]
    Rejected(#[from] Rejection),
}

/// The record of a payment outlives its message by two hours. A second callback of the order does not get here.
#[idempotent(
    scene = mq,
    prefix = "index12306-order",
    scope = "pay_result_callback",
    key = (&paid.order, paid.cents),
    retain = "2h"
)]
async fn pay_result_callback(paid: &PayResult, orders: &Orders) -> Result<(), Failed> {
    let first = orders.tried.lock().unwrap_or_else(PoisonError::into_inner).insert(paid.order.clone());
    if paid.order == "early" && first {
        println!("{}: not there yet, comes again", paid.order);
        return Err(Failed::NotThere);
    }
    println!("{}: paid {} cents", paid.order, paid.cents);
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let executor = Executor::new(connect(&args.store).await?);
    let orders = Arc::new(Orders::default());
    let handling = Messages::json().annotated(move |message: Message<PayResult>| {
        let orders = orders.clone();
        async move { pay_result_callback(&message.body, &orders).await }
    });
    let source = RocketSource::builder(&args.name_server, &args.topic, &args.group).tags("paid").build()?;
    source.declare(4).await?;
    let consumer = Consumer::builder(source, args.group.clone(), &executor)
        .schedule(Schedule::exponential(Duration::from_secs(1), Duration::from_secs(60)))
        .grace(Duration::from_secs(5))
        .build(handling)?;
    let counters = consumer.counters();
    let idle = args.idle.map(Duration::from_secs);
    let mut consuming = tokio::spawn(consumer.run(async move {
        let quiet = async {
            let Some(idle) = idle else { return std::future::pending().await };
            let mut before = None;
            while before.replace(counters.counts()) != Some(counters.counts()) {
                tokio::time::sleep(idle).await;
            }
        };
        let (mut terminate, mut interrupt) = match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
            // Without signals it runs until it is killed.
            _ => return quiet.await,
        };
        tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} () = quiet => {} }
        println!("stopping: what runs may end");
    }));
    let counts = tokio::select! {
        sent = send(&args) => {
            sent?;
            consuming.await??
        }
        // Told to stop, or refused.
        ended = &mut consuming => ended??,
    };
    println!(
        "{} acknowledged, {} retried, {} put aside in {}-dead, {} given back",
        counts.acked, counts.retried, counts.dead_lettered, args.group, counts.given_back
    );
    Ok(())
}

/// What the payment service does: it is told of a payment once, and calls back at least once.
async fn send(args: &Args) -> anyhow::Result<()> {
    let publisher = RocketPublisher::builder(&args.name_server).build()?;
    for order in ["order-1", "order-2", "early"] {
        for call in 1..=2 {
            let body = format!(r#"{{"order":"{order}","cents":500}}"#);
            let callback = RocketMessage::new(format!("{order}/{call}"), body).key(order).tag("paid");
            publisher.publish(&args.topic, &callback).await?;
        }
    }
    Ok(publisher.publish(&args.topic, &RocketMessage::new("odd", "paid, thanks").tag("paid")).await?)
}
