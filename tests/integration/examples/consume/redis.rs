//! The job on a fleet's store.
use idempotent_harness::servers::{RedisCluster, RedisSentinels, RedisServer, Value};

use crate::consume::shared;
use crate::consume::support::Job;
use crate::wait::until;

fn known(server: &RedisServer) -> Vec<String> {
    let keys = server.command(&["KEYS", "*"]);
    let mut keys: Vec<_> = keys.items().iter().map(|key| key.text()).collect();
    keys.sort();
    keys
}

/// Returns whether the key is held, in the format of docs/redis-layout.md: the version, and a letter for the state.
fn is_held(server: &RedisServer, key: &str) -> bool {
    server.command(&["GETRANGE", key, "0", "1"]) == Value::Bytes(b"\x81P".to_vec())
}

#[test]
fn two_processes_share_the_work_and_a_restart_replays_all() {
    let server = RedisServer::builder().password("hunter2").aof().start();
    let shown = format!("redis://{}", server.address());
    shared::two_processes_share_the_work_and_a_restart_replays_all(&server.url(), &shown, || {
        server.kill();
        server.restart();
    });
}

#[test]
fn a_killed_process_costs_a_lease_and_at_most_one_effect_a_worker() {
    let server = RedisServer::start();
    shared::a_killed_process_costs_a_lease_and_at_most_one_effect_a_worker(&["--store", &server.url()]);
}

#[test]
fn a_fresh_start_deletes_only_the_keys_of_this_example() {
    let server = RedisServer::start();
    let job = Job::new();
    let on = ["--store", &server.url(), "--json"];
    job.run(&on).exits(0);
    let held = job.spawn(&[&["--fresh"], &on[..], &["--slow-ms", "3600000", "--workers", "1"]].concat());
    until("a run", || known(&server).iter().any(|key| is_held(&server, key)));
    held.kill();
    for others in ["idempotent:mq:billing:{AAAAAAAAAAAAAAAAAAAAAA}", "idempotent:mq:consumed", "other:mq:consume:x"] {
        server.command(&["SET", others, "1700000000000000001"]);
    }
    let before: Vec<_> = known(&server).into_iter().filter(|key| !key.starts_with("idempotent:mq:consume:")).collect();
    let dump = |keys: &[String]| keys.iter().map(|key| server.command(&["DUMP", key])).collect::<Vec<_>>();
    let kept = dump(&before);
    assert_eq!(before.len(), 4, "{before:?}");

    let fresh = job.run(&[&["--fresh"], &on[..]].concat()).exits(0);
    assert_eq!(fresh.counts(["executed", "replayed"]), [287, 207]);
    job.assert_each_key_once();
    assert_eq!(dump(&before), kept);
}

#[test]
fn sentinels_and_clusters_are_stores_too() {
    let sentinels = RedisSentinels::start();
    let cluster = RedisCluster::start(3);
    for url in [sentinels.url(), cluster.url()] {
        shared::a_fresh_start_runs_all_again(&url);
    }
}
