//! `cargo xtask chaos`, and the workers it starts.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]
use std::process::ExitCode;

use idempotent_chaos::args::{Args, USAGE};
use idempotent_chaos::{delivery, harness, inbox, worker};

/// Vacuous, or not started.
const VACUOUS: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("worker") => work(worker::run()),
        Some("inbox-worker") => work(inbox::work()),
        Some("delivery-worker") => work(delivery::work()),
        Some("help" | "-h" | "--help") => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => match Args::parse(&arguments) {
            Ok(args) => play(&args),
            Err(mistake) => {
                eprintln!("chaos: {mistake}\n\n{USAGE}");
                ExitCode::from(VACUOUS)
            }
        },
    }
}

fn play(args: &Args) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let played = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(harness::run(args)));
    match played {
        Ok(verdict) => {
            verdict.explain();
            println!("{}", verdict.closing());
            ExitCode::from(verdict.code())
        }
        Err(error) => {
            eprintln!("chaos: {error:#}");
            ExitCode::from(VACUOUS)
        }
    }
}

fn work(worker: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let worked = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let worked = runtime.block_on(worker);
        // One that is done before its stdin ends does not wait for more.
        runtime.shutdown_background();
        worked
    });
    match worked {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
