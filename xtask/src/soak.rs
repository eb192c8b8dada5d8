//! Tests that take too long for CI.
use std::process::Command;

use crate::tools::{Done, cargo, some_passed, stream, target};

/// Runs the largest variants of the model check one after the other, because each uses all available cores.
pub(crate) fn model() -> Done {
    let mut command = cargo(&["test", "--locked", "--package", "idempotent-model", "--test", "variants"])?;
    command.args(["--", "--ignored", "--nocapture", "--test-threads=1"]);
    let mut checked = 0;
    let status = stream(&mut command, |line| checked += usize::from(line.contains(" unique ")))?;
    println!("xtask soak: {checked} variants of the model checked");
    Ok(status.success() && checked > 0)
}

/// Runs every weakness that chaos must find. `cargo xtask nightly chaos` plays a minute of each play without one.
pub(crate) fn chaos() -> Done {
    let mut command = cargo(&["test", "--locked", "--package", "idempotent-chaos", "--test", "smoke"])?;
    command.args(["--", "--ignored", "--nocapture", "--test-threads=1"]);
    tests(&mut command)
}

/// Runs tests. A run without a test is a failure, too.
fn tests(command: &mut Command) -> Done {
    let mut some = false;
    let status = stream(command, |line| some |= some_passed(line))?;
    Ok(status.success() && some)
}

/// Runs more rounds of each race over HTTP, and more hostile keys, than CI has time for.
pub(crate) fn fire() -> Done {
    let mut command = cargo(&["test", "--locked", "--package", "idempotent-tower", "--test", "suite"])?;
    command.args(["--", "sockets::races::", "sockets::hostile_keys::", "--test-threads=1"]);
    command.env("IDEMPOTENT_FIRE_ROUNDS", "2000").env("FUZZ_INPUTS", "300000");
    tests(&mut command)
}

/// Tests release builds of `shop` and of `consume` from outside; `test` and `test extras` test the builds of the
/// tests.
pub(crate) fn released() -> Done {
    let packages = ["--locked", "--package", "idempotent-consume", "--package", "idempotent-shop"];
    let features = ["--features", "idempotent-consume/servers,idempotent-shop/redis"];
    let mut build = cargo(&["build", "--release", "--bins"])?;
    if !stream(build.args(packages).args(features), |_| {})?.success() {
        return Ok(false);
    }
    let mut all = true;
    for filter in ["rest::", "consume::fleet::"] {
        let mut command = cargo(&["test", "--locked", "--package", "idempotent-tests", "--test", "examples"])?;
        command.args(["--", filter, "--nocapture"]);
        command.env("IDEMPOTENT_EXAMPLES", target()?.join("release/examples"));
        all &= tests(&mut command)?;
    }
    Ok(all)
}

/// Checks PostgreSQL's plans of each statement over 10 million rows; the tests have 100,000.
pub(crate) fn sql() -> Done {
    let mut command = cargo(&["test", "--locked", "--package", "idempotent-sqlx", "--test", "suite"])?;
    command.args(["--", "over_10_million_rows", "--ignored", "--nocapture"]);
    tests(&mut command)
}

/// Measures a million scheduled messages in a delay queue, and a million confirmed stubs in an outbox; the tests have
/// 100,000.
pub(crate) fn delivery() -> Done {
    let mut all = true;
    for (package, filter) in [
        ("idempotent-redis", "among_a_million"),
        ("idempotent-sqlx", "postgres::common::plans::a_look_for_what_is_due"),
    ] {
        let mut command = cargo(&["test", "--locked", "--package", package, "--test", "suite"])?;
        command.args(["--", filter, "--ignored", "--nocapture"]);
        all &= tests(&mut command)?;
    }
    Ok(all)
}

/// Parses the number of messages for [`mq`].
///
/// # Errors
/// The text is not a number, or too small for a result.
pub(crate) fn messages(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 100_000;
    match text.parse() {
        Ok(messages) if messages >= LEAST => Ok(messages),
        _ => Err(format!("`{text}` is no number of messages from {LEAST} on; fewer say nothing")),
    }
}

/// Runs one worker with a private RabbitMQ and Redis, and checks that its memory does not grow.
pub(crate) fn mq(messages: u64) -> Done {
    let mut command = cargo(&["bench", "--quiet", "--locked", "--package", "idempotent-mq-bench", "--bench", "soak"])?;
    command.args(["--", &messages.to_string()]);
    Ok(stream(&mut command, |_| {})?.success())
}
