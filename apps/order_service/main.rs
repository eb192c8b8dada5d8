//! Accepts orders and ships each order once: the program of the deployment samples in `deploy`.
//!
//! ```text
//! order_service migrate --database @/run/secrets/migrator-url
//! order_service serve --listen 0.0.0.0:8080 --keys @/run/secrets/redis-url --database @/run/secrets/database-url
//! order_service relay --listen 0.0.0.0:8080 --database @/run/secrets/database-url --broker @/run/secrets/broker-url
//! order_service work --listen 0.0.0.0:8080 --database @/run/secrets/database-url --broker @/run/secrets/broker-url
//! order_service probe http://127.0.0.1:8080/readyz
//! ```
//!
//! `POST /orders` needs an `Idempotency-Key`, whose records are in Redis. Order and message are written in one transaction of
//! PostgreSQL (`api.rs`). The relay sends the message to RabbitMQ, and a worker ships the order: shipment and record are one
//! transaction (`shipping.rs`), which is level L3.
//!
//! Each role serves `/healthz`, `/readyz` and `/metrics` (`health.rs`), reads its URLs from files (`arguments.rs`), and drains at
//! SIGTERM within its grace period. `guides/deploying.md` describes the deployment.
#![allow(clippy::print_stdout, reason = "the program reports its progress")]
mod api;
mod arguments;
mod database;
mod health;
mod shipping;

use clap::Parser;

use self::arguments::{Arguments, Command};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match Arguments::parse().command {
        Command::Migrate(database) => database::migrate(&database.url()?).await,
        Command::Serve(serve) => api::serve(serve).await,
        Command::Relay(relay) => shipping::relay(relay).await,
        Command::Work(work) => shipping::work(work).await,
        Command::Probe { url } => health::probe(&url).await,
    }
}
