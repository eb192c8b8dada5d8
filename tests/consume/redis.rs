//! The job on a fleet's store.
use idempotent_testkit::servers::{RedisCluster, RedisSentinels, RedisServer, Value};

use crate::support::{Job, until};

fn known(server: &RedisServer) -> Vec<String> {
    let keys = server.command(&["KEYS", "*"]);
    let mut keys: Vec<_> = keys.items().iter().map(|key| key.text()).collect();
    keys.sort();
    keys
}

/// As docs/redis-layout.md has it: the version, and a letter for the state.
fn is_held(server: &RedisServer, key: &str) -> bool {
    server.command(&["GETRANGE", key, "0", "1"]) == Value::Bytes(b"\x81P".to_vec())
}

#[test]
fn two_processes_share_the_work_and_a_restart_replays_all() {
    let server = RedisServer::builder().password("hunter2").aof().start();
    let job = Job::new();
    let on = ["--store", &server.url(), "--json"];
    let jobs = ["a", "b"].map(|_| job.spawn(&[&on[..], &["--slow-ms", "5"]].concat()));
    let ended = jobs.map(|running| running.ended().exits(0));
    let sums = ended.each_ref().map(|ended| ended.counts(["deliveries", "executed"]));
    assert_eq!(sums.map(|[deliveries, _]| deliveries), [494, 494]);
    assert_eq!(sums.map(|[_, executed]| executed).iter().sum::<u64>(), 287, "{sums:?}");
    job.assert_each_key_once();

    server.kill();
    server.restart();
    let again = job.run(&on).exits(0);
    assert_eq!(again.counts(["executed", "replayed"]), [0, 494]);
    assert!(again.stderr.contains("nothing ran: the store knows every key"), "{}", again.stderr);
    let shown = job.run(&on[..2]).exits(0);
    assert!(shown.stdout.contains(&format!("store    redis://{}\n", server.address())), "{}", shown.stdout);
    for text in [&shown.stdout, &shown.stderr, &again.stderr] {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn a_killed_process_costs_a_lease_and_at_most_one_effect_a_worker() {
    const WORKERS: usize = 4;
    let server = RedisServer::start();
    let job = Job::new();
    let on = ["--store", &server.url(), "--json", "--workers", &WORKERS.to_string()];
    // Slow, so that the kill meets workers in their handlers.
    let running = job.spawn(&[&on[..], &["--slow-ms", "200"]].concat());
    until("some effects", || job.try_effects().is_some_and(|rows| rows.len() >= 12));
    running.kill();
    let before = job.effects();
    assert!(before.len() < 287);

    let second = job.run(&on).exits(0);
    let held = second.stderr.lines().find_map(|line| line.split_once(" keys held by a dead worker, free in "));
    let (held, free) = held.unwrap_or_else(|| panic!("nothing said of held keys: {}", second.stderr));
    assert!((1..=WORKERS).contains(&held.parse().unwrap()), "{held}");
    assert!(free.strip_suffix(" s").unwrap().parse::<u64>().unwrap() <= 5, "{free}");
    let effects = job.effects();
    assert_eq!(effects.len(), 287);
    assert!(effects.values().filter(|rows| **rows > 1).count() <= WORKERS && effects.values().all(|rows| *rows <= 2));
}

#[test]
fn a_fresh_start_forgets_this_examples_keys_and_touches_nothing_else() {
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
        let job = Job::new();
        let on = ["--store", &url, "--json"];
        assert_eq!(job.run(&on).exits(0).counts(["executed", "replayed"]), [287, 207], "{url}");
        assert_eq!(job.run(&on).exits(0).counts(["executed", "replayed"]), [0, 494], "{url}");
        assert_eq!(job.run(&[&["--fresh"], &on[..]].concat()).exits(0).counts(["executed"]), [287], "{url}");
        job.assert_each_key_once();
    }
}
