//! The example `tiers`, from outside, on private servers.
use idempotent_harness::servers::RedisServer;

use crate::example::Running;

/// Runs the example, and flushes Redis when the program asks for it.
fn flush_in_the_middle(redis: &RedisServer, arguments: &[&str]) {
    let mut running = Running::start("tiers", arguments);
    let answered = |cache: u8, database: u8| format!("  the cache answered {cache} claims, the database {database}");
    let replayed = "order o-17: 500 cents, Some(Replayed)".to_owned();
    let ran = ["order o-17: charged", "order o-17: 500 cents, Some(Ran)"].map(str::to_owned);
    assert_eq!(running.says(3), [&ran[..], &[answered(0, 1)]].concat());
    assert_eq!(running.says(2), [replayed.clone(), answered(1, 1)]);
    assert_eq!(running.says(1), ["Run `redis-cli FLUSHALL`, and press Enter."]);
    assert!(!redis.command(&["FLUSHALL"]).is_error());
    running.enter("");
    // The database answers, and then the cache again.
    assert_eq!(running.ends(), [replayed.clone(), answered(1, 2), replayed, answered(2, 2)]);
}

#[test]
fn a_flushed_cache_runs_no_handler_again_over_an_sqlite_file() {
    let redis = RedisServer::start();
    flush_in_the_middle(&redis, &[&redis.url()]);
}
