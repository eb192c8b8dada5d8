//! Orders that are cancelled unless they are paid in time, in one SQLite file, without a server.
//!
//! ```text
//! cargo run -p idempotent-examples --example order_timeout
//! cargo run -p idempotent-examples --example order_timeout -- --limit 30m --database shop.db place order-17
//! cargo run -p idempotent-examples --example order_timeout -- --database shop.db pay order-17
//! cargo run -p idempotent-examples --example order_timeout -- --database shop.db work
//! ```
//!
//! Without a command it places three orders: one is paid at once, one in the last moment, one never. `place` keeps running until it
//! is stopped, and `work` until nothing is left. Kill one of them before an order's time is over: the next one cancels it,
//! when it starts if it was due meanwhile.
#![allow(clippy::print_stdout, reason = "it tells what it does")]
#[path = "order_timeout/shop.rs"]
#[allow(dead_code, reason = "parts of it are for the tests")]
mod shop;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};
use idempotent::mq::{Consumer, Message, Messages, Schedule};
use idempotent::{Executor, SqliteStore};

use self::shop::{Failed, Shop, time_is_over};

#[derive(Debug, Parser)]
#[command(about = "Orders that are cancelled unless they are paid in time")]
struct Args {
    /// The SQLite file, which is made if it is not there; without it one that is gone at the end
    #[arg(long)]
    database: Option<String>,
    /// How long an order may be unpaid: 30 minutes in a shop
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    limit: Duration,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Places an order, and cancels what is not paid in time until it is stopped
    Place { order: String },
    /// Pays for an order
    Pay { order: String },
    /// Cancels what is not paid in time until nothing is left
    Work,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let folder = tempfile::tempdir()?;
    let of_this_run = folder.path().join("shop.db").display().to_string();
    let file = args.database.unwrap_or(of_this_run);
    let shop = Arc::new(Shop::open(&file, |limits| limits).await?);
    // Beside the orders: what has run is remembered by whoever comes next.
    let executor = Executor::new(SqliteStore::open(&file).await?);
    match args.command {
        Some(Command::Place { order }) => {
            shop.place(&order, args.limit).await?;
            println!("{order}: placed");
            work(&shop, &executor, std::future::pending()).await
        }
        Some(Command::Pay { order }) => {
            println!("{order}: {}", if shop.pay(&order).await? { "paid" } else { "too late, or paid before" });
            Ok(())
        }
        Some(Command::Work) => work(&shop, &executor, nothing_left(&shop)).await,
        None => {
            for order in ["order-1", "order-2", "order-3"] {
                shop.place(order, args.limit).await?;
                println!("{order}: placed, to be paid within {:?}", args.limit);
            }
            shop.pay("order-1").await?;
            let in_the_last_moment = async {
                tokio::time::sleep(args.limit).await;
                let paid = shop.pay("order-2").await;
                println!("order-2: the payment came {}", if matches!(paid, Ok(true)) { "in time" } else { "too late" });
            };
            let ((), worked) = tokio::join!(in_the_last_moment, work(&shop, &executor, nothing_left(&shop)));
            worked?;
            for order in ["order-1", "order-2", "order-3"] {
                println!("{order}: {}, by {} effect", shop.status(order).await?, shop.effects(order).await?.len());
            }
            Ok(())
        }
    }
}

async fn work(shop: &Arc<Shop>, executor: &Executor, stop: impl Future<Output = ()>) -> Result<(), Box<dyn Error>> {
    let of_handlers = shop.clone();
    let handling = Messages::raw().annotated(move |message: Message<()>| {
        let shop = of_handlers.clone();
        async move {
            let order = str::from_utf8(&message.delivery.body).map_err(|_| Failed::NoOrder)?;
            time_is_over(order, &shop).await?;
            if let Ok(status) = shop.status(order).await {
                println!("{order}: its time is over, it is {status}");
            }
            Ok::<_, Failed>(())
        }
    });
    // One process over one file: times on a wheel. Several, or a server: without it.
    let source = shop.limits.source().on_wheel(Duration::from_secs(10));
    let consumer = Consumer::builder(source, "order_limits", executor)
        .schedule(Schedule::exponential(Duration::from_millis(100), Duration::from_secs(10)))
        .build(handling)?;
    let (ending, ended) = tokio::sync::oneshot::channel::<()>();
    let running = consumer.run(async { drop(ended.await) });
    let stopping = async {
        stop.await;
        drop(ending);
    };
    tokio::join!(running, stopping).0?;
    Ok(())
}

/// Until no order has a time limit any more.
async fn nothing_left(shop: &Shop) {
    while shop.limits.counts().await.is_ok_and(|counts| counts.ready + counts.waiting + counts.in_flight > 0) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
