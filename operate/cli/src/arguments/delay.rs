//! The arguments of the commands for delay queues and delay tables.
use clap::{Args, Subcommand};

/// The commands for delayed messages.
#[derive(Debug, Subcommand)]
pub(crate) enum DelayCommand {
    /// Counts the messages that are ready, waiting, in flight and dead, and shows the age of the oldest ready one.
    #[command(after_help = STATUS)]
    Status(DelayOptions),
}

const STATUS: &str = "\
Examples:
  idempotent delay status --queue redis+delay://localhost --name orders --slots 4
  idempotent delay status --queue postgres://localhost/shop --name order_limits

The counts of a table end at 10,000, so that a large table does not make the command slow.";

/// The name of a delay queue or delay table.
#[derive(Args, Debug)]
pub(crate) struct DelayOptions {
    /// The URL, or `@FILE` with the URL in its first line: `redis[s]+delay://HOST` for a delay queue, or
    /// `postgres://HOST/DATABASE`, `mysql://HOST/DATABASE` or `sqlite:PATH` for a delay table.
    #[arg(long, env = "IDEMPOTENT_QUEUE", hide_env_values = true, value_name = "URL")]
    pub(crate) queue: Option<String>,
    /// The topic of the delay queue, or the name of the table.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new(), value_name = "NAME")]
    pub(crate) name: String,
    /// The number of slots of a delay queue, as its consumers set it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_024), value_name = "N")]
    pub(crate) slots: u16,
}
