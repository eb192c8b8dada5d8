//! The arguments of all commands.
mod audit;
#[cfg(feature = "console")]
mod console;
mod dead;
mod key;
mod migrate;
#[cfg(feature = "database")]
mod outbox;
mod plan;

use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use idempotent::store::StateKind;
use idempotent_operate::{KeyFilter, NamePattern};

pub(crate) use self::audit::{AuditArguments, ChangeOptions};
#[cfg(feature = "console")]
pub(crate) use self::console::{ConsoleArguments, NamedUrl};
pub(crate) use self::dead::{
    DeadCommand, DelayCommand, DelayOptions, DiscardArguments, LetterArguments, PutBackOptions, QueueOptions,
    RedriveArguments, ShowArguments,
};
pub(crate) use self::key::{KeyArguments, OrderCommand, OrderListArguments};
pub(crate) use self::migrate::{Dialect, Division, MigrateCommand};
#[cfg(feature = "database")]
pub(crate) use self::outbox::{
    OutboxChangeArguments, OutboxCommand, OutboxListArguments, OutboxOptions, OutboxPurgeArguments,
    OutboxShowArguments, OutboxStatusArgument, SHORTEST_AGE,
};
pub(crate) use self::plan::PlanArguments;

/// Inspects and repairs the records of an idempotency store.
#[derive(Debug, Parser)]
#[command(name = "idempotent", version, after_help = after(), arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: GlobalOptions,
    #[command(subcommand)]
    pub(crate) command: Command,
}

fn after() -> String {
    format!("{EXAMPLES}\n\n{}", crate::exit::list())
}

const EXAMPLES: &str = "\
Examples:
  export IDEMPOTENT_STORE=redis://localhost
  idempotent list --orphaned
  idempotent inspect --scene mq --scope orders --part 4711
  idempotent forget KEY --reason 'stock corrected'
  idempotent release --scope orders --part 4711 --reason 'its worker was killed'
  idempotent doctor --fail-on warn
  idempotent order show --scene mq --scope entries --part acc-4
  idempotent dead list --queue amqp://localhost/shop --name orders
  idempotent dead redrive --queue amqp://localhost/shop --name orders --message-id m-17 --limit 1 --let-go --reason 'stock corrected'
  idempotent outbox status --outbox postgres://localhost/shop";

/// The options of every command.
#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalOptions {
    /// The store's URL, or `@FILE` with the URL in its first line. Other users can read an argument, so pass a URL with a
    /// password by the environment or by a file.
    #[arg(long, global = true, env = "IDEMPOTENT_STORE", hide_env_values = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// The executor's namespace.
    #[arg(long, global = true, env = "IDEMPOTENT_NAMESPACE", default_value = "idempotent", value_name = "NAME")]
    pub(crate) namespace: String,
    #[command(flatten)]
    pub(crate) names: TableNames,
    /// The format: `table` on a terminal, `jsonl` otherwise.
    #[arg(short, long, global = true, env = "IDEMPOTENT_OUTPUT", value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
    /// The longest time for the whole command, such as `10s`.
    #[arg(long, global = true, value_parser = humantime::parse_duration, value_name = "DURATION")]
    pub(crate) timeout: Option<Duration>,
    /// Refuses every command that writes.
    #[arg(long, global = true, env = "IDEMPOTENT_READ_ONLY", value_parser = clap::builder::FalseyValueParser::new())]
    pub(crate) read_only: bool,
    /// Logs errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Logs more to stderr. Twice for debugging. The lines of client libraries, which may contain passwords, are left out.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The place of the record table in a database.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TableNames {
    /// The record table of a database [default: idempotent_record].
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) table: Option<String>,
    /// The schema of the record table, for PostgreSQL, MariaDB and MySQL.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) schema: Option<String>,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns for people.
    Table,
    /// One JSON object per line.
    Jsonl,
    /// One storage key per line.
    Key,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows the record of one key.
    #[command(visible_alias = "show")]
    Inspect(KeyArguments),
    /// Lists keys.
    #[command(visible_alias = "ls")]
    List(ListArguments),
    /// Counts keys by their state. Without --state, consumed and vacant keys are not counted.
    Count(CountArguments),
    /// Makes a consumed, failed or dead key claimable again, so that its next duplicate runs.
    Forget(ForgetArguments),
    /// Takes a consuming key from its owner. The owner may still be running, and its effect may happen.
    Release(RepairArguments),
    /// Lists the dead letters of a queue, puts them back, or removes them.
    #[command(subcommand, after_help = crate::queue::help())]
    Dead(DeadCommand),
    /// Counts the messages of a delay queue or delay table.
    #[command(subcommand)]
    Delay(DelayCommand),
    /// Shows the messages of an outbox, and sends, voids or removes them.
    #[cfg(feature = "database")]
    #[command(subcommand)]
    Outbox(OutboxCommand),
    /// Shows streams whose numbered calls wait.
    #[command(subcommand)]
    Order(OrderCommand),
    /// Removes expired records. Redis removes them by itself.
    Purge(PurgeArguments),
    /// Prints the changes that an audit file contains.
    Audit(AuditArguments),
    /// Checks the store for everything that would lose records. Changes nothing.
    Doctor(DoctorArguments),
    /// Runs the web console for this store and for queues, outboxes and delay queues.
    #[cfg(feature = "console")]
    Console(ConsoleArguments),
    /// Calculates the servers, memory and processors for a load. Needs no store.
    Plan(Box<PlanArguments>),
    /// Shows and applies the migrations of a database.
    #[command(subcommand)]
    Migrate(MigrateCommand),
    /// Prints the completions of a shell.
    Completions { shell: clap_complete::Shell },
    /// Prints the manual page.
    Man,
}

