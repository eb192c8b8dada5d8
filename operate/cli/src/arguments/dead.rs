//! The arguments of the commands for dead letters and for delayed messages.
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use idempotent::Timestamp;
use idempotent_operate::LetterFilter;

use super::ChangeOptions;

/// The commands for dead letters.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadCommand {
    /// Lists dead letters, from the oldest on. Never prints a body.
    #[command(visible_alias = "ls", after_help = LIST)]
    List(LetterArguments),
    /// Shows one dead letter with the names and sizes of its headers.
    #[command(after_help = SHOW)]
    Show(ShowArguments),
    /// Puts dead letters back into their queue, from the oldest on. In a quorum queue, each earlier look has changed their order.
    ///
    /// The letters of the start of the command are the fixed set: a letter that arrives later is not put back. A key that is
    /// dead or failed never runs again, so its message is dead-lettered at once. `--let-go` makes the key claimable first.
    #[command(after_help = REDRIVE)]
    Redrive(RedriveArguments),
    /// Removes dead letters for good, from the oldest on. Their messages are lost.
    ///
    /// The keys of the letters stay unchanged. The letters of the start of the command are the fixed set: a letter that arrives
    /// later stays.
    #[command(after_help = DISCARD)]
    Discard(DiscardArguments),
}

const LIST: &str = "\
Example:
  idempotent dead list --queue amqp://localhost/shop --name orders --cause 'no stock'

RabbitMQ counts each look at a letter of a quorum queue as a delivery, see --assume-delivery-limit. The letters return when
the command ends: to their place in a classic queue, and after the others in a quorum queue. Name a letter by --id.

RocketMQ: pass --queue rocketmq://HOST --name TOPIC --group GROUP. A redrive or removal moves the letters before the last
changed one to the end.";

const SHOW: &str = "\
Example:
  idempotent dead show --queue redis+stream://localhost --name orders --position 1 --show-body";

const REDRIVE: &str = "\
Example:
  idempotent dead redrive --queue redis+delay://localhost --name orders --limit 100 --let-go --reason 'stock corrected'

Ctrl-C ends the command after the current letter. A command that is killed loses no letter. The current message may be in its
queue and among the dead letters, with one id.";

const DISCARD: &str = "\
Examples:
  idempotent dead discard --queue amqp://localhost/shop --name orders --id 5-0@1795187175000000 --reason 'customer deleted'
  idempotent dead discard --queue amqp://localhost/shop --name orders --cause 'no such customer' --limit 100 --dry-run

Ctrl-C ends the command after the current letter.";

/// The name of a queue.
#[derive(Args, Debug)]
pub(crate) struct QueueOptions {
    /// The URL of the queue's server, or `@FILE` with the URL in its first line; `idempotent dead --help` lists the forms. Pass a URL
    /// with a password by the environment or by a file.
    #[arg(long, env = "IDEMPOTENT_QUEUE", hide_env_values = true, value_name = "URL")]
    pub(crate) queue: Option<String>,
    /// The name of the queue, stream, topic or delay table from which the messages were dead-lettered.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new(), value_name = "NAME")]
    pub(crate) name: String,
    /// The consumer group that has dead-lettered the messages of a RocketMQ topic.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new(), value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// The stream, topic or queue of the dead letters [default: NAME:dead of a Redis stream, NAME-dead of JetStream, Kafka and SQS,
    /// NAME_dead of PGMQ, GROUP-dead of RocketMQ].
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new(), value_name = "STREAM")]
    pub(crate) dead_stream: Option<String>,
    /// The number of slots of a delay queue, as its consumers set it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1_024), value_name = "N")]
    pub(crate) slots: u16,
    /// The delivery limit of the dead-letter queue, if it is a quorum queue. RabbitMQ drops a letter that was read more
    /// often. The command stops at a letter that has used up half of the limit. The dead-letter queues that `idempotent`
    /// declares have a limit of 1000000.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) assume_delivery_limit: u32,
}

/// A selection of dead letters.
#[derive(Args, Debug)]
pub(crate) struct LetterFilterArguments {
    /// Only the letter with this id, as `dead list` prints it. Repeatable.
    #[arg(long, value_name = "ID")]
    id: Vec<String>,
    /// Only the letters of messages with this id. A resend, two groups and a second death leave several letters of one message.
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    /// Only letters whose reason contains this text.
    #[arg(long, value_name = "TEXT")]
    cause: Option<String>,
    /// Only letters that died before this time, such as `2026-11-22T06:00:00Z`.
    #[arg(long, value_parser = time, value_name = "TIME")]
    died_before: Option<Timestamp>,
    /// Only letters that died at this time or later.
    #[arg(long, value_parser = time, value_name = "TIME")]
    died_after: Option<Timestamp>,
    /// The smallest number of attempts.
    #[arg(long, value_name = "N")]
    min_attempts: Option<u32>,
    /// The smallest number of deaths.
    #[arg(long, value_name = "N")]
    min_deaths: Option<u32>,
    /// The largest number of deaths [redrive without --id: 3].
    #[arg(long, value_name = "N")]
    max_deaths: Option<u32>,
}

