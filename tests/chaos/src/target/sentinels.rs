//! A primary that is killed, and a replica that takes its place.
use std::time::{Duration, Instant};

use anyhow::bail;
use idempotent_testkit::servers::{RedisSentinels, RedisServer};

use super::Done;
use super::loss::{folder, lost};
use crate::plan::Harm;
use crate::time;

/// A primary that a busy machine keeps from answering for a second must not be replaced: what that loses nobody
/// compares.
const DOWN_AFTER_MS: &str = "3000";
/// For a replica that follows again, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn start() -> RedisSentinels {
    let group = RedisServer::builder().aof().start_sentinels();
    for sentinel in group.sentinels() {
        sentinel.command(&["SENTINEL", "SET", group.master_name(), "down-after-milliseconds", DOWN_AFTER_MS]);
    }
    group
}

/// Kills the primary, waits for the new one, and has the old one follow it.
pub(super) fn fail_over(group: &RedisSentinels, harm: Harm) -> anyhow::Result<Done> {
    let old = group.current_primary();
    let heir = if old.port() == group.primary().port() { group.replica() } else { group.primary() };
    wait(|| follows(heir, old), "the replica does not follow its primary")?;
    let folder = folder(old)?;
    old.kill();
    let at = time::now();
    // What is still under way to it arrives before it notices.
    wait(|| heir.info("master_link_status") == "down", "the replica does not notice that its primary is gone")?;
    let lost = lost(&folder, heir)?;
    let new = group.wait_for_failover(old);
    old.restart();
    old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    Ok(Done { harm, lost, at })
}

fn follows(replica: &RedisServer, primary: &RedisServer) -> bool {
    replica.info("master_link_status") == "up" && replica.info("master_port") == primary.port().to_string()
}

fn wait(mut so: impl FnMut() -> bool, otherwise: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    while !so() {
        if began.elapsed() > PATIENCE {
            bail!("{otherwise}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_primary_can_be_replaced_twice_and_nothing_that_was_replicated_is_lost() {
        let group = start();
        for round in ["1", "2"] {
            let primary = group.current_primary();
            primary.command(&["SET", round, round]);
            assert_eq!(primary.command(&["WAIT", "1", "20000"]).integer(), Some(1));
            let done = fail_over(&group, Harm::Failover).unwrap();
            assert_eq!(done.lost, Vec::<String>::new());
            assert_ne!(group.current_primary().port(), primary.port());
            assert_eq!(group.current_primary().command(&["GET", round]).text(), round);
        }
    }
}
