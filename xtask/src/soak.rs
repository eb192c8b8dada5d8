//! Tests that take too long for CI.
use clap::Subcommand;

use crate::tools::{Done, cargo, some_passed, stream, target};

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum Soak {
    /// Runs the largest variants of the model check, one after the other, because each uses all available cores
    Model,
    /// Runs every weakness that chaos must find. `nightly chaos` plays a minute of each play without one.
    Chaos,
    /// Measures a million scheduled messages in a delay queue, and a million confirmed stubs in an outbox; the tests have
    /// 100,000
    Delivery,
    /// Runs more rounds of each race over HTTP, and more hostile keys, than CI has time for
    Fire,
    /// Runs one worker with a private RabbitMQ and Redis, and checks that its memory does not grow
    Mq {
        /// The number of messages. Fewer do not show a leak.
        #[arg(default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(100_000..))]
        messages: u64,
    },
    /// Tests release builds of `shop` and of `consume` from outside; other commands test the builds of the tests
    Released,
    /// Checks PostgreSQL's plans of each statement over 10 million rows; the tests have 100,000
    Sql,
}

pub(crate) fn run(soak: Soak) -> Done {
    let ignored = ["--ignored", "--nocapture", "--test-threads=1"];
    match soak {
        Soak::Model => tests("idempotent-model", "variants", &ignored, &[]),
        Soak::Chaos => tests("idempotent-chaos", "smoke", &ignored, &[]),
        Soak::Delivery => {
            let queue = tests("idempotent-redis", "suite", &[&["among_a_million"], &ignored[..]].concat(), &[])?;
            let stubs = ["postgres::common::plans::a_look_for_what_is_due"];
            Ok(tests("idempotent-sqlx", "suite", &[&stubs, &ignored[..]].concat(), &[])? && queue)
        }
        Soak::Fire => {
            let races = ["sockets::races::", "sockets::hostile_keys::", "--test-threads=1"];
            let sizes = [("IDEMPOTENT_FIRE_ROUNDS", "2000".into()), ("FUZZ_INPUTS", "300000".into())];
            tests("idempotent-tower", "suite", &races, &sizes)
        }
        Soak::Mq { messages } => {
            let bench = ["bench", "--quiet", "--locked", "--package", "idempotent-mq-bench", "--bench", "soak", "--"];
            Ok(stream(cargo(&bench)?.arg(messages.to_string()), |_| {})?.success())
        }
        Soak::Released => {
            let packages = ["--locked", "--package", "idempotent-consume", "--package", "idempotent-shop"];
            let features = ["--features", "idempotent-consume/servers,idempotent-shop/redis"];
            let mut build = cargo(&["build", "--release", "--bins"])?;
            if !stream(build.args(packages).args(features), |_| {})?.success() {
                return Ok(false);
            }
            let built = [("IDEMPOTENT_EXAMPLES", target()?.join("release/examples").into_os_string())];
            let rest = tests("idempotent-tests", "examples", &["rest::", "--nocapture"], &built)?;
            Ok(tests("idempotent-tests", "examples", &["consume::fleet::", "--nocapture"], &built)? && rest)
        }
        Soak::Sql => tests("idempotent-sqlx", "suite", &[&["over_10_million_rows"], &ignored[..]].concat(), &[]),
    }
}

/// Runs tests of one target. A run without a test is a failure, too.
fn tests(package: &str, target: &str, arguments: &[&str], variables: &[(&str, std::ffi::OsString)]) -> Done {
    let mut command = cargo(&["test", "--locked", "--package", package, "--test", target, "--"])?;
    command.args(arguments).envs(variables.iter().map(|(name, value)| (name, value)));
    let mut some = false;
    let status = stream(&mut command, |line| some |= some_passed(line))?;
    Ok(status.success() && some)
}
