use idempotent_harness::servers::{RedisCluster, RedisReplicas, RedisSentinels, RedisServer, Value};

use crate::servers::exists;

fn pids<'a>(servers: impl IntoIterator<Item = &'a RedisServer>) -> Vec<u32> {
    servers.into_iter().map(RedisServer::pid).collect()
}

/// Returns the number of replicas that acknowledged the write in time. Waits for one at most.
fn written(primary: &RedisServer, write: &[&str], millis: u32) -> Option<i64> {
    let mut connection = primary.connect();
    // A sentinel that turns a primary into a replica ends its clients' connections.
    if connection.ask(write).ok()?.is_error() {
        return None;
    }
    connection.ask(&["WAIT", "1", &millis.to_string()]).ok()?.integer()
}

#[test]
fn replicas_acknowledge_until_their_link_is_cut_and_again_when_it_is_mended() {
    let group = RedisReplicas::start(1);
    let wait = || written(group.primary(), &["INCR", "n"], 100);
    let wait_for_one = || written(group.primary(), &["INCR", "n"], 10_000);
    assert_eq!(wait_for_one(), Some(1));
    assert_eq!(group.replica().command(&["GET", "n"]).text(), "1");
    group.cut_links();
    assert_eq!(wait(), Some(0));
    assert_eq!(group.replica().command(&["GET", "n"]).text(), "1");
    group.mend_links();
    assert_eq!(wait_for_one(), Some(1));
    group.replica().pause();
    assert_eq!(wait(), Some(0));
    let all = [pids([group.primary()]), pids(group.replicas())].concat();
    drop(group);
    assert!(!all.into_iter().any(exists));
}

#[test]
fn sentinels_promote_the_replica_of_a_killed_primary_and_take_it_back() {
    let group = RedisServer::builder().password("open-sesame").start_sentinels();
    assert_eq!(group.current_primary().port(), group.primary().port());
    assert_eq!(written(group.primary(), &["SET", "a", "b"], 10_000), Some(1));
    let old = group.kill_primary();
    let new = group.wait_for_failover(old);
    assert_eq!((new.port(), group.current_primary().port()), (group.replica().port(), group.replica().port()));
    assert_eq!(new.command(&["GET", "a"]).text(), "b");
    assert_eq!(new.command(&["SET", "a", "c"]).text(), "OK");
    old.restart();
    // On a busy machine, the sentinels may fail over once more. Then the other server is the replica.
    crate::servers::eventually("one of the two is the replica of the other", || {
        let primary = group.current_primary();
        let replica = if primary.port() == old.port() { new } else { old };
        let replication = replica.try_command(&["INFO", "replication"]).map(|info| info.text()).unwrap_or_default();
        let follows = replication.contains(&format!("master_port:{}\r", primary.port()));
        follows && written(primary, &["INCR", "n"], 100) == Some(1)
    });
}

#[test]
fn sentinels_have_a_url_and_leave_no_process_or_file() {
    let group = RedisSentinels::start();
    let ports: Vec<String> = group.sentinels().iter().map(RedisServer::address).collect();
    assert_eq!(group.url(), format!("redis+sentinel://{}/mymaster", ports.join(",")));
    let all = [pids(group.sentinels()), pids([group.primary(), group.replica()])].concat();
    assert_eq!(all.len(), 5);
    drop(group);
    assert!(!all.into_iter().any(exists));
}

#[test]
fn a_migrating_slot_shows_ask_and_then_moved() {
    let cluster = RedisCluster::start(3);
    let keys = ["{k}1", "{k}2", "{k}3"];
    let (slot, from) = (cluster.slot_of("k"), cluster.owner_of(cluster.slot_of("k")));
    let to = (from + 1) % 3;
    let get = |node: usize, key: &str| cluster.node(node).command(&["GET", key]).text();
    for key in keys {
        assert_eq!(cluster.cli(&["SET", key, "v"]), "OK");
    }
    let to_address = cluster.node(to).address();
    assert_eq!(get(to, keys[0]), format!("MOVED {slot} {}", cluster.node(from).address()));
    cluster.begin_migration(slot, from, to);
    assert_eq!(get(from, keys[0]), "v");
    cluster.move_these(&keys[..1], from, to);
    assert_eq!((get(from, keys[0]), get(from, keys[1])), (format!("ASK {slot} {to_address}"), "v".to_owned()));
    let both = cluster.node(from).command(&["MGET", keys[0], keys[1]]);
    assert!(both.text().starts_with("TRYAGAIN"), "{both:?}");
    assert_eq!(cluster.move_keys(slot, from, to, 1), 1);
    assert_eq!(cluster.move_keys(slot, from, to, 10), 1);
    assert_eq!(cluster.move_keys(slot, from, to, 10), 0);
    cluster.end_migration(slot, from, to);
    assert_eq!((get(from, keys[0]), get(to, keys[0])), (format!("MOVED {slot} {to_address}"), "v".to_owned()));
    cluster.migrate_slot(slot, to, from);
    assert_eq!((cluster.owner_of(slot), get(from, keys[2])), (from, "v".to_owned()));
}

#[test]
fn a_replica_takes_the_place_of_a_killed_node_of_a_cluster() {
    let cluster = RedisServer::builder().start_cluster(3, 1);
    let slot = cluster.slot_of("k");
    let old = cluster.owner_of(slot);
    assert_eq!(written(cluster.node(old), &["SET", "k", "v"], 10_000), Some(1));
    let new = cluster.fail_over(old);
    assert_eq!((new, cluster.owner_of(slot)), (3 + old, 3 + old));
    assert_eq!(cluster.node(new).command(&["GET", "k"]).text(), "v");
    let all = pids(cluster.nodes());
    drop(cluster);
    assert!(!all.into_iter().any(exists));
}

#[test]
fn a_node_announces_the_configured_port() {
    let cluster = RedisServer::builder().password("open-sesame").start_cluster(3, 0);
    assert!(cluster.url().starts_with("redis+cluster://:open-sesame@127.0.0.1:"));
    let slot = cluster.slot_of("k");
    let owner = cluster.owner_of(slot);
    let other = (owner + 1) % 3;
    cluster.announce(owner, 11_999);
    assert_eq!(cluster.node(other).command(&["GET", "k"]), Value::Error(format!("MOVED {slot} 127.0.0.1:11999")));
    cluster.migrate_slot(slot, owner, other);
    assert_eq!(cluster.owner_of(slot), other);
}
