//! Runs a job on a schedule in several replicas: each tick runs in one of them, and in another one if that one dies.
//!
//! ```text
//! cargo run -p idempotent-examples --features schedule --example schedule -- sqlite:ticks.db    # in three terminals
//! ```
//!
//! The replicas share a store, here a file. On several machines, name a database or Redis instead. A second argument is
//! the schedule, and a third one the seconds of work. The key is the name of the job, as the scope, and the time for
//! which the tick was scheduled. All replicas have the same time for a tick, whenever they start it.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "an example prints its progress")]
use std::str::FromStr;
use std::time::Duration;

use apalis::prelude::{Data, WorkerBuilder};
use apalis_cron::{CronScheduler, Tick};
use idempotent::{Disposition, Executor, connect, idempotent};
use tokio::time::sleep;

#[derive(Clone)]
struct Replica {
    executor: Executor,
    work: Duration,
}

// A tick whose replica has died runs in another one after the lease.
#[idempotent(scope = "report", key = tick, lease = "2s")]
async fn report(tick: u64, work: Duration) -> anyhow::Result<()> {
    println!("tick {tick}: runs");
    sleep(work).await;
    Ok(())
}

/// Returns when the tick has run here or elsewhere. The attempts of all replicas are counted together.
async fn on_tick(tick: Tick, replica: Data<Replica>) {
    let tick = tick.get_timestamp();
    loop {
        let run = Disposition::of(report(tick, replica.work));
        let (answer, disposition) = replica.executor.scope(run).await;
        let after = match disposition {
            Disposition::Ack => return println!("tick {tick}: done"),
            Disposition::DeadLetter { reason } => return eprintln!("tick {tick}: {reason}"),
            Disposition::Retry { after } => after,
            _ => Duration::from_secs(1),
        };
        println!("tick {tick}: waits, {}", answer.err().map_or_else(String::new, |error| error.to_string()));
        sleep(after).await;
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let store = arguments.next().unwrap_or_else(|| "sqlite:ticks.db".to_owned());
    let schedule = cron::Schedule::from_str(&arguments.next().unwrap_or_else(|| "*/5 * * * * *".to_owned()))?;
    let seconds = arguments.next().map_or(Ok(0), |seconds| seconds.parse())?;
    let executor = Executor::new(connect(&store).create(true).await?);
    let replica = Replica { executor, work: Duration::from_secs(seconds) };
    let worker = WorkerBuilder::new("report").backend(CronScheduler::new(schedule)).data(replica).build(on_tick);
    // Starts no more ticks after Ctrl-C, and finishes those that run.
    Ok(worker.run_until(tokio::signal::ctrl_c()).await?)
}
