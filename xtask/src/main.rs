//! Commands for this repository, for developers and CI: `cargo xtask COMMAND`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]
mod bench;
mod budget;
mod check;
mod heavy;
mod mutants;
mod nightly;
mod outside;
mod programs;
mod release;
mod report;
mod setup;
mod soak;
mod test;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The commands of this repository, for developers and CI.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", after_help = EXIT_CODES)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "`cargo xtask COMMAND --help` describes a command.

Exit codes: 0 done, and all held; 1 something failed; 2 not understood, or (sim, chaos) vacuous or not started";

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs all tests except those of `test extras` and `test rocketmq`. The last line counts them.
    Test(test::Options),
    /// Checks all except the tests: formatting, lints, docs, features, rules of the sources and pages, packages, licenses
    Check { what: Option<check::Part> },
    /// Repairs formatting and simple lints
    Fix,
    /// Builds the guides as a site in target/book/site
    Book,
    /// Installs what the tests need besides a Rust toolchain; `test` does it, too
    Setup(setup::Options),
    /// Runs all proofs in turn, for hours, resumable; writes docs/proof.md and docs/servers.md
    Nightly(nightly::Options),
    /// Simulates fleets under faults: `sim --help`, and `sim scale --help` for large fleets in virtual time
    #[command(disable_help_flag = true)]
    Sim(PassedOn),
    /// Runs real processes on real servers, killed, stopped, cut off: `chaos --help` lists names and options
    #[command(disable_help_flag = true)]
    Chaos(PassedOn),
    /// Changes one expression of the source at a time: some test must fail
    Mutants(mutants::Options),
    /// Runs a test that takes too long for CI
    #[command(subcommand)]
    Soak(soak::Soak),
    /// Checks before a release: packages built from their archives, dependencies, licenses, and the public API against the
    /// newest tag `v*`. Installs cargo-deny and, with a tag, cargo-semver-checks.
    Release,
    /// Measures costs, compared with a floor of the same run
    Bench(bench::Options),
}

/// The arguments of a program that parses them itself.
#[derive(clap::Args, Debug)]
struct PassedOn {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    let done = match CommandLine::parse().command {
        // The simulator and chaos have their own exit codes.
        Command::Sim(PassedOn { arguments }) => return programs::sim(&arguments),
        Command::Chaos(PassedOn { arguments }) => return programs::chaos(&arguments),
        Command::Test(options) => test::run(&options),
        Command::Check { what } => check::run(what),
        Command::Fix => outside::fix(),
        Command::Book => programs::book(),
        Command::Setup(options) => setup::run(&options),
        Command::Nightly(options) => nightly::run(&options),
        Command::Mutants(options) => mutants::run(&options),
        Command::Soak(soak) => soak::run(soak),
        Command::Release => release::run(),
        Command::Bench(options) => bench::run(&options),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_command_is_understood_and_a_mistake_is_refused() {
        let parse = |line: &str| CommandLine::try_parse_from(["xtask"].into_iter().chain(line.split(' ')));
        for line in [
            "test --quick --list -- b12 --exact",
            "check budget",
            "sim scale --seeds 7",
            "chaos redis --seconds 60",
            "nightly chaos --hours 3 --seed 7",
            "soak mq 100000",
            "bench core fresh --json",
            "bench scale --write --full",
            "mutants core --seed 7",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        for (line, part) in [
            ("tset", "'test'"),
            ("test b12", "[possible values: extras, rocketmq]"),
            ("test extras --quick", "cannot be used with"),
            ("check now", "budget, deploy, packages"),
            ("release now", "unexpected argument 'now'"),
            ("soak mq 10", "100000"),
            ("bench core --jsn", "'--json'"),
            ("bench core fresh --write", "cannot be used with"),
            ("bench core --json --write", "cannot be used with"),
        ] {
            let mistake = parse(line).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(mistake.contains(part), "{line}: {mistake}");
        }
    }
}
