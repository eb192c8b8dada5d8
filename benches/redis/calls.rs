//! The number of commands for each message, counted by the server.
use std::sync::Arc;

use idempotent_harness::servers::RedisServer;
use idempotent_redis::CacheOptions;

use crate::report::{Goal, Report, drive};
use crate::{CONCURRENCIES, has_comparisons, ours, server_name};

const MESSAGES: u64 = 20_000;

/// Returns the calls of a command since [`forget`].
pub fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.info(&format!("cmdstat_{command}"));
    stats.strip_prefix("calls=").map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// Returns all commands of connections since [`forget`], except those that read the count.
fn commands(server: &RedisServer) -> u64 {
    let asked = 1;
    server.info("total_commands_processed").parse::<u64>().unwrap() - asked
}

pub fn forget(server: &RedisServer) {
    server.command(&["CONFIG", "RESETSTAT"]);
}

pub async fn all(report: &Report, server: &RedisServer) {
    if !report.wants(server_name(), "calls of a message") {
        return;
    }
    let messages = if report.is_tried() { 256 } else { MESSAGES };
    let (fresh, cold, cached) =
        ("calls of a fresh message", "script calls of a cold duplicate", "commands of a cached duplicate");
    for tasks in CONCURRENCIES {
        server.command(&["FLUSHALL", "SYNC"]);
        let at = |case| (server_name(), case, Some(tasks));
        let executor = ours::executor(server, None).await;
        let knowing = ours::executor(server, Some(CacheOptions::default())).await;
        let each = |executor: &idempotent::Executor| {
            let executor = executor.clone();
            Arc::new(move |number| ours::run(executor.clone(), number))
        };
        // The server does not know a script before its first call.
        ours::run(executor.clone(), messages).await;
        forget(server);
        drive(tasks as u64, 0, messages, &each(&executor)).await;
        // Valkey completes a first grant by a SET of its own. The other SETs belong to scripts, one to each claim.
        let completions = if has_comparisons() { calls(server, "set") - messages } else { 0 };
        let figure = (calls(server, "evalsha") + completions) as f64 / messages as f64;
        assert!(tasks > 1 || figure == 2.0, "alone, a message is a claim and a completion");
        report.value(at(fresh), "calls", figure, Goal::AtMost(2.0));
        forget(server);
        drive(tasks as u64, 0, messages, &each(&executor)).await;
        report.value(at(cold), "calls", calls(server, "evalsha") as f64 / messages as f64, Goal::AtMost(1.0));
        drive(tasks as u64, 0, messages, &each(&knowing)).await;
        forget(server);
        drive(tasks as u64, 0, messages, &each(&knowing)).await;
        report.value(at(cached), "commands", commands(server) as f64 / messages as f64, Goal::AtMost(0.0));
        assert_eq!((executor.counts().of("ran"), knowing.counts().of("ran")), (messages + 1, 0));
    }
}
