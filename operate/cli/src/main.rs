//! The command line `idempotent`: inspects and repairs the records of a store.
//!
//! `arguments` parses a command, `target` opens its store and `queue` its queue, `commands` runs it, `output` prints the result, `stop` ends
//! it by a signal, and `exit` maps an error to an exit code.
mod arguments;
mod backend;
mod commands;
mod confirm;
#[cfg(feature = "database")]
mod database;
mod exit;
mod failure;
mod finding;
#[cfg(feature = "database")]
mod outbox;
mod output;
mod queue;
mod stop;
mod target;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use self::arguments::Arguments;
use self::stop::StopRequest;

fn main() -> ExitCode {
    // Usage errors end here, with exit code 2.
    let arguments = Arguments::parse();
    log(&arguments);
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(&error.into()),
    };
    let stop = StopRequest::default();
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = commands::run(&arguments, &stop) => ended,
            signal = stop.received() => Err(signal.into()),
        }
    });
    // A connection that does not close must not delay the exit.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}

/// Sends the log to stderr, so that stdout contains data only. The audit log is a part of it.
fn log(arguments: &Arguments) {
    let level = match arguments.global.verbose {
        // The warnings of a store concern workers; `-v` shows them.
        0 => LevelFilter::ERROR,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let least = |least| if arguments.global.quiet { LevelFilter::ERROR } else { level.max(least) };
    // Only lines of these crates: client libraries log URLs with their passwords.
    let targets = tracing_subscriber::filter::Targets::new()
        .with_target("idempotent", level)
        .with_target("idempotent::audit", least(LevelFilter::INFO))
        .with_target("idempotent_console", least(LevelFilter::WARN));
    // Colours need a feature of tracing-subscriber that this program does not enable, and end in a panic without it.
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(lines).with(targets).init();
}
