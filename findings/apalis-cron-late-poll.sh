#!/usr/bin/env bash
# A worker of apalis-cron whose handler takes longer than the time between two ticks, and which runs one at a time.
#
# Versions: apalis, apalis-core and apalis-cron 1.0.0, cron 0.17.0, tower 0.5.3. Seen on 2026-12-01.
# Guess: with `ConcurrencyLimitLayer::new(1)`, ticks during a run are skipped, or wait for their turn.
# Seen:  `run` of the worker ends with the error `OutOfRange` after the first tick, as soon as the handler is done. The documentation
#        of the error says that a late poll misses ticks, but not that the worker ends. With `LoadShedLayer` around the limit, ticks
#        during a run are skipped, and the worker goes on.
# Effect: one run that is longer than the interval ends the schedule, unless the program restarts the worker. Put `LoadShedLayer` around
#         a limit.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/probe/src"
cd "$folder/probe"
cat >Cargo.toml <<'TOML'
[package]
name = "probe"
version = "0.1.0"
edition = "2024"
[dependencies]
apalis = { version = "=1.0.0", default-features = false }
apalis-core = "=1.0.0"
apalis-cron = "=1.0.0"
cron = "=0.17.0"
tokio = { version = "=1.54.1", features = ["macros", "rt-multi-thread", "time"] }
tower = { version = "=0.5.3", features = ["limit", "load-shed"] }
TOML
cat >src/main.rs <<'RS'
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use apalis::prelude::*;
use apalis_cron::{CronScheduler, Tick};
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;

static DONE: AtomicUsize = AtomicUsize::new(0);

async fn slow(_: Tick) {
    tokio::time::sleep(Duration::from_millis(2500)).await;
    DONE.fetch_add(1, Ordering::Relaxed);
}

/// Runs a worker for at most 10 s, and returns the number of handled ticks and how the worker ended.
async fn end(worker: impl Future<Output = Result<(), WorkerError>>) -> (usize, String) {
    let end = match tokio::time::timeout(Duration::from_secs(10), worker).await {
        Ok(end) => format!("{end:?}"),
        Err(_) => "none".into(),
    };
    (DONE.swap(0, Ordering::Relaxed), end)
}

#[tokio::main]
async fn main() -> Result<(), cron::error::Error> {
    let each_second = CronScheduler::new(cron::Schedule::from_str("* * * * * *")?);
    let limit = ConcurrencyLimitLayer::new(1);
    let limited = WorkerBuilder::new("limited").backend(each_second.clone()).layer(limit.clone()).build(slow);
    let limited = end(limited.run()).await;
    println!("with the limit: ticks handled, end of the worker: {limited:?}");
    let shed = WorkerBuilder::new("shed").backend(each_second).layer(LoadShedLayer::new()).layer(limit).build(slow);
    let shed = end(shed.run()).await;
    println!("with load shedding around it: {shed:?}");
    assert!(limited.0 == 1 && limited.1.contains("OutOfRange"));
    assert!((2..=4).contains(&shed.0) && shed.1 == "none");
    Ok(())
}
RS
cargo run --quiet
