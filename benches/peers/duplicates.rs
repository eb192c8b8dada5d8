//! Duplicates of consumed messages, without a local cache.
use idempotent_harness::servers::RedisServer;

use crate::peer::Peer;
use crate::report::{Goal, Report};
use crate::slices::{Mode, Rounds, Taken, tasks};
use crate::{CONCURRENCIES, KEYS, bare, by_hand, ours};

const OURS: usize = 0;
const BY_HAND: usize = 1;
/// The mode of the first peer.
const FIRST: usize = 2;

pub async fn all(report: &Report, server: &RedisServer, peers: &[Peer]) {
    if !CONCURRENCIES.iter().any(|tasks| report.wants("redis", &format!("duplicate, {tasks} at once"))) {
        return;
    }
    server.command(&["FLUSHALL", "SYNC"]);
    let keys = if report.is_tried() { 101 } else { KEYS };
    let executor = ours::executor(server, None).await;
    let connection = bare::connect(server).await;
    for number in 0..keys {
        ours::run(executor.clone(), number).await;
        assert!(by_hand::run(connection.clone(), number).await);
    }
    peers.iter().for_each(|peer| peer.fill(keys));
    let ours = tasks({
        let executor = executor.clone();
        move |number| ours::run(executor.clone(), number % keys)
    });
    let by_hand = tasks(move |number| {
        let ran = by_hand::run(connection.clone(), number % keys);
        async move { assert!(!ran.await) }
    });
    let modes: Vec<Mode> = [ours, by_hand].into_iter().chain(peers.iter().map(|peer| peer.duplicates(keys))).collect();
    for tasks in CONCURRENCIES {
        if !report.wants("redis", &format!("duplicate, {tasks} at once")) {
            continue;
        }
        let rounds = Rounds::take(report, server, tasks, &modes, |_| ()).await;
        let line = |peer: &str, mode| {
            let at = ("redis", &*format!("duplicate, to {peer}"), Some(tasks));
            report.pair(at, "runs/s", rounds.pair(OURS, mode, Taken::rate), Goal::None);
        };
        line("the recipe by hand", BY_HAND);
        for (n, peer) in peers.iter().enumerate() {
            line(peer.kind.name(), FIRST + n);
        }
    }
    assert_eq!(executor.counts().of("ran"), keys);
}
