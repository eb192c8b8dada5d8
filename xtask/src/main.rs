//! What is run on this repository by hand and in CI: `cargo xtask COMMAND`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]
mod bench;
mod chaos;
mod check;
mod fix;
mod heavy;
mod outside;
mod setup;
mod sim;
mod soak;
mod test;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask COMMAND

  test [-- FILTER]  build everything, run all tests and doc tests; ends with `xtask test: N passed, M failed`
  test extras       what needs more than `test`: the demo's page in Chromium, a minute of hostile headers, 100,000
                    messages through four processes, Redis' tests on the flavours of `setup --flavours`, RocketMQ
  check             formatting, lints, docs, features, file sizes, licenses; writes nothing into the tree
  sim [--seeds N]   simulated fleets under faults, 10,000 of them; `sim --help` says what else
  chaos redis       worker processes on a real server, killed, stopped, cut off; `chaos --help` says what else
  chaos postgres    likewise, with effect and record in one transaction
  chaos rabbitmq    likewise, as consumers of a real broker, which is killed, too; also `redis-streams`, `rocketmq`
  chaos delay       likewise, producers and takers of a delay queue; also `outbox` (by it or RabbitMQ), `ordering`
  soak model        what takes too long for CI: the largest variants of the model check
  soak chaos        likewise: a minute of chaos on each topology and each broker, and all weaknesses
  soak mq [N]       likewise: whether a worker's memory is flat over a million messages (or N) through RabbitMQ
  soak delivery     likewise: a million scheduled messages, a million confirmed stubs: what each costs
  soak fire         likewise: 2,000 rounds of each race over HTTP, and 300,000 hostile keys
  soak sql          likewise: how PostgreSQL carries out each statement over 10 million rows, plans printed
  soak released     likewise: the demo and `consume` as they are released, asked from outside
  fix               what of that a machine can put right
  bench core [FILTER] [--json | --write]
                    what the core costs, beside floors of the same run; --write makes docs/benchmarks.md anew
  bench redis [FILTER] [--json | --write]
                    what a run over Redis costs beside the bare commands, on a private server
  bench http [FILTER] [--json | --write]
                    what REST costs beside the bare route, and beside axum-idempotent; driven by wrk
  bench mq [FILTER] [--json | --write]
                    what messages cost through RabbitMQ beside the bare client, without keys and with two stores
  bench sql [FILTER] [--json | --write]
                    what a run over PostgreSQL and SQLite costs beside statements by hand
  bench delivery [FILTER] [--json | --write]
                    what the delay queue and the outbox cost beside Redis and RabbitMQ by hand
  setup             install what the tests need beside a Rust toolchain; `test` does it, too
  setup --flavours  unpack Redis 8.0 and Valkey 8.1 into the target folder
  setup --browser   install Chromium and its driver, for the tests of the demo's page
  setup --brokers   build RocketMQ's name server and broker out of published crates into the target folder

Exit codes: 0 done, and all held; 1 something failed; 2 not understood, or (sim, chaos) vacuous or not started";

const COMMANDS: [&str; 8] = ["test", "check", "sim", "chaos", "soak", "fix", "bench", "setup"];
const SOAKS: [&str; 7] = ["model", "chaos", "delivery", "fire", "mq", "sql", "released"];
const BENCHES: [&str; 6] = ["core", "redis", "http", "mq", "sql", "delivery"];

/// Messages of `soak mq`.
const MILLION: u64 = 1_000_000;

/// A command that was not understood; why goes to stderr.
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

/// # Errors
/// What was not understood, and what would be.
fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let asks_for_help = |argument: &&str| matches!(*argument, "help" | "-h" | "--help");
    let done = match *arguments {
        [] | ["help" | "-h" | "--help", ..] => {
            println!("{USAGE}");
            return Ok(ExitCode::SUCCESS);
        }
        // It has more to say of itself.
        ["sim", ref arguments @ ..] => return Ok(sim::run(arguments)),
        ["chaos", ref arguments @ ..] => return Ok(chaos::run(arguments)),
        ["test", "--", ref filter @ ..] => test::all(filter),
        [_, ref rest @ ..] if rest.iter().any(asks_for_help) => {
            println!("{USAGE}");
            return Ok(ExitCode::SUCCESS);
        }
        ["test"] => test::all(&[]),
        ["test", "extras"] => test::extras(),
        ["test", other, ..] => {
            return Err(format!(
                "{}; to run only some tests: `cargo xtask test -- {other}`",
                unknown(other, &["extras"])
            ));
        }
        ["check"] => check::all(),
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
        ["fix"] => fix::all(),
        ["bench", "core", ref options @ ..] => bench::run(bench::CORE, &bench::Options::parse(options)?),
        ["bench", "redis", ref options @ ..] => bench::run(bench::REDIS, &bench::Options::parse(options)?),
        ["bench", "http", ref options @ ..] => bench::run(bench::HTTP, &bench::Options::parse(options)?),
        ["bench", "mq", ref options @ ..] => bench::run(bench::MQ, &bench::Options::parse(options)?),
        ["bench", "sql", ref options @ ..] => bench::run(bench::SQL, &bench::Options::parse(options)?),
        ["bench", "delivery", ref options @ ..] => bench::run(bench::DELIVERY, &bench::Options::parse(options)?),
        ["bench"] => return Err(incomplete("bench", &BENCHES)),
        ["bench", other, ..] => return Err(unknown(other, &BENCHES)),
        ["setup"] => setup::all(),
        ["setup", "--flavours"] => setup::flavours::all(),
        ["setup", "--browser"] => setup::browser::all(),
        ["setup", "--brokers"] => setup::brokers::all(),
        ["setup", other, ..] => return Err(unknown(other, &["--flavours", "--browser", "--brokers"])),
        ["check" | "fix", other, ..] => return Err(unknown(other, &[])),
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

/// The nearest of the known words, if it is near.
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
    fn a_mistake_is_told_with_what_is_known() {
        for (arguments, told) in [
            (&["bench", "foo"][..], "unknown argument `foo`; known here: core, redis, http, mq, sql, delivery"),
            (&["bench"], "`bench` needs one of: core, redis, http"),
            (&["test", "b12"], "`cargo xtask test -- b12`"),
            (&["soak", "mq", "many"], "`many` is no number of messages"),
            (&["tset"], "did you mean `test`?"),
            (&["check", "now"], "unknown argument `now`; nothing is expected here"),
            (&["bench", "core", "--jsn"], "unknown argument `--jsn`; did you mean `--json`?"),
            (&["bench", "core", "fresh", "--write"], "leave `fresh` out"),
            (&["bench", "core", "--json", "--write"], "leave `--json` out"),
        ] {
            let mistake = run(arguments).unwrap_err();
            assert!(mistake.contains(told), "{arguments:?}: {mistake}");
        }
    }
}
