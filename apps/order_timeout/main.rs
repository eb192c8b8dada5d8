//! Orders that are cancelled unless they are paid in time, in one SQLite file, without a server or with RabbitMQ.
//!
//! ```text
//! cargo run -p idempotent-order-timeout
//! cargo run -p idempotent-order-timeout -- --limit 30m --database shop.db place order-17
//! cargo run -p idempotent-order-timeout -- --database shop.db pay order-17
//! cargo run -p idempotent-order-timeout -- --database shop.db work
//! cargo run -p idempotent-order-timeout --features rabbitmq -- --with rabbitmq --url amqp://guest:guest@localhost/%2f
//! ```
//!
//! Without a command, the program places three orders: one is paid at once, one in the last moment, one never. `place`
//! runs until it is stopped, and `work` until nothing is left. Kill one of them before the time limit of an order: the
//! next process cancels the order, at its start if the limit has passed.
//!
//! `--with table` (the default) keeps the time limits in a table of the same database, so that a payment deletes its
//! limit. `--with rabbitmq` writes each time limit to an outbox of the same database, and RabbitMQ keeps it until it
//! is due. There, the limit of a paid order is delivered too, and its handler finds the order paid.
#![allow(clippy::print_stdout, reason = "it tells what it does")]
#[cfg(feature = "rabbitmq")]
mod rabbit;
#[allow(dead_code, reason = "parts of it are for the tests")]
mod shop;
mod table;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use idempotent::mq::{Message, MessageHandler, Messages};
use idempotent::{Executor, SqliteStore};

use self::shop::{Failed, Shop, time_is_over};
use self::table::Table;

type Failure = Box<dyn Error>;

/// Something that keeps the time limits of orders.
trait Limits {
    /// Writes an order and its time limit, both or neither.
    async fn place(&self, order: &str, limit: Duration) -> Result<(), Failed>;

    /// Handles the time limits that are over, until `stop` ends.
    async fn work(
        &self,
        executor: &Executor,
        handling: MessageHandler,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Failure>;

    /// Ends once no order has a time limit any more.
    async fn nothing_left(&self);
}

#[derive(Debug, Parser)]
#[command(about = "Orders that are cancelled unless they are paid in time")]
struct Args {
    /// The SQLite file, which is made if it is not there; without it one that is gone at the end
    #[arg(long)]
    database: Option<String>,
    /// The time in which an order must be paid: 30 minutes in a shop
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    limit: Duration,
    /// The keeper of the time limits
    #[arg(long, default_value = "table")]
    with: With,
    /// The broker, for `--with rabbitmq`
    #[arg(long, default_value = "amqp://guest:guest@localhost/%2f")]
    url: String,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum With {
    /// A table in the database of the orders
    Table,
    /// An outbox in the database of the orders, and RabbitMQ
    Rabbitmq,
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
async fn main() -> Result<(), Failure> {
    let mut args = Args::parse();
    let folder = tempfile::tempdir()?;
    let of_this_run = folder.path().join("shop.db").display().to_string();
    let file = args.database.take().unwrap_or(of_this_run);
    let shop = Arc::new(Shop::open(&file, |limits| limits).await?);
    // The records are in the database of the orders, so the next process knows the finished runs.
    let executor = Executor::new(SqliteStore::open(&file).await?);
    match args.with {
        With::Table => run(args, &shop, &executor, Table(shop.clone())).await,
        #[cfg(feature = "rabbitmq")]
        With::Rabbitmq => {
            let limits = rabbit::Rabbit::open(&shop, &args.url).await?;
            run(args, &shop, &executor, limits).await
        }
        #[cfg(not(feature = "rabbitmq"))]
        With::Rabbitmq => {
            Err(format!("this build has no RabbitMQ, for {}: add `--features rabbitmq`", args.url).into())
        }
    }
}

async fn run(args: Args, shop: &Arc<Shop>, executor: &Executor, limits: impl Limits) -> Result<(), Failure> {
    match args.command {
        Some(Command::Place { order }) => {
            limits.place(&order, args.limit).await?;
            println!("{order}: placed");
            limits.work(executor, handling(shop), std::future::pending()).await
        }
        Some(Command::Pay { order }) => {
            println!("{order}: {}", if shop.pay(&order).await? { "paid" } else { "too late, or paid before" });
            Ok(())
        }
        Some(Command::Work) => limits.work(executor, handling(shop), limits.nothing_left()).await,
        None => {
            for order in ["order-1", "order-2", "order-3"] {
                limits.place(order, args.limit).await?;
                println!("{order}: placed, to be paid within {:?}", args.limit);
            }
            shop.pay("order-1").await?;
            let in_the_last_moment = async {
                tokio::time::sleep(args.limit).await;
                let paid = shop.pay("order-2").await;
                println!("order-2: the payment came {}", if matches!(paid, Ok(true)) { "in time" } else { "too late" });
            };
            let working = limits.work(executor, handling(shop), limits.nothing_left());
            let ((), worked) = tokio::join!(in_the_last_moment, working);
            worked?;
            for order in ["order-1", "order-2", "order-3"] {
                println!("{order}: {}, by {} effect", shop.status(order).await?, shop.effects(order).await?.len());
            }
            Ok(())
        }
    }
}

fn handling(shop: &Arc<Shop>) -> MessageHandler {
    let shop = shop.clone();
    Messages::raw().annotated(move |message: Message<()>| {
        let shop = shop.clone();
        async move {
            let order = str::from_utf8(&message.delivery.body).map_err(|_| Failed::NoOrder)?;
            time_is_over(order, &shop).await?;
            if let Ok(status) = shop.status(order).await {
                println!("{order}: its time is over, it is {status}");
            }
            Ok::<_, Failed>(())
        }
    })
}
