//! What is run on this repository by hand and in CI: `cargo xtask COMMAND`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]
mod bench;
mod check;
mod fix;
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
  test extras       the sets of tests that take longer; there are none yet
  check             formatting, lints, docs, features, file sizes, licenses; writes nothing into the tree
  sim [--seeds N]   simulated fleets under faults, 10,000 of them; `sim --help` says what else
  soak model        what takes too long for CI: the largest variants of the model check
  fix               what of that a machine can put right
  bench core [FILTER] [--json | --write]
                    what the core costs, beside floors of the same run; --write makes docs/benchmarks.md anew
  setup             install what the tests need beside a Rust toolchain and a C compiler; nothing yet";

const COMMANDS: [&str; 7] = ["test", "check", "sim", "soak", "fix", "bench", "setup"];
const SOAKS: [&str; 1] = ["model"];
const BENCHES: [&str; 1] = ["core"];

/// A command that was not understood; its text goes to stderr, above the usage.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [] | ["help" | "-h" | "--help"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        ["test"] => test::all(&[]),
        ["test", "--", ref filter @ ..] => test::all(filter),
        ["test", "extras"] => test::extras(),
        ["test", unknown, ..] => return misused(unknown, &["extras", "--"]),
        ["sim", ref arguments @ ..] => return sim::run(arguments),
        ["check"] => check::all(),
        ["soak", "model"] => soak::model(),
        ["soak"] => return incomplete("soak", &SOAKS),
        ["soak", "model", unknown, ..] => return misused(unknown, &[]),
        ["soak", unknown, ..] => return misused(unknown, &SOAKS),
        ["fix"] => fix::all(),
        ["bench", "core", ref options @ ..] => match bench::Options::parse(options) {
            Ok(options) => bench::core(&options),
            Err(unknown) => return misused(unknown, &["--json", "--write"]),
        },
        ["bench"] => return incomplete("bench", &BENCHES),
        ["bench", unknown, ..] => return misused(unknown, &BENCHES),
        ["setup"] => setup::all(),
        ["check" | "fix" | "setup", unknown, ..] => return misused(unknown, &[]),
        [unknown, ..] => return misused(unknown, &COMMANDS),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("xtask: {e}");
            ExitCode::FAILURE
        }
    }
}

fn misused(unknown: &str, known: &[&str]) -> ExitCode {
    let hint = suggestion(unknown, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    eprintln!("xtask: unknown argument `{unknown}`{hint}\n\n{USAGE}");
    ExitCode::from(MISUSED)
}

fn incomplete(command: &str, known: &[&str]) -> ExitCode {
    eprintln!("xtask: `{command}` needs one of: {}\n\n{USAGE}", known.join(", "));
    ExitCode::from(MISUSED)
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
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_gets_a_suggestion_and_another_word_none() {
        assert_eq!(suggestion("tset", &COMMANDS), Some("test"));
        assert_eq!(suggestion("chek", &COMMANDS), Some("check"));
        assert_eq!(suggestion("modle", &SOAKS), Some("model"));
        assert_eq!(suggestion("publish", &COMMANDS), None);
    }
}