/// The states that a listing selects.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum StateArgument {
    Consuming,
    Consumed,
    Failed,
    Dead,
    Vacant,
    /// The record cannot be read.
    Unreadable,
}

impl StateArgument {
    fn kind(self) -> Option<StateKind> {
        match self {
            Self::Consuming => Some(StateKind::Consuming),
            Self::Consumed => Some(StateKind::Consumed),
            Self::Failed => Some(StateKind::Failed),
            Self::Dead => Some(StateKind::Dead),
            Self::Vacant => Some(StateKind::Vacant),
            Self::Unreadable => None,
        }
    }
}

/// A selection of keys.
#[derive(Args, Debug)]
pub(crate) struct FilterArguments {
    /// The states, separated by commas. A vacant key may be claimed [default: consuming,failed,dead,unreadable].
    #[arg(long, value_delimiter = ',', value_name = "STATE")]
    state: Vec<StateArgument>,
    /// Only consuming keys whose lease ended longer ago than it lasted.
    #[arg(long)]
    orphaned: bool,
    /// The scene, or a prefix that ends in `*`.
    #[arg(long, value_parser = NamePattern::parse, value_name = "NAME")]
    scene: Option<NamePattern>,
    /// The scope, or a prefix that ends in `*`.
    #[arg(long, value_parser = NamePattern::parse, value_name = "NAME")]
    scope: Option<NamePattern>,
    /// The shortest time since the last write, such as `5m`.
    #[arg(long, value_parser = humantime::parse_duration, value_name = "DURATION")]
    older_than: Option<Duration>,
    /// The longest time since the last write.
    #[arg(long, value_parser = humantime::parse_duration, value_name = "DURATION")]
    newer_than: Option<Duration>,
    /// The smallest number of attempts.
    #[arg(long, default_value_t = 0, value_name = "N")]
    min_attempt: u32,
}

impl FilterArguments {
    pub(crate) fn filter(&self, namespace: &str) -> KeyFilter {
        let mut filter = KeyFilter::default();
        filter.namespace = Some(namespace.to_owned());
        if !self.state.is_empty() {
            filter.states = self.state.iter().filter_map(|state| state.kind()).collect();
            filter.unreadable = self.state.iter().any(|state| state.kind().is_none());
        }
        filter.orphaned = self.orphaned;
        filter.scene.clone_from(&self.scene);
        filter.scope.clone_from(&self.scope);
        filter.older_than = self.older_than;
        filter.newer_than = self.newer_than;
        filter.min_attempt = self.min_attempt;
        filter
    }
}

/// The default rate of listings and counts. With 10 M records in PostgreSQL, 20,000 records per second nearly double the p99 of claims
/// on two cores.
const EXAMINED_PER_SECOND: u32 = 5_000;

