//! The command `cargo xtask bench NAME`: measures costs, compared with a floor of the same run.
mod figures;
mod page;
mod peers;
mod plot;

use std::error::Error;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use self::figures::Figure;
use crate::setup::flavours::{self, REDIS as REDIS_OF_TODAY, VALKEY};
use crate::setup::packaged;
use crate::tools::{Done, cargo, root};

/// The variable that names another Redis server.
const SERVER: &str = "IDEMPOTENT_REDIS_SERVER";

/// A group of measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bench {
    name: &'static str,
    package: &'static str,
    /// Cargo's bench targets, in the order in which they run.
    targets: &'static [&'static str],
}

pub(crate) const CORE: Bench = Bench { name: "core", package: "idempotent-core-bench", targets: &["core", "heap"] };
pub(crate) const REDIS: Bench = Bench { name: "redis", package: "idempotent-redis-bench", targets: &["redis"] };
pub(crate) const HTTP: Bench =
    Bench { name: "http", package: "idempotent-http-bench", targets: &["http", "in_flight"] };
pub(crate) const MQ: Bench = Bench { name: "mq", package: "idempotent-mq-bench", targets: &["mq"] };
pub(crate) const NATS: Bench = Bench { name: "nats", package: "idempotent-nats-bench", targets: &["nats"] };
pub(crate) const PGMQ: Bench = Bench { name: "pgmq", package: "idempotent-pgmq-bench", targets: &["pgmq"] };
pub(crate) const KAFKA: Bench = Bench { name: "kafka", package: "idempotent-kafka-bench", targets: &["kafka"] };
pub(crate) const SQS: Bench = Bench { name: "sqs", package: "idempotent-sqs-bench", targets: &["sqs"] };
pub(crate) const DELIVERY: Bench =
    Bench { name: "delivery", package: "idempotent-delivery-bench", targets: &["delivery"] };
pub(crate) const SQL: Bench = Bench { name: "sql", package: "idempotent-sql-bench", targets: &["sql"] };
pub(crate) const OPERATE: Bench = Bench { name: "operate", package: "idempotent-operate-bench", targets: &["operate"] };
pub(crate) const GROWTH: Bench = Bench { name: "growth", package: "idempotent-growth-bench", targets: &["growth"] };
pub(crate) const SCALE: Bench =
    Bench { name: "scale", package: "idempotent-scale-bench", targets: &["scale", "compact_cache"] };
pub(crate) const PEERS: Bench = Bench { name: "peers", package: "idempotent-peers-bench", targets: &["peers"] };

/// The figures that `idempotent plan` calculates with: a copy of the figures of [`SCALE`], as a package contains only its own folder.
const CONSTANTS: &str = "operate/library/src/plan/measured.jsonl";

/// The benches with the option `--full`.
const FULL: [Bench; 2] = [OPERATE, SCALE];

/// The options after the name.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Options {
    json: bool,
    write: bool,
    /// Ten times as many records, for the benches in [`FULL`].
    full: bool,
    only: Option<String>,
}

impl Options {
    /// Parses the options.
    ///
    /// # Errors
    /// The argument is unknown. The error names it, and the valid ones.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        for argument in arguments {
            match *argument {
                "--json" => options.json = true,
                "--write" => options.write = true,
                "--full" => options.full = true,
                only if !only.starts_with('-') && options.only.is_none() => options.only = Some(only.to_owned()),
                other => return Err(crate::unknown(other, &["--json", "--write", "--full"])),
            }
        }
        match &options {
            Self { write: true, only: Some(only), .. } => Err(format!(
                "`--write` makes the whole page, some figures would take the others away: leave `{only}` out"
            )),
            Self { write: true, json: true, .. } => {
                Err("`--write` prints the figures as JSON in any case: leave `--json` out".to_owned())
            }
            _ => Ok(options),
        }
    }
}

/// Runs a bench. A missed goal is printed, but is not a failure: this machine may not be the one to judge by.
pub(crate) fn run(bench: Bench, options: &Options) -> Done {
    if options.full && FULL.iter().all(|full| full.name != bench.name) {
        let names = FULL.map(|full| format!("`bench {}`", full.name)).join(" and ");
        return Err(format!("`--full` is an option of {names}: leave it out for `{}`", bench.name).into());
    }
    let mut variables = vec![vec![]];
    if bench.name == PEERS.name {
        variables = vec![peers::install()?];
    }
    if bench.name == REDIS.name {
        variables.extend(on_flavours()?);
    }
    if bench.name == KAFKA.name {
        packaged::kafka()?;
    }
    if bench.name == SQS.name {
        packaged::moto()?;
    }
    let mut lines = String::new();
    for variables in variables {
        let mut run = cargo(&["bench", "--quiet", "--locked", "--package", bench.package])?;
        run.args(bench.targets.iter().flat_map(|target| ["--bench", target])).arg("--").args(&options.only);
        run.args(options.full.then_some("--full")).envs(variables);
        if options.write {
            lines += &output(run.arg("--json"))?;
        } else if !run.args(options.json.then_some("--json")).status()?.success() {
            return Ok(false);
        }
    }
    if !options.write {
        return Ok(true);
    }
    let figures = lines.lines().map(Figure::parse).collect::<Result<Vec<_>, _>>()?;
    write(bench.name, &root()?.join("docs"), &lines, &figures)?;
    if bench.name == SCALE.name {
        std::fs::write(root()?.join(CONSTANTS), &lines)?;
    }
    print!("{lines}");
    Ok(true)
}

