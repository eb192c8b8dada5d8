//! The command line.
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    about = "Accepts orders and ships each order once",
    after_help = "URL is a URL, or @FILE with the URL in its first line. Other users can read an argument: pass a password by a file."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Creates the tables of the orders and the outbox; `idempotent migrate` creates the table of the records
    Migrate(DatabaseUrl),
    /// Accepts orders by HTTP
    Serve(ServeArguments),
    /// Sends the messages of the outbox to RabbitMQ
    Relay(RelayArguments),
    /// Ships orders
    Work(WorkArguments),
    /// Requests a URL, and fails unless the answer is a success: the health check of a container without a shell
    Probe { url: String },
}

#[derive(Args, Debug)]
pub(crate) struct DatabaseUrl {
    /// PostgreSQL
    #[arg(long, value_name = "URL")]
    database: String,
}

#[derive(Args, Debug)]
pub(crate) struct BrokerUrl {
    /// RabbitMQ
    #[arg(long, value_name = "URL")]
    broker: String,
}

#[derive(Args, Debug)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) database: DatabaseUrl,
    /// The store of the idempotency keys, such as Redis
    #[arg(long, value_name = "URL")]
    keys: String,
    /// The address of the API, of the health checks and of the metrics
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// The time for requests and runs to complete after SIGTERM
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) grace: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct RelayArguments {
    #[command(flatten)]
    pub(crate) database: DatabaseUrl,
    #[command(flatten)]
    pub(crate) broker: BrokerUrl,
    /// The address of the health checks and of the metrics
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// The lease of a batch, which bounds the time to complete after SIGTERM
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) lease: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct WorkArguments {
    #[command(flatten)]
    pub(crate) database: DatabaseUrl,
    #[command(flatten)]
    pub(crate) broker: BrokerUrl,
    /// The address of the health checks and of the metrics
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// The time for running handlers to complete after SIGTERM
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) grace: Duration,
    /// The time for other runs of the executor to complete after the handlers
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) drain: Duration,
}

impl DatabaseUrl {
    pub(crate) fn url(&self) -> anyhow::Result<String> {
        read_url("--database", &self.database)
    }
}

impl BrokerUrl {
    pub(crate) fn url(&self) -> anyhow::Result<String> {
        read_url("--broker", &self.broker)
    }
}

impl ServeArguments {
    pub(crate) fn keys(&self) -> anyhow::Result<String> {
        read_url("--keys", &self.keys)
    }
}

/// Returns a URL, or the first line of the file that `@FILE` names.
fn read_url(option: &str, url: &str) -> anyhow::Result<String> {
    let Some(path) = url.strip_prefix('@') else { return Ok(url.to_owned()) };
    let text = fs::read_to_string(path).with_context(|| format!("{option}: cannot read a URL from `{path}`"))?;
    match text.lines().next().map(str::trim) {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => bail!("{option}: the file `{path}` has no URL in its first line"),
    }
}