impl LetterFilterArguments {
    pub(crate) fn filter(&self) -> LetterFilter {
        let mut filter = LetterFilter::default();
        filter.ids = self.id.iter().map(|id| id.as_str().into()).collect();
        filter.message_id.clone_from(&self.message_id);
        filter.cause.clone_from(&self.cause);
        (filter.died_before, filter.died_after) = (self.died_before, self.died_after);
        (filter.min_attempts, filter.min_deaths) = (self.min_attempts, self.min_deaths);
        filter.max_deaths = self.max_deaths;
        filter
    }
}

#[derive(Args, Debug)]
pub(crate) struct LetterArguments {
    #[command(flatten)]
    pub(crate) queue: QueueOptions,
    #[command(flatten)]
    pub(crate) filter: LetterFilterArguments,
    /// The largest number of letters to print.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "N")]
    pub(crate) limit: u32,
}

#[derive(Args, Debug)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    pub(crate) queue: QueueOptions,
    /// The id, as for `dead list`.
    #[arg(long, required_unless_present = "position", conflicts_with = "position", value_name = "ID")]
    pub(crate) id: Option<String>,
    /// The position in the list.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub(crate) position: Option<u64>,
    /// Prints the body, escaped and at most 16 KiB of it.
    #[arg(long)]
    pub(crate) show_body: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RedriveArguments {
    #[command(flatten)]
    pub(crate) queue: QueueOptions,
    #[command(flatten)]
    pub(crate) filter: LetterFilterArguments,
    /// The largest number of letters to put back.
    #[arg(long, required_unless_present = "id", value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "N")]
    pub(crate) limit: Option<u32>,
    /// The largest number of letters per second, or 0 for no limit.
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) rate: u32,
    /// Makes the key of each letter claimable in the store of --store first, unless the key was granted again.
    #[arg(long)]
    pub(crate) let_go: bool,
    #[command(flatten)]
    pub(crate) put_back: PutBackOptions,
    #[command(flatten)]
    pub(crate) change: ChangeOptions,
}

/// The destination of letters that are put back.
#[derive(Args, Debug, Default)]
pub(crate) struct PutBackOptions {
    /// The queue, topic or NATS subject into which all letters are put back, whichever they name. It must exist [default: the one of
    /// --name]. Not for Redis Streams, delay queues and delay tables.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new(), value_name = "NAME")]
    pub(crate) to: Option<String>,
    /// Leaves out the headers of Kafka messages that the client cannot read, so that a handler runs.
    #[arg(long)]
    pub(crate) without_unreadable_headers: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DiscardArguments {
    #[command(flatten)]
    pub(crate) queue: QueueOptions,
    #[command(flatten)]
    pub(crate) filter: LetterFilterArguments,
    /// The largest number of letters to remove.
    #[arg(long, required_unless_present = "id", value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "N")]
    pub(crate) limit: Option<u32>,
    #[command(flatten)]
    pub(crate) change: ChangeOptions,
}

/// The number of deaths after which a redrive without ids leaves a letter.
const MAX_DEATHS: u32 = 3;

impl RedriveArguments {
    /// Returns the filter, with a default for the number of deaths.
    pub(crate) fn filter(&self) -> LetterFilter {
        let mut filter = self.filter.filter();
        if filter.ids.is_empty() {
            filter.max_deaths.get_or_insert(MAX_DEATHS);
        }
        filter
    }
}

/// Parses a time of RFC 3339.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    let time = humantime::parse_rfc3339(text).ok().and_then(|time: SystemTime| time.duration_since(UNIX_EPOCH).ok());
    let micros = time.and_then(|time| u64::try_from(time.as_micros()).ok());
    micros.map(Timestamp).ok_or_else(|| "expected a time in UTC, such as `2026-11-22T06:00:00Z`".to_owned())
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_date_and_a_zone() {
        assert_eq!(time("2026-11-20T15:06:15Z"), Ok(Timestamp(1_795_187_175_000_000)));
        for bad in ["", "2026-11-20", "15:06", "2026-11-20T15:06:15", "1960-01-01T00:00:00Z", "yesterday"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
