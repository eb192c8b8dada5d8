//! Duplicates of messages.
use idempotent_harness::servers::RedisServer;
use idempotent_redis::CacheOptions;

use crate::report::{Goal, Report};
use crate::slices::{Mode, Rounds, Taken, tasks};
use crate::{CONCURRENCIES, bare, ours, server_name};

const COLD: [f64; 4] = [0.75, 0.65, 0.75, 0.8];
/// A prime, so that tasks whose starts are thousands apart use different keys.
const KEYS: u64 = 20_011;

const OURS: usize = 0;
const CACHED: usize = 1;
const GET: usize = 2;

pub async fn all(report: &Report, server: &RedisServer) {
    if !CONCURRENCIES.iter().any(|tasks| report.wants(server_name(), &format!("duplicate, {tasks} at once"))) {
        return;
    }
    server.command(&["FLUSHALL", "SYNC"]);
    let keys = if report.is_tried() { 101 } else { KEYS };
    let cold = ours::executor(server, None).await;
    let cached = ours::executor(server, Some(CacheOptions::default())).await;
    let connection = bare::connect(server).await;
    for number in 0..keys {
        ours::run(cold.clone(), number).await;
        bare::mark(connection.clone(), number).await;
    }
    let ours = |executor: &idempotent::Executor| {
        let executor = executor.clone();
        tasks(move |number| ours::run(executor.clone(), number % keys))
    };
    let get = tasks(move |number| bare::get(connection.clone(), number % keys));
    let modes: [Mode; 3] = [ours(&cold), ours(&cached), get];
    for (at, tasks) in CONCURRENCIES.into_iter().enumerate() {
        if !report.wants(server_name(), &format!("duplicate, {tasks} at once")) {
            continue;
        }
        // Cached answers expire, so the keys are read again.
        for number in 0..keys {
            ours::run(cached.clone(), number).await;
        }
        let rounds = Rounds::take(report, server, tasks, &modes, |_| ()).await;
        let line = |case: &str, mode, goal| {
            report.pair((server_name(), case, Some(tasks)), "runs/s", rounds.pair(mode, GET, Taken::rate), goal);
        };
        line("cold duplicate, to GET", OURS, Goal::AtLeast(COLD[at]));
        match tasks {
            1 => line("cached duplicate, to GET", CACHED, Goal::AtLeast(50.0)),
            64 => line("cached duplicate, to GET", CACHED, Goal::AtLeast(10.0)),
            _ => {}
        }
    }
    assert_eq!(cold.counts().of("ran"), keys);
    assert_eq!(cached.counts().of("ran"), 0);
}
