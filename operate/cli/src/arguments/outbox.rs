//! The arguments of the commands for outboxes.
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::ChangeOptions;

/// The commands for outboxes.
#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// Counts the waiting messages, and shows the age of the oldest unsent one.
    #[command(after_help = "Example:\n  idempotent outbox status --outbox postgres://localhost/shop")]
    Status(OutboxOptions),
    /// Lists the messages of one status, in the order in which they were written. Never prints a body.
    #[command(
        visible_alias = "ls",
        after_help = "Example:\n  idempotent outbox list --outbox postgres://localhost/shop --status dead"
    )]
    List(OutboxListArguments),
    /// Shows one message with the names and sizes of its headers, and with its changes by operators.
    #[command(after_help = "Example:\n  idempotent outbox show --outbox postgres://localhost/shop payment-4711")]
    Show(OutboxShowArguments),
    /// Makes unconfirmed or dead messages due now, and resets their numbers of sends.
    ///
    /// If a relay is sending the message or a consumer is processing it, the consumer receives it once more, with the same id.
    #[command(after_help = RESEND)]
    Resend(OutboxChangeArguments),
    /// Voids unconfirmed or dead messages: no relay sends them again.
    ///
    /// A copy that a consumer has received already may still take effect. Later messages of the same aggregate no longer wait.
    #[command(
        after_help = "Example:\n  idempotent outbox void --outbox postgres://localhost/shop payment-4711 --reason 'paid twice'"
    )]
    Void(OutboxChangeArguments),
    /// Removes confirmed and void messages. The id of a removed message can be written, and sent, again.
    #[command(after_help = "Example:\n  idempotent outbox purge --outbox postgres://localhost/shop --older-than 30d")]
    Purge(OutboxPurgeArguments),
}

const RESEND: &str = "\
Examples:
  idempotent outbox resend --outbox postgres://localhost/shop payment-4711 --reason 'the queue is bound now'
  idempotent outbox list --status dead -o key | xargs idempotent outbox resend --yes --reason 'the queue is bound now'";

/// The place of an outbox.
#[derive(Args, Debug)]
pub(crate) struct OutboxOptions {
    /// The database's URL, or `@FILE` with the URL in its first line: `postgres://HOST/DATABASE`, `mysql://HOST/DATABASE` or
    /// `sqlite:PATH` [default: the URL of --store].
    #[arg(long, env = "IDEMPOTENT_OUTBOX", hide_env_values = true, value_name = "URL")]
    pub(crate) outbox: Option<String>,
    /// The name of the outbox's table.
    #[arg(long, default_value = "idempotent_outbox", value_name = "TABLE")]
    pub(crate) name: String,
}

/// The status of a message.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OutboxStatusArgument {
    Unconfirmed,
    Confirmed,
    Void,
    Dead,
}

#[derive(Args, Debug)]
pub(crate) struct OutboxListArguments {
    #[command(flatten)]
    pub(crate) place: OutboxOptions,
    /// The status of the messages.
    #[arg(long, value_enum, default_value_t = OutboxStatusArgument::Unconfirmed, value_name = "STATUS")]
    pub(crate) status: OutboxStatusArgument,
    /// The largest number of messages to print.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "N")]
    pub(crate) limit: u32,
    /// The number of the message at which the page before ended.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..), value_name = "N")]
    pub(crate) after: i64,
}

#[derive(Args, Debug)]
pub(crate) struct OutboxShowArguments {
    #[command(flatten)]
    pub(crate) place: OutboxOptions,
    /// The id of the message.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Prints the body, escaped and at most 16 KiB of it.
    #[arg(long)]
    pub(crate) show_body: bool,
}

#[derive(Args, Debug)]
pub(crate) struct OutboxChangeArguments {
    #[command(flatten)]
    pub(crate) place: OutboxOptions,
    /// The ids of the messages.
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) change: ChangeOptions,
}

/// The age below which a purge needs `--allow-resend`.
pub(crate) const SHORTEST_AGE: Duration = Duration::from_secs(7 * 86_400);

#[derive(Args, Debug)]
pub(crate) struct OutboxPurgeArguments {
    #[command(flatten)]
    pub(crate) place: OutboxOptions,
    /// The shortest time since a message was confirmed or voided. Choose at least the retention of the consumers.
    #[arg(long, default_value = "7d", value_parser = humantime::parse_duration, value_name = "DURATION")]
    pub(crate) older_than: Duration,
    /// Allows less than 7 days. A message whose id was removed can be written, and sent, again.
    #[arg(long)]
    pub(crate) allow_resend: bool,
    /// The largest number of messages to remove.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) limit: u32,
}

impl OutboxCommand {
    pub(crate) fn place(&self) -> &OutboxOptions {
        match self {
            Self::Status(place) => place,
            Self::List(list) => &list.place,
            Self::Show(show) => &show.place,
            Self::Resend(change) | Self::Void(change) => &change.place,
            Self::Purge(purge) => &purge.place,
        }
    }
}
