//! The commands.
mod audit;
#[cfg(feature = "console")]
mod console;
#[allow(clippy::print_stdout)]
mod count;
mod dead;
mod delay;
mod doctor;
#[allow(clippy::print_stdout, clippy::print_stderr)]
mod keys;
mod migrate;
mod order;
#[cfg(feature = "database")]
pub(crate) mod outbox;
mod plan;
mod purge;
mod repair;

use std::future::Future;
use std::io::Write;
use std::time::Duration;

use clap::CommandFactory;
use idempotent_operate::Repair;

use crate::arguments::{Arguments, Command, GlobalOptions};
use crate::failure::Failure;
use crate::stop::StopRequest;
use crate::target::{self, Access, Target};

/// The longest time for opening a store.
pub(crate) const OPENING: Duration = Duration::from_secs(5);

/// Runs the command of the arguments.
pub(crate) async fn run(arguments: &Arguments, stop: &StopRequest) -> anyhow::Result<()> {
    let global = &arguments.global;
    let running = async {
        match &arguments.command {
            Command::Inspect(inspect) => keys::inspect(global, inspect).await,
            Command::List(list) => keys::list(global, list).await,
            Command::Count(count) => count::count(global, count).await,
            Command::Forget(forget) => repair::repair(global, &forget.repair, Repair::Forget).await,
            Command::Release(release) => repair::repair(global, release, Repair::Release).await,
            Command::Dead(dead) => dead::run(global, dead, stop).await,
            Command::Delay(command) => delay::run(global, command).await,
            #[cfg(feature = "database")]
            Command::Outbox(command) => outbox::run(global, command, stop).await,
            Command::Order(command) => order::run(global, command).await,
            Command::Purge(purge) => purge::purge(global, purge, stop).await,
            Command::Audit(arguments) => audit::audit(global, arguments),
            Command::Doctor(doctor) => doctor::doctor(global, doctor).await,
            #[cfg(feature = "console")]
            Command::Console(arguments) => console::console(global, arguments).await,
            Command::Plan(arguments) => plan::plan(global, arguments).await,
            Command::Migrate(command) => migrate::migrate(global, command).await,
            Command::Completions { shell } => {
                // `generate` panics if the reader closes stdout.
                let mut script = Vec::new();
                clap_complete::generate(*shell, &mut Arguments::command(), "idempotent", &mut script);
                Ok(std::io::stdout().write_all(&script)?)
            }
            Command::Man => Ok(clap_mangen::Man::new(Arguments::command()).render(&mut std::io::stdout())?),
        }
    };
    within(global.timeout, running).await
}

/// Opens the store of a command that only reads.
async fn open(global: &GlobalOptions) -> anyhow::Result<Target> {
    within(Some(OPENING), target::open(global, Access::Read)).await
}

/// Opens the store of a command that writes.
async fn open_for_writing(global: &GlobalOptions, access: Access) -> anyhow::Result<Target> {
    check_writable(global)?;
    // A migration of a large table takes longer than the opening of a store.
    let most = match access {
        Access::Read | Access::Write => Some(OPENING),
        Access::Migrate(_) => None,
    };
    within(most, target::open(global, access)).await
}

/// Refuses a command that writes, after `--read-only`.
fn check_writable(global: &GlobalOptions) -> Result<(), Failure> {
    match global.read_only {
        true => Err(Failure::Refused("--read-only forbids this command".into())),
        false => Ok(()),
    }
}

async fn within<T>(most: Option<Duration>, future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    match most {
        Some(most) => tokio::time::timeout(most, future).await.unwrap_or_else(|_| Err(Failure::TimedOut.into())),
        None => future.await,
    }
}
