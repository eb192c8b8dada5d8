//! The arguments of the capacity calculator.
use std::time::Duration;

use clap::{Args, ValueEnum};
use idempotent_operate::plan::{Condition, Engine, Prices, Workload, parse_bytes, parse_rate};

const EXAMPLES: &str = "\
Examples:
  idempotent plan --rate 12000/s --retention 24h
  idempotent plan --rate 1e9/day --retention 24h --engine redis --fail-if 'masters>8'
  idempotent plan --from redis://localhost --retention 7d

The constants come from the benchmarks of this project, on one machine. --explain prints each of them.";

/// The load, the limits of a server, and the form of the output.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArguments {
    /// The average number of new keys, such as `12000/s` or `1e9/day`.
    #[arg(long, value_parser = parse_rate, required_unless_present = "from", value_name = "RATE")]
    rate: Option<f64>,
    /// The time for which a consumed key is kept, such as `24h`.
    #[arg(long, value_parser = humantime::parse_duration, required_unless_present = "from", value_name = "DURATION")]
    retention: Option<Duration>,
    /// The rate at the peak, as a multiple of the average [default: 5].
    #[arg(long, value_name = "FACTOR")]
    peak: Option<f64>,
    /// The encoded size of a stored result, such as `100B` [default: none].
    #[arg(long, value_parser = parse_bytes, value_name = "BYTES")]
    result: Option<f64>,
    /// Plans for a fingerprint in each record.
    #[arg(long)]
    fingerprint: bool,
    /// The time of a handler, such as `200ms` [default: 200ms].
    #[arg(long, value_parser = humantime::parse_duration, value_name = "DURATION")]
    handler: Option<Duration>,
    /// Duplicates per new key [default: 0.02].
    #[arg(long, value_name = "NUMBER")]
    duplicates: Option<f64>,
    /// The replicas of each server [default: 1].
    #[arg(long, value_name = "N")]
    replicas: Option<u32>,
    /// The memory of one server of Redis [default: 8GB].
    #[arg(long, value_parser = parse_bytes, value_name = "BYTES")]
    node: Option<f64>,
    /// The cores of one server of Redis that records may use at the peak [default: 0.5].
    #[arg(long, value_name = "CORES")]
    cpu_per_node: Option<f64>,
    /// The systems to compare.
    #[arg(long, value_enum, default_value_t = EngineArgument::All, value_name = "ENGINE")]
    engine: EngineArgument,
    /// The monthly price of a GB of memory. With a price, the cheapest form is first.
    #[arg(long, value_name = "PRICE")]
    price_gb: Option<f64>,
    /// The monthly price of a core.
    #[arg(long, value_name = "PRICE")]
    price_core: Option<f64>,
    /// The monthly price of a GB of disk.
    #[arg(long, value_name = "PRICE")]
    price_disk_gb: Option<f64>,
    /// Prints one JSON object, as `-o jsonl` does.
    #[arg(long)]
    pub(crate) json: bool,
    /// Prints each formula with its numbers, and each constant with the benchmark that measured it.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Ends with exit code 6 if no form is within the budget, such as `masters>8` or `memory>=100GB`. May be repeated.
    #[arg(long, value_name = "CONDITION")]
    pub(crate) fail_if: Vec<Condition>,
    /// Takes rate, retention and sizes from this store in Redis or Valkey: a URL, or `@FILE` with the URL in its first line. Other
    /// options override them.
    #[arg(long, value_name = "URL")]
    pub(crate) from: Option<String>,
}

/// The systems that a plan compares.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum EngineArgument {
    Redis,
    Valkey,
    Postgres,
    /// Redis and PostgreSQL.
    All,
}

impl PlanArguments {
    /// Returns the workload. `observed` is that of a running store.
    pub(crate) fn workload(&self, observed: Option<Workload>) -> Workload {
        // Without a running store, the parser requires both.
        let (rate, retention) = (self.rate.unwrap_or_default(), self.retention.unwrap_or_default());
        let mut load = observed.unwrap_or_else(|| Workload::new(rate, retention));
        set(&mut load.rate, self.rate);
        set(&mut load.retention, self.retention);
        set(&mut load.peak, self.peak);
        if let Some(bytes) = self.result {
            (load.result_bytes, load.results) = (bytes, 1.0);
        }
        set(&mut load.fingerprints, self.fingerprint.then_some(1.0));
        set(&mut load.handler, self.handler);
        set(&mut load.duplicates, self.duplicates);
        set(&mut load.replicas, self.replicas);
        set(&mut load.node_bytes, self.node);
        set(&mut load.cores_per_node, self.cpu_per_node);
        load.engine = match self.engine {
            EngineArgument::Redis => Engine::Redis,
            EngineArgument::Valkey => Engine::Valkey,
            EngineArgument::Postgres => Engine::Postgres,
            EngineArgument::All => Engine::All,
        };
        let prices = [self.price_gb, self.price_core, self.price_disk_gb];
        load.prices = prices.iter().any(Option::is_some).then(|| {
            let [memory_gb, core, disk_gb] = prices.map(Option::unwrap_or_default);
            Prices { memory_gb, core, disk_gb }
        });
        load
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}
