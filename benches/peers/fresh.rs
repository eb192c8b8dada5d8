//! New messages: claimed, run and completed.
use idempotent_harness::servers::RedisServer;

use crate::peer::Peer;
use crate::report::{Goal, Pair, Report};
use crate::slices::{Mode, Rounds, Taken, emptied, tasks};
use crate::{CONCURRENCIES, bare, by_hand, ours};

/// The goals of ours compared with each of the peers.
const GOALS: [[Goal; 4]; 3] = [
    [Goal::AtLeast(1.0), Goal::AtLeast(1.8), Goal::AtLeast(2.0), Goal::AtLeast(2.5)],
    [Goal::None, Goal::None, Goal::AtLeast(6.0), Goal::None],
    [Goal::None, Goal::None, Goal::AtLeast(20.0), Goal::None],
];

const OURS: usize = 0;
const BY_HAND: usize = 1;
/// The mode of the first peer.
const FIRST: usize = 2;

pub async fn all(report: &Report, server: &RedisServer, peers: &[Peer; 3]) {
    let executor = ours::executor(server, None).await;
    let connection = bare::connect(server).await;
    let ours = tasks({
        let executor = executor.clone();
        move |number| ours::run(executor.clone(), number)
    });
    let by_hand = tasks(move |number| {
        let ran = by_hand::run(connection.clone(), number);
        async move { assert!(ran.await) }
    });
    let modes: Vec<Mode> = [ours, by_hand].into_iter().chain(peers.iter().map(Peer::fresh)).collect();
    let mut ran = 0;
    for (at, tasks) in CONCURRENCIES.into_iter().enumerate() {
        if !report.wants("redis", &format!("fresh, {tasks} at once")) {
            continue;
        }
        let rounds = Rounds::take(report, server, tasks, &modes, emptied(server)).await;
        ran += rounds.done(OURS);
        let line = |peer: &str, pair: Pair, goal| {
            report.pair(("redis", &format!("fresh, to {peer}"), Some(tasks)), "runs/s", pair, goal);
        };
        line("the recipe by hand", rounds.pair(OURS, BY_HAND, Taken::rate), Goal::None);
        for (n, peer) in peers.iter().enumerate() {
            line(peer.kind.name(), rounds.pair(OURS, FIRST + n, Taken::rate), GOALS[n][at]);
        }
    }
    assert_eq!(executor.counts().of("ran"), ran);
}
