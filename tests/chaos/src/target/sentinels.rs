//! A primary that is killed, and a replica that takes its place.
use std::time::{Duration, Instant};

use anyhow::bail;
use idempotent_harness::servers::{RedisSentinels, RedisServer};

use super::Done;
use super::loss::{folder, lost};
use crate::plan::Harm;
use crate::time;

/// A primary that a busy machine keeps from answering for a second must not be replaced: what that loses nobody
/// compares.
const DOWN_AFTER_MS: &str = "3000";
/// For a replica that follows again, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nobody listens there.
const NOWHERE: &str = "1";

pub(super) fn start() -> RedisSentinels {
    let group = RedisServer::builder().aof().start_sentinels();
    for sentinel in group.sentinels() {
        sentinel.command(&["SENTINEL", "SET", group.master_name(), "down-after-milliseconds", DOWN_AFTER_MS]);
    }
    group
}

/// Kills the primary, waits for the new one, and has the old one follow it. What was written while the replica lagged
/// behind for so long is lost.
pub(super) fn fail_over(group: &RedisSentinels, harm: Harm, lag: Duration) -> anyhow::Result<Done> {
    let old = group.current_primary();
    let heir = heir(group);
    wait(|| follows(heir, old), "the replica does not follow its primary")?;
    let folder = folder(old)?;
    if !lag.is_zero() {
        heir.command(&["REPLICAOF", "127.0.0.1", NOWHERE]);
        std::thread::sleep(lag);
    }
    old.kill();
    let at = time::now();
    // What is still under way to it arrives before it notices.
    wait(|| !is_linked(heir), "the replica does not notice that its primary is gone")?;
    let lost = lost(&folder, heir)?;
    let new = group.wait_for_failover(old);
    old.restart();
    old.command(&["REPLICAOF", "127.0.0.1", &new.port().to_string()]);
    Ok(Done { harm, lost, at })
}

/// The one that is not the primary.
fn heir(group: &RedisSentinels) -> &RedisServer {
    let is_first = group.current_primary().port() == group.primary().port();
    if is_first { group.replica() } else { group.primary() }
}

fn follows(replica: &RedisServer, primary: &RedisServer) -> bool {
    is_linked(replica) && replica.info("master_port") == primary.port().to_string()
}

pub(super) fn is_linked(replica: &RedisServer) -> bool {
    replica.info("master_link_status") == "up"
}

pub(super) fn wait(mut so: impl FnMut() -> bool, otherwise: &str) -> anyhow::Result<()> {
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
    use crate::target::loss::tests::replicated;

    const HARM: Harm = Harm::Failover(Duration::ZERO);

    #[test]
    fn a_lagging_replica_takes_over_without_the_missing_writes() {
        let group = start();
        replicated(group.primary(), &["kept"]);
        let lost = std::thread::scope(|scope| {
            let failing = scope.spawn(|| fail_over(&group, HARM, Duration::from_millis(500)).unwrap().lost);
            wait(|| !is_linked(group.replica()), "it does not lag").unwrap();
            group.primary().command(&["SET", "lost", "1"]);
            failing.join().unwrap()
        });
        assert_eq!(lost, ["lost"]);
        assert_eq!(group.current_primary().command(&["GET", "kept"]).text(), "1");
    }

    #[test]
    fn the_primary_can_be_replaced_twice_and_nothing_that_was_replicated_is_lost() {
        let group = start();
        for round in ["1", "2"] {
            let primary = group.current_primary();
            replicated(primary, &[round]);
            let done = fail_over(&group, HARM, Duration::ZERO).unwrap();
            assert_eq!(done.lost, Vec::<String>::new());
            assert_ne!(group.current_primary().port(), primary.port());
            assert_eq!(group.current_primary().command(&["GET", round]).text(), "1");
        }
    }
}
