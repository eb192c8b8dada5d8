//! Orders that are cancelled unless they are paid in time, and receipts that are confirmed in time, in one SQLite file.
//! The program needs no server, or RabbitMQ.
//!
//! ```text
//! cargo run -p idempotent-order-timeout
//! cargo run -p idempotent-order-timeout -- --limit 30m --database shop.db place order-17
//! cargo run -p idempotent-order-timeout -- --database shop.db pay order-17
//! cargo run -p idempotent-order-timeout -- --database shop.db ship order-17
//! cargo run -p idempotent-order-timeout -- --database shop.db confirm order-17
//! cargo run -p idempotent-order-timeout -- --database shop.db work
//! cargo run -p idempotent-order-timeout --features rabbitmq -- --with rabbitmq --url amqp://guest:guest@localhost/%2f
//! ```
//!
//! Without a command, the program places three orders: one is paid at once and shipped, one is paid in the last moment, one
//! never. `place` runs until it is stopped, and `work` until nothing is left. Kill one of them before the time limit of an
//! order: the next process acts on the order, at its start if the limit has passed.
//!
//! Both time limits are one piece of code, see `Limit` in `shop.rs`: a limit is written together with the status that it
//! ends, and its handler changes the order only if the order still has that status. The handler writes a notice for the
//! customer to the outbox of the same database, in the same transaction. A relay sends the notice after the commit, and a
//! consumer takes it once. With `--url`, RabbitMQ delivers the notices. Without it, a queue in this process does. Kill the
//! process before a notice is sent: the next one sends it.
//!
//! `--with table` (the default) keeps the time limits in a table of the same database, so that a payment deletes its
//! limit. `--with rabbitmq` writes each time limit to the outbox, too, and RabbitMQ keeps it until it is due. There, the
//! limit of a paid order is delivered too, and its handler finds the order paid.
#![allow(clippy::print_stdout, reason = "it tells what it does")]
#[allow(dead_code, reason = "parts of it are for another application")]
#[path = "../outbox_payment/queue.rs"]
mod queue;
#[cfg(feature = "rabbitmq")]
mod rabbit;
mod shop;
mod work;

use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use idempotent::{Executor, SqliteStore};

use self::queue::Queue;
use self::shop::{RECEIPT_TIME, Shop};
use self::work::{Failure, work};

#[derive(Debug, Parser)]
#[command(about = "Orders that are cancelled unless they are paid in time, and receipts that are confirmed in time")]
struct Args {
    /// The SQLite file, which is made if it is not there; without it one that is gone at the end
    #[arg(long)]
    database: Option<String>,
    /// The time in which an order must be paid: 30 minutes in a shop
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    limit: Duration,
    /// The time after which the receipt of a shipped order is confirmed: 7 days, or that of `--limit` without a command
    #[arg(long, value_parser = humantime::parse_duration)]
    receipt: Option<Duration>,
    /// The keeper of the time limits
    #[arg(long, default_value = "table")]
    with: With,
    /// The RabbitMQ of the notices; for `--with rabbitmq`, one on this machine if it is not given
    #[arg(long)]
    url: Option<String>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum With {
    /// A table in the database of the orders
    Table,
    /// An outbox in the database of the orders, and RabbitMQ
    Rabbitmq,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Places an order, and acts on what is over until it is stopped
    Place { order: String },
    /// Pays for an order
    Pay { order: String },
    /// Ships a paid order
    Ship { order: String },
    /// Confirms the receipt of a shipped order
    Confirm { order: String },
    /// Acts on what is over until nothing is left
    Work,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut args = Args::parse();
    let folder = tempfile::tempdir()?;
    let of_this_run = folder.path().join("shop.db").display().to_string();
    let file = args.database.take().unwrap_or(of_this_run);
    let shop = Shop { limits_at_broker: args.with == With::Rabbitmq, ..Shop::open(&file, None).await? };
    // The records are in the database of the orders, so the next process knows the finished runs.
    let app = App { shop: Arc::new(shop), executor: Executor::new(SqliteStore::open(&file).await?), args };
    match &app.args.command {
        Some(command) => app.run(command).await,
        None => app.show().await,
    }
}

struct App {
    shop: Arc<Shop>,
    executor: Executor,
    args: Args,
}

const ORDERS: [&str; 3] = ["order-1", "order-2", "order-3"];

impl App {
    async fn run(&self, command: &Command) -> Result<(), Failure> {
        let shop = &self.shop;
        let report = |order: &str, done: bool, what: &str| {
            println!("{order}: {}", if done { what.to_owned() } else { format!("too late, or {what} before") });
        };
        match command {
            Command::Place { order } => {
                shop.place(order, self.args.limit).await?;
                println!("{order}: placed");
                self.work(std::future::pending()).await?;
            }
            Command::Pay { order } => report(order, shop.pay(order).await?, "paid"),
            Command::Ship { order } => {
                let shipped = shop.ship(order, self.args.receipt.unwrap_or(RECEIPT_TIME)).await?;
                println!("{order}: {}", if shipped { "shipped" } else { "unpaid, or shipped before" });
            }
            Command::Confirm { order } => report(order, shop.confirm(order).await?, "confirmed"),
            Command::Work => self.work(self.nothing_left()).await?,
        }
        Ok(())
    }

    /// Places, pays and ships some orders, and shows what becomes of them.
    async fn show(&self) -> Result<(), Failure> {
        let (shop, limit) = (&self.shop, self.args.limit);
        for order in ORDERS {
            shop.place(order, limit).await?;
            println!("{order}: placed, to be paid within {limit:?}");
        }
        let receipt = self.args.receipt.unwrap_or(limit);
        shop.pay("order-1").await?;
        shop.ship("order-1", receipt).await?;
        println!("order-1: paid and shipped, its receipt to be confirmed within {receipt:?}");
        let in_the_last_moment = async {
            tokio::time::sleep(limit).await;
            let paid = shop.pay("order-2").await?;
            println!("order-2: the payment came {}", if paid { "in time" } else { "too late" });
            Ok(())
        };
        tokio::try_join!(in_the_last_moment, self.work(self.nothing_left()))?;
        for order in ORDERS {
            let (effects, notices) = (shop.effects(order).await?, shop.notices(order).await?);
            println!("{order}: {}; notices: {}", effects.join(", "), notices.len());
        }
        Ok(())
    }

    async fn work(&self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let (shop, executor) = (&self.shop, &self.executor);
        let local = || "amqp://guest:guest@localhost/%2f".to_owned();
        let Some(url) = self.args.url.clone().or_else(|| shop.limits_at_broker.then(local)) else {
            // One process over one file: times on a wheel. Several, or a server: without it.
            let (limits, queue) = (shop.limits.source().on_wheel(Duration::from_secs(10)), Queue::default());
            return work(shop, executor, limits, queue.clone(), Arc::new(queue), stop).await;
        };
        #[cfg(feature = "rabbitmq")]
        return rabbit::work_with(shop, executor, &url, stop).await;
        #[cfg(not(feature = "rabbitmq"))]
        {
            // The error does not contain the URL, which may contain a password.
            drop(url);
            Err("this build has no RabbitMQ: add `--features rabbitmq`".into())
        }
    }

    async fn nothing_left(&self) {
        while !self.shop.nothing_left().await.is_ok_and(|nothing| nothing) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