#[derive(Args, Debug)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    pub(crate) filter: FilterArguments,
    /// The largest number of keys of a page.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000), value_name = "N")]
    pub(crate) limit: u32,
    /// Prints all pages.
    #[arg(long, conflicts_with = "after")]
    pub(crate) all: bool,
    /// The cursor at which the page before ended.
    #[arg(long, value_parser = cursor, value_name = "CURSOR")]
    pub(crate) after: Option<u128>,
    /// The largest number of records that the store examines for a page.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) budget: u32,
    /// The largest number of records that the store examines per second with `--all`, so that workers are not delayed. 0: no limit.
    #[arg(long, default_value_t = EXAMINED_PER_SECOND, requires = "all", value_name = "N")]
    pub(crate) rate: u32,
}

#[derive(Args, Debug)]
pub(crate) struct CountArguments {
    #[command(flatten)]
    pub(crate) filter: FilterArguments,
    /// The largest number of records that the store examines. The counts are lower bounds after that.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) budget: u32,
    /// The largest number of records that the store examines per second, so that workers are not delayed. 0: no limit.
    #[arg(long, default_value_t = EXAMINED_PER_SECOND, value_name = "N")]
    pub(crate) rate: u32,
}

/// The options of a repair.
#[derive(Args, Debug)]
pub(crate) struct RepairOptions {
    #[command(flatten)]
    pub(crate) change: ChangeOptions,
    /// The time for which the store remembers the fencing number of a repaired key.
    #[arg(long, default_value = "1h", value_parser = humantime::parse_duration, value_name = "DURATION")]
    pub(crate) memory: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct RepairArguments {
    #[command(flatten)]
    pub(crate) key: KeyArguments,
    /// The fencing number that you saw. Without it, the command shows the record and asks.
    #[arg(long, value_parser = clap::value_parser!(u64).range(..1 << 53), value_name = "N")]
    pub(crate) fencing: Option<u64>,
    #[command(flatten)]
    pub(crate) options: RepairOptions,
}

#[derive(Args, Debug)]
#[command(
    after_help = "To forget many keys:\n  idempotent list --state dead --scope orders --all -o key |\n    while read -r key; do idempotent forget \"$key\" --yes --reason 'stock corrected'; done"
)]
pub(crate) struct ForgetArguments {
    #[command(flatten)]
    pub(crate) repair: RepairArguments,
}

#[derive(Args, Debug)]
pub(crate) struct PurgeArguments {
    /// The largest number of records to remove.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub(crate) limit: u32,
    /// Repeats the command at this interval, such as `1h`, until a signal. A failure ends it.
    #[arg(long, value_parser = interval, value_name = "DURATION")]
    pub(crate) every: Option<Duration>,
}

/// Parses an interval of at least a second.
fn interval(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text).map_err(|error| error.to_string())? {
        interval if interval >= Duration::from_secs(1) => Ok(interval),
        _ => Err("an interval is at least 1s".to_owned()),
    }
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArguments {
    /// Also checks that this RabbitMQ broker blocks no publishers: its URL `amqp[s]://HOST/VHOST`, or `@FILE` with the URL in its
    /// first line. The check publishes a message to a name without a queue, which the broker returns.
    #[arg(long, value_name = "URL")]
    pub(crate) queue: Option<String>,
    /// The lowest severity that ends the command with exit code 3.
    #[arg(long, value_enum, default_value_t = FailOn::Fail, value_name = "SEVERITY")]
    pub(crate) fail_on: FailOn,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum FailOn {
    Warn,
    Fail,
}

/// Parses the cursor of a page: 32 hexadecimal digits.
fn cursor(text: &str) -> Result<u128, String> {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let cursor = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
    cursor.ok_or_else(|| "a cursor has 32 hexadecimal digits; start without --after".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_contradict_each_other_nowhere() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_cursor_is_read_as_it_is_printed() {
        for value in [0, 1, u128::MAX] {
            assert_eq!(cursor(&format!("{value:032x}")), Ok(value));
        }
        for bad in ["", "12", &"g".repeat(32), &"1".repeat(33), &format!("+{}", "1".repeat(31))] {
            assert!(cursor(bad).is_err(), "{bad}");
        }
    }
}
