//! Handles the callbacks of a payment provider. Each callback pays its order, issues a ticket and adds points, once.
//!
//! ```text
//! payment_callback services --listen 127.0.0.1:8081
//! payment_callback place order-17 --database postgres://postgres@localhost/shop
//! payment_callback pay order-17 500 --broker rocketmq://localhost:9876
//! payment_callback work --broker rocketmq://localhost:9876 --database postgres://postgres@localhost/shop
//! payment_callback status order-17 --database postgres://postgres@localhost/shop
//! ```
//!
//! Start it with `cargo run -p idempotent-payment-callback --features rocketmq -- COMMAND`. `--broker amqp://…` uses RabbitMQ
//! and needs no feature; `--database mysql://…` uses MariaDB. `work --stop-at PLACE` stops for ever at a place of the handler:
//! kill the process there, and the next worker completes the callback.
#![allow(clippy::print_stdout, reason = "the program reports its progress")]
mod broker;
mod callback;
mod database;
mod services;

use anyhow::bail;
use clap::{Args, Parser, Subcommand};
use idempotent::mq::{Message, Messages};
use idempotent::{Executor, connect};
use sqlx::pool::PoolOptions;
use sqlx::{MySql, Pool, Postgres};
use tokio::signal::unix::{SignalKind, signal};

use self::broker::Broker;
use self::callback::{PaymentResult, Place, StopPoint, payment_callback};
use self::database::OrderDatabase;
use self::services::Services;

#[derive(Debug, Parser)]
#[command(about = "Handles the callbacks of a payment provider, with one effect for each order")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves the two called services, tickets and points, until the program is stopped
    Services {
        #[arg(long, default_value = "127.0.0.1:8081")]
        listen: String,
    },
    /// Sends the callback of a payment twice, as a provider may
    Pay {
        order: String,
        cents: i64,
        #[command(flatten)]
        broker: Broker,
    },
    #[command(flatten)]
    OnDatabase(DatabaseCommand),
}

#[derive(Debug, Subcommand)]
enum DatabaseCommand {
    /// Places an order, which is unpaid
    Place {
        order: String,
        #[command(flatten)]
        database: DatabaseUrl,
    },
    /// Handles callbacks until SIGTERM or Ctrl-C
    Work {
        #[command(flatten)]
        broker: Broker,
        #[command(flatten)]
        database: DatabaseUrl,
        #[command(flatten)]
        services: Services,
        /// Stops for ever at this place of the handler
        #[arg(long)]
        stop_at: Option<Place>,
    },
    /// Shows an order, its payments, and the calls and effects of the services
    Status {
        order: String,
        #[command(flatten)]
        database: DatabaseUrl,
        #[command(flatten)]
        services: Services,
    },
}

#[derive(Clone, Debug, Args)]
struct DatabaseUrl {
    /// postgres://… or mysql://…; missing tables are created
    #[arg(long)]
    database: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match Cli::parse().command {
        Command::Services { listen } => services::serve(&listen).await,
        Command::Pay { order, cents, broker } => broker.publish_twice(&PaymentResult { order, cents }).await,
        Command::OnDatabase(command) => {
            let url = command.database_url().to_owned();
            match url.split(':').next() {
                Some("postgres" | "postgresql") => command.run::<Postgres>(&url).await,
                Some("mysql") => command.run::<MySql>(&url).await,
                _ => bail!("--database: expected postgres://… or mysql://…"),
            }
        }
    }
}

impl DatabaseCommand {
    fn database_url(&self) -> &str {
        match self {
            Self::Place { database, .. } | Self::Work { database, .. } | Self::Status { database, .. } => {
                &database.database
            }
        }
    }

    async fn run<Db: OrderDatabase>(self, url: &str) -> anyhow::Result<()> {
        let orders = PoolOptions::<Db>::new().connect(url).await?;
        Db::create_tables(&orders).await?;
        match self {
            Self::Place { order, .. } => Db::place(&orders, &order).await?,
            Self::Work { broker, services, stop_at, .. } => {
                // The records of the keys are in the database of the orders, so that one transaction covers both.
                let executor = Executor::new(connect(url).create(true).await?);
                work::<Db>(&broker, &executor, services, StopPoint::new(stop_at)).await?;
            }
            Self::Status { order, services, .. } => show(&orders, &order, &services).await?,
        }
        Ok(())
    }
}

/// Consumes until a signal arrives, and lets running handlers finish.
async fn work<Db: OrderDatabase>(
    broker: &Broker,
    executor: &Executor,
    services: Services,
    stop: StopPoint,
) -> anyhow::Result<()> {
    let handler = Messages::json().annotated(move |message: Message<PaymentResult>| {
        let (services, stop) = (services.clone(), stop);
        async move {
            stop.reach(Place::Received, &message.body.order).await;
            payment_callback::<Db>(&message.body, &services, stop).await?;
            stop.reach(Place::Committed, &message.body.order).await;
            Ok::<_, callback::CallbackError>(())
        }
    });
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stopped = async move {
        tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
    };
    let counts = broker.consume(executor, handler, stopped).await?;
    println!("{} acknowledged, {} retried, {} dead-lettered", counts.acked, counts.retried, counts.dead_lettered);
    Ok(())
}

async fn show<Db: OrderDatabase>(orders: &Pool<Db>, order: &str, services: &Services) -> anyhow::Result<()> {
    let (status, payments) = Db::status(orders, order).await?;
    println!("order: {status}, payments: {payments}");
    for (service, counts) in services.counts(order).await? {
        println!("{service}: {} requests, {} effects", counts.requests, counts.effects);
    }
    Ok(())
}
