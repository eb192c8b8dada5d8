//! Commands for this repository, for developers and CI: `cargo xtask COMMAND`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]
mod bench;
mod book;
mod budget;
mod chaos;
mod check;
mod fix;
mod heavy;
mod mutants;
mod nightly;
mod outside;
mod release;
mod report;
mod setup;
mod sim;
mod soak;
mod test;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask COMMAND

While you work
  test --quick      the tests that need no server, in less than three minutes once built
  test              all tests except those of `test extras` and `test rocketmq`; ends with
                    `xtask test: N passed, M failed`
    -- FILTER       only tests with this in their name
    --list          prints what is left to `test extras`
  check             formatting, lints, docs, features, file sizes, equal lines, import circles, guides, links, language, deployment
                    samples, crates of the first build, packages, licenses
    deploy          only the deployment samples: their references, ports, secrets, and grace periods
    packages        only the packages: their manifests, their contents, and `rust-version` against all dependencies
    budget          holds the processor time of the parts of CI against their limits
  fix               repairs what a machine can repair of that
  book              builds the guides as a site in target/book/site
  setup             installs what the tests need besides a Rust toolchain; `test` does it, too

More tests
  test extras       the tests in a module named `extras`: whole sets of mutants, further configurations and servers, the demo's
                    page in Chromium, 100,000 messages through four processes
  test rocketmq     lints, docs and tests of the RocketMQ adapter, whose client and broker take minutes to build; not in CI
  setup --flavours | --browser | --brokers
                    unpacks the servers of today, and installs Chromium, for `test extras`; builds RocketMQ

Proofs that take hours
  nightly [--hours N] [--seed N] [--list] [WORD]
                    all of them in turn, resumable; writes docs/proof.md and docs/servers.md
  sim [--seeds N]   simulated fleets under faults, 10,000 of them; `sim --help` lists its options
  sim scale [--seeds N]
                    a model of large fleets on a cluster in virtual time, 200 seeds of 14 scenarios; `sim scale --help`
  chaos NAME        real processes on real servers, killed, stopped, cut off; `chaos --help` lists names and options
  mutants [AREA | FILE ...] [--seed N] [--write] [--list]
                    changes one expression of the source at a time: some test must fail. Areas: core, mq, tower, outbox,
                    metrics, otel, rabbitmq, kafka, nats, sqs, pgmq, redis-streams, tonic, actix, operate, console, cli;
                    --seed picks three files; --write puts the figures into docs/mutants.md
  soak NAME         model, chaos, delivery, fire, mq [N], released, sql

Before a release
  release           packages, each built from its archive by a dry run of `cargo publish`; dependencies and licenses; the
                    public API against the newest tag `v*`. Installs cargo-deny and, with a tag, cargo-semver-checks

Measurements
  bench NAME [FILTER] [--json | --write] [--full]
                    core, redis, http, mq, nats, pgmq, kafka, sqs, sql, delivery, operate, growth, scale, peers; --write replaces the
                    tables in docs/benchmarks.md;
                    peers measures other libraries, and installs them into the target folder; operate --full uses 10,000,000
                    records, and scale --full 100,000,000 keys

Exit codes: 0 done, and all held; 1 something failed; 2 not understood, or (sim, chaos) vacuous or not started";

const COMMANDS: [&str; 12] =
    ["test", "check", "nightly", "sim", "chaos", "soak", "mutants", "fix", "book", "bench", "setup", "release"];
const SOAKS: [&str; 7] = ["model", "chaos", "delivery", "fire", "mq", "sql", "released"];
const BENCHES: [&str; 14] = [
    "core", "redis", "http", "mq", "nats", "pgmq", "kafka", "sqs", "sql", "delivery", "operate", "growth", "scale",
    "peers",
];

/// The number of messages of `soak mq`.
const MILLION: u64 = 1_000_000;

/// The exit code for an unknown command. The reason is printed to stderr.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(mistake) => {
            eprintln!("xtask: {mistake}; `cargo xtask help` lists all commands");
            ExitCode::from(MISUSED)
        }
    }
}