type Variables = Vec<(&'static str, OsString)>;

/// Returns the variables for each further flavour of Redis, and installs the servers.
fn on_flavours() -> Result<Vec<Variables>, Box<dyn Error>> {
    if !flavours::all()? {
        return Err("Redis and Valkey of today cannot be installed".into());
    }
    let variables = [&REDIS_OF_TODAY, &VALKEY].map(|flavour| {
        let version = format!("{} {}", flavour.name.to_lowercase(), flavour.version()?);
        Ok(vec![flavour.environment()?, ("IDEMPOTENT_REDIS_VERSION", version.into())])
    });
    variables.into_iter().collect()
}

fn output(run: &mut Command) -> Result<String, Box<dyn std::error::Error>> {
    let output = run.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err("the benches did not run to their end".into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Writes the figures, their table on the page, and its plots.
fn write(name: &str, docs: &Path, lines: &str, figures: &[Figure]) -> Result<(), Box<dyn std::error::Error>> {
    let folder = docs.join("benchmarks");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(format!("{name}.jsonl")), lines)?;
    plot::against_goals(figures, &folder.join(format!("{name}-goals.svg")))?;
    plot::beside_floors(figures, &folder.join(format!("{name}-floors.svg")))?;
    let page = docs.join("benchmarks.md");
    std::fs::write(&page, page::with_table(&std::fs::read_to_string(&page)?, name, figures)?)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_unknown_ones_are_refused() {
        let only = Options { json: true, only: Some("fresh".into()), ..Options::default() };
        assert_eq!(Options::parse(&["--json", "fresh"]), Ok(only));
        assert!(Options::parse(&["fresh", "duplicate"]).is_err_and(|e| e.contains("`duplicate`")));
    }

    /// Checks that the page agrees with the figures, since only `--write` writes it.
    #[test]
    fn the_page_says_what_was_measured() {
        let docs = root().unwrap().join("docs");
        let page = std::fs::read_to_string(docs.join("benchmarks.md")).unwrap();
        for Bench { name, .. } in
            [CORE, REDIS, HTTP, MQ, NATS, PGMQ, KAFKA, SQS, SQL, DELIVERY, OPERATE, GROWTH, SCALE, PEERS]
        {
            let Ok(lines) = std::fs::read_to_string(docs.join(format!("benchmarks/{name}.jsonl"))) else {
                assert!(page::is_unmeasured(&page, name), "the figures of the table of `bench {name}` are missing");
                continue;
            };
            let figures: Vec<_> = lines.lines().map(|line| Figure::parse(line).unwrap()).collect();
            let anew = page::with_table(&page, name, &figures).unwrap();
            assert_eq!(anew, page, "`cargo xtask bench {name} --write` anew");
        }
    }

    #[test]
    fn the_calculator_has_the_figures_of_the_bench() {
        let measured = std::fs::read_to_string(root().unwrap().join("docs/benchmarks/scale.jsonl")).unwrap();
        assert_eq!(
            std::fs::read_to_string(root().unwrap().join(CONSTANTS)).unwrap(),
            measured,
            "run `bench scale --write`"
        );
    }

    #[test]
    fn a_bench_without_more_records_refuses_the_option() {
        let error = run(CORE, &Options { full: true, ..Options::default() }).unwrap_err().to_string();
        assert!(error.contains("`bench operate` and `bench scale`") && error.contains("`core`"), "{error}");
    }

    #[test]
    fn plots_show_every_figure_that_has_a_goal_or_a_floor() {
        let line = |ratio: f64, met: bool| {
            format!(
                r#"{{"bench":"core","case":"fresh","store":"memory","concurrency":64,"unit":"ns","value":1500.0,
                "floor":500.0,"ratio":{ratio},"goal":"<= 5","met":{met}}}"#
            )
        };
        let figures = [Figure::parse(&line(3.0, true)).unwrap(), Figure::parse(&line(7.5, false)).unwrap()];
        let folder = std::env::temp_dir().join(format!("idempotent-plots-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let svg = |name: &str, plot: plot::Plot| {
            plot(&figures, &folder.join(name)).unwrap();
            std::fs::read_to_string(folder.join(name)).unwrap()
        };
        let (goals, floors) = (svg("goals.svg", plot::against_goals), svg("floors.svg", plot::beside_floors));
        std::fs::remove_dir_all(&folder).unwrap();
        for text in ["memory fresh, 64 at once", "3.00 (goal &lt;= 5)", "7.50 (goal &lt;= 5), missed"] {
            assert!(goals.contains(text), "{text} is missing in {goals}");
        }
        assert!(floors.contains("1500 ns") && floors.contains("500 ns"), "{floors}");
    }
}
