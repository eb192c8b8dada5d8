//! The arguments of the commands for streams.
use clap::{Args, Subcommand};

use super::KeyArguments;

/// The commands for streams of numbered calls.
#[derive(Debug, Subcommand)]
pub(crate) enum OrderCommand {
    /// Lists the streams in which a delivered number waits. Redis cannot list its streams.
    ///
    /// The store keeps a hash of each stream, so the list cannot show the key of a stream. The list shows the scope of the call
    /// that ran last, and the readable part of the call that blocks, if its policy stores one (`display_key`).
    /// A stream whose first number was never delivered has neither: its producer knows which streams it has registered.
    #[command(visible_alias = "ls", after_help = "Example:\n  idempotent order list --store postgres://localhost/shop")]
    List(OrderListArguments),
    /// Shows the order of one stream, and the state of the call that blocks it.
    #[command(
        after_help = "Example:\n  idempotent order show --scope points --part ann\n\nThe key is that of the stream, not that of a call."
    )]
    Show(KeyArguments),
}

#[derive(Args, Debug)]
pub(crate) struct OrderListArguments {
    /// Lists streams in which nothing waits, too.
    #[arg(long)]
    pub(crate) all: bool,
    /// The largest number of streams to print.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "N")]
    pub(crate) limit: u32,
    /// The largest number of streams that the store examines.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) budget: u32,
}