/// Runs a command.
///
/// # Errors
/// The command or an argument is unknown. The error names it, and the valid ones.
fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let asks_for_help = |argument: &&str| matches!(*argument, "help" | "-h" | "--help");
    let done = match *arguments {
        [] | ["help" | "-h" | "--help", ..] => {
            println!("{USAGE}");
            return Ok(ExitCode::SUCCESS);
        }
        // The simulator has its own exit codes.
        ["sim", ref arguments @ ..] => return Ok(sim::run(arguments)),
        ["chaos", ref arguments @ ..] => return Ok(chaos::run(arguments)),
        [_, ref rest @ ..] if rest.iter().take_while(|word| **word != "--").any(asks_for_help) => {
            println!("{USAGE}");
            return Ok(ExitCode::SUCCESS);
        }
        ["test", "extras"] => test::extras(),
        ["test", "rocketmq"] => test::rocketmq(),
        ["test", ref options @ ..] => test::all(&test::Options::parse(options)?),
        ["check"] => check::all(),
        ["check", "budget"] => budget::check(),
        ["check", "deploy"] => check::deploy(),
        ["check", "packages"] => check::packages(),
        ["release"] => release::run(),
        ["soak", "model"] => soak::model(),
        ["soak", "chaos"] => soak::chaos(),
        ["soak", "delivery"] => soak::delivery(),
        ["soak", "fire"] => soak::fire(),
        ["soak", "mq"] => soak::mq(MILLION),
        ["soak", "mq", messages] => soak::mq(soak::messages(messages)?),
        ["soak", "sql"] => soak::sql(),
        ["soak", "released"] => soak::released(),
        ["soak"] => return Err(incomplete("soak", &SOAKS)),
        ["soak", "mq", _, other, ..] => return Err(unknown(other, &[])),
        ["soak", "model" | "chaos" | "delivery" | "fire" | "sql" | "released", other, ..] => {
            return Err(unknown(other, &[]));
        }
        ["soak", other, ..] => return Err(unknown(other, &SOAKS)),
        ["nightly", ref options @ ..] => nightly::run(&nightly::Options::parse(options)?),
        ["mutants", ref options @ ..] => mutants::run(&mutants::Options::parse(options)?),
        ["fix"] => fix::all(),
        ["book"] => book::build(),
        ["bench", "core", ref options @ ..] => bench::run(bench::CORE, &bench::Options::parse(options)?),
        ["bench", "redis", ref options @ ..] => bench::run(bench::REDIS, &bench::Options::parse(options)?),
        ["bench", "http", ref options @ ..] => bench::run(bench::HTTP, &bench::Options::parse(options)?),
        ["bench", "mq", ref options @ ..] => bench::run(bench::MQ, &bench::Options::parse(options)?),
        ["bench", "nats", ref options @ ..] => bench::run(bench::NATS, &bench::Options::parse(options)?),
        ["bench", "pgmq", ref options @ ..] => bench::run(bench::PGMQ, &bench::Options::parse(options)?),
        ["bench", "kafka", ref options @ ..] => bench::run(bench::KAFKA, &bench::Options::parse(options)?),
        ["bench", "sqs", ref options @ ..] => bench::run(bench::SQS, &bench::Options::parse(options)?),
        ["bench", "sql", ref options @ ..] => bench::run(bench::SQL, &bench::Options::parse(options)?),
        ["bench", "delivery", ref options @ ..] => bench::run(bench::DELIVERY, &bench::Options::parse(options)?),
        ["bench", "operate", ref options @ ..] => bench::run(bench::OPERATE, &bench::Options::parse(options)?),
        ["bench", "growth", ref options @ ..] => bench::run(bench::GROWTH, &bench::Options::parse(options)?),
        ["bench", "scale", ref options @ ..] => bench::run(bench::SCALE, &bench::Options::parse(options)?),
        ["bench", "peers", ref options @ ..] => bench::run(bench::PEERS, &bench::Options::parse(options)?),
        ["bench"] => return Err(incomplete("bench", &BENCHES)),
        ["bench", other, ..] => return Err(unknown(other, &BENCHES)),
        ["setup"] => setup::all(),
        ["setup", "--flavours"] => setup::flavours::all(),
        ["setup", "--browser"] => setup::browser::all(),
        ["setup", "--brokers"] => setup::brokers::all(),
        ["setup", other, ..] => return Err(unknown(other, &["--flavours", "--browser", "--brokers"])),
        ["check", other, ..] => return Err(unknown(other, &["budget", "deploy", "packages"])),
        ["fix" | "release", other, ..] => return Err(unknown(other, &[])),
        [other, ..] => return Err(unknown(other, &COMMANDS)),
    };
    Ok(match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("xtask: {e}");
            ExitCode::FAILURE
        }
    })
}

fn unknown(word: &str, known: &[&str]) -> String {
    let hint = match (suggestion(word, known), known) {
        (Some(near), _) => format!("; did you mean `{near}`?"),
        (None, []) => "; nothing is expected here".to_owned(),
        (None, known) => format!("; known here: {}", known.join(", ")),
    };
    format!("unknown argument `{word}`{hint}")
}

fn incomplete(command: &str, known: &[&str]) -> String {
    format!("`{command}` needs one of: {}", known.join(", "))
}

/// Returns the most similar known word, if one is similar enough.
fn suggestion<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|word| (strsim::damerau_levenshtein(unknown, word), *word))
        .filter(|(distance, word)| *distance <= word.len() / 2)
        .min()
        .map(|(_, word)| word)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_gets_a_suggestion_and_another_word_none() {
        assert_eq!(suggestion("tset", &COMMANDS), Some("test"));
        assert_eq!(suggestion("chek", &COMMANDS), Some("check"));
        assert_eq!(suggestion("modle", &SOAKS), Some("model"));
        assert_eq!(suggestion("publish", &COMMANDS), None);
    }

    #[test]
    fn a_mistake_is_reported_with_the_valid_values() {
        for (arguments, told) in [
            (
                &["bench", "foo"][..],
                "unknown argument `foo`; known here: core, redis, http, mq, nats, pgmq, kafka, sqs",
            ),
            (&["bench"], "`bench` needs one of: core, redis, http"),
            (&["test", "b12"], "`cargo xtask test -- b12`"),
            (&["soak", "mq", "many"], "`many` is no number of messages"),
            (&["tset"], "did you mean `test`?"),
            (&["check", "now"], "unknown argument `now`; known here: budget, deploy, packages"),
            (&["release", "now"], "unknown argument `now`; nothing is expected here"),
            (&["bench", "core", "--jsn"], "unknown argument `--jsn`; did you mean `--json`?"),
            (&["bench", "core", "fresh", "--write"], "leave `fresh` out"),
            (&["bench", "core", "--json", "--write"], "leave `--json` out"),
        ] {
            let mistake = run(arguments).unwrap_err();
            assert!(mistake.contains(told), "{arguments:?}: {mistake}");
        }
    }
}
