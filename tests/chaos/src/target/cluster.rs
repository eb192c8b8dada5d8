//! Three primaries with a replica each: one is killed and replaced, and slots move while they are in use.
use std::time::Duration;

use anyhow::Context;
use idempotent_harness::servers::{RedisCluster, RedisServer, Value};

use super::Done;
use super::loss::{folder, lost};
use super::sentinels::{is_linked, wait};
use crate::plan::Harm;
use crate::time;

const PRIMARIES: usize = 3;
/// A node that a busy machine keeps from answering for two seconds must not be replaced: what that loses nobody
/// compares.
const TIMEOUT_MS: &str = "5000";

pub(super) fn start() -> RedisCluster {
    let group = RedisServer::builder().aof().start_cluster(PRIMARIES, 1);
    for node in group.nodes() {
        node.command(&["CONFIG", "SET", "cluster-node-timeout", TIMEOUT_MS]);
    }
    group
}

fn is_primary(node: &RedisServer) -> bool {
    node.command(&["ROLE"]).items().first().is_some_and(|role| role.text() == "master")
}

/// How many primaries of the start are none any more. Each is killed once at most.
pub(super) fn replaced(group: &RedisCluster) -> u64 {
    group.nodes()[..PRIMARIES].iter().filter(|node| !is_primary(node)).count() as u64
}

/// Kills a primary, waits for its replica to take its place, and starts it again; it finds its new primary by itself.
pub(super) fn fail_over(group: &RedisCluster, harm: Harm) -> anyhow::Result<Done> {
    let nodes = group.nodes();
    let (index, old) = nodes.iter().enumerate().find(|(_, node)| is_primary(node)).context("no node is a primary")?;
    let follows = |node: &&RedisServer| {
        let port = node.info("master_port");
        !is_primary(node) && port == old.port().to_string()
    };
    let heir = nodes.iter().find(follows).context("the primary has no replica")?;
    wait(|| is_linked(heir), "the replica does not follow its primary")?;
    let folder = folder(old)?;
    let (at, lost) = std::thread::scope(|scope| {
        let replaced = scope.spawn(|| group.fail_over(index));
        wait(|| !old.is_running(), "the primary does not die")?;
        let at = time::now();
        wait(|| !is_linked(heir), "the replica does not notice that its primary is gone")?;
        let lost = lost(&folder, heir)?;
        replaced.join().ok().context("no replica has taken over")?;
        anyhow::Ok((at, lost))
    })?;
    old.restart();
    wait(|| !is_primary(old) && is_linked(old), "the old primary does not follow the new one")?;
    Ok(Done { harm, lost, at })
}

/// Moves the slot of some key to another primary, in steps, so that its keys are on both for a moment.
pub(super) fn migrate(group: &RedisCluster) -> anyhow::Result<()> {
    let primaries: Vec<usize> = (0..group.nodes().len()).filter(|node| is_primary(group.node(*node))).collect();
    let mut holders = primaries.iter().filter_map(|node| match group.node(*node).command(&["RANDOMKEY"]) {
        Value::Bytes(key) => Some(group.slot_of(key)),
        _ => None,
    });
    // Before the first key there is nothing to move.
    let Some(slot) = holders.next() else { return Ok(()) };
    let from = group.owner_of(slot);
    let to = primaries.into_iter().find(|node| *node != from).context("there is no other primary")?;
    group.begin_migration(slot, from, to);
    std::thread::sleep(Duration::from_millis(50));
    group.move_keys(slot, from, to, 1);
    std::thread::sleep(Duration::from_millis(50));
    while group.move_keys(slot, from, to, 100) > 0 {}
    group.end_migration(slot, from, to);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::target::loss::tests::replicated;

    #[test]
    fn a_primary_of_a_cluster_is_replaced_and_nothing_that_was_replicated_is_lost() {
        let group = start();
        let first = group.nodes().iter().find(|node| is_primary(node)).unwrap();
        let key =
            (0..).map(|number| format!("key{number}")).find(|key| group.owner_of(group.slot_of(key)) == 0).unwrap();
        replicated(first, &[&key]);
        migrate(&group).unwrap();
        assert_ne!(group.owner_of(group.slot_of(&key)), 0);
        let done = fail_over(&group, Harm::Failover(Duration::ZERO)).unwrap();
        assert_eq!(done.lost, Vec::<String>::new());
        assert!(!is_primary(first) && first.is_running());
    }
}
