//! The command `cargo xtask bench NAME`: measures costs, compared with a floor of the same run.
mod figures;
mod overview;
mod peers;

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::ValueEnum;

use self::figures::{Figure, with_table};
use self::overview::Overview;
use crate::setup::flavours::{self, REDIS as REDIS_OF_TODAY, VALKEY};
use crate::setup::packaged;
use crate::tools::{Done, cargo, root};

/// The variable that names another Redis server.
const SERVER: &str = "IDEMPOTENT_REDIS_SERVER";

/// A group of measurements.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Bench {
    Core,
    Redis,
    Http,
    /// Counts instructions by valgrind, which no other load on the machine changes
    Instructions,
    Mq,
    Nats,
    Pgmq,
    Kafka,
    Sqs,
    Sql,
    Delivery,
    Operate,
    Growth,
    Scale,
    /// Measures other libraries, and installs them into the target folder
    Peers,
}

impl Bench {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns cargo's arguments for the bench targets, in the order in which they run.
    fn targets(self) -> Vec<String> {
        let name = self.name();
        let second = match self {
            Self::Core => Some("heap"),
            Self::Http => Some("in_flight"),
            Self::Scale => Some("compact_cache"),
            _ => None,
        };
        let targets = [name.as_str()].into_iter().chain(second).flat_map(|target| ["--bench", target]);
        [format!("--package=idempotent-{name}-bench")].into_iter().chain(targets.map(str::to_owned)).collect()
    }
}

/// The figures that `idempotent plan` calculates with: a copy of the figures of [`Bench::Scale`], as a package contains only its own
/// folder.
const CONSTANTS: &str = "operate/library/src/plan/measured.jsonl";

#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    name: Bench,
    /// Only the cases with this in their name
    filter: Option<String>,
    /// Prints the figures as JSON
    #[arg(long)]
    json: bool,
    /// Replaces the table in docs/benchmarks/NAME.md and the plots of docs/benchmarks.md, and prints the figures as JSON
    #[arg(long, conflicts_with_all = ["json", "filter"])]
    write: bool,
    /// Measures ten times as many records: `operate` with 10,000,000, and `scale` with 100,000,000 keys
    #[arg(long)]
    full: bool,
}

/// Runs a bench. A missed goal is printed, but is not a failure: this machine may not be the one to judge by.
pub(crate) fn run(options: &Options) -> Done {
    let bench = options.name;
    if options.full && !matches!(bench, Bench::Operate | Bench::Scale) {
        return Err("`--full` is an option of `bench operate` and `bench scale`".into());
    }
    let mut variables = vec![vec![]];
    match bench {
        Bench::Peers => variables = vec![peers::install()?],
        Bench::Redis => variables.extend(on_flavours()?),
        Bench::Kafka => drop(packaged::KAFKA.path()?),
        Bench::Sqs => drop(packaged::moto()?),
        _ => {}
    }
    let mut lines = String::new();
    for variables in variables {
        let mut run = cargo(&["bench", "--quiet", "--locked"])?;
        run.args(bench.targets()).arg("--").args(&options.filter);
        run.args(options.full.then_some("--full")).envs(variables);
        run.args((options.json || options.write).then_some("--json")).stderr(Stdio::inherit());
        let output = run.stdout(if options.write { Stdio::piped() } else { Stdio::inherit() }).output()?;
        if !output.status.success() {
            return Ok(false);
        }
        lines += &String::from_utf8(output.stdout)?;
    }
    if !options.write {
        return Ok(true);
    }
    let figures = lines.lines().map(Figure::parse).collect::<Result<Vec<_>, _>>()?;
    write(&bench.name(), &root()?.join("docs"), &lines, &figures)?;
    if bench == Bench::Scale {
        std::fs::write(root()?.join(CONSTANTS), &lines)?;
    }
    print!("{lines}");
    Ok(true)
}

/// Counts instructions, and returns false if a figure exceeds that of the page by more than 3 %.
pub(crate) fn compare() -> Done {
    let filter = Some("--compare".to_owned());
    run(&Options { name: Bench::Instructions, filter, json: false, write: false, full: false })
}

type Variables = Vec<(&'static str, OsString)>;

/// Returns the variables for each further flavour of Redis, and installs the servers.
fn on_flavours() -> Result<Vec<Variables>, Box<dyn Error>> {
    flavours::all()?;
    let variables = [&REDIS_OF_TODAY, &VALKEY].map(|flavour| {
        let version = format!("{} {}", flavour.name.to_lowercase(), flavour.version()?);
        Ok(vec![flavour.environment()?, ("IDEMPOTENT_REDIS_VERSION", version.into())])
    });
    variables.into_iter().collect()
}

/// Writes the figures, their table, and the first page with its plots.
fn write(name: &str, docs: &Path, lines: &str, figures: &[Figure]) -> Result<(), Box<dyn std::error::Error>> {
    let folder = docs.join("benchmarks");
    std::fs::write(folder.join(format!("{name}.jsonl")), lines)?;
    let page = folder.join(format!("{name}.md"));
    std::fs::write(&page, with_table(&std::fs::read_to_string(&page)?, name, figures)?)?;
    for (path, text) in first_page(docs)? {
        std::fs::write(path, text)?;
    }
    Ok(())
}

/// Returns the first page and its plots.
fn first_page(docs: &Path) -> Result<Vec<(PathBuf, String)>, Box<dyn Error>> {
    let (folder, page) = (docs.join("benchmarks"), docs.join("benchmarks.md"));
    let mut figures = BTreeMap::new();
    for bench in Bench::value_variants().iter().map(|bench| bench.name()) {
        for line in std::fs::read_to_string(folder.join(format!("{bench}.jsonl")))?.lines() {
            let figure = Figure::parse(line)?;
            figures.insert((bench.clone(), figure.name.clone()), figure);
        }
    }
    let chosen = serde_json::from_str(&std::fs::read_to_string(folder.join("overview.json"))?)?;
    let overview = Overview { chosen, figures };
    let mut files: Vec<_> = overview.plots()?.into_iter().map(|(name, plot)| (folder.join(name), plot)).collect();
    files.push((page.clone(), overview.page(&std::fs::read_to_string(page)?)?));
    Ok(files)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Checks that the page agrees with the figures, since only `--write` writes it.
    #[test]
    fn the_page_says_what_was_measured() {
        let docs = root().unwrap().join("docs");
        for name in Bench::value_variants().iter().map(|bench| bench.name()) {
            let lines = std::fs::read_to_string(docs.join(format!("benchmarks/{name}.jsonl"))).unwrap();
            let figures: Vec<_> = lines.lines().map(|line| Figure::parse(line).unwrap()).collect();
            let page = std::fs::read_to_string(docs.join(format!("benchmarks/{name}.md"))).unwrap();
            let anew = with_table(&page, &name, &figures).unwrap();
            assert_eq!(anew, page, "`cargo xtask bench {name} --write` anew");
        }
        for (path, anew) in first_page(&docs).unwrap() {
            assert_eq!(std::fs::read_to_string(&path).unwrap(), anew, "{} is not of these figures", path.display());
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
}
