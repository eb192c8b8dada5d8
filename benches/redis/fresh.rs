//! New messages: claimed, run and completed.
use idempotent_harness::servers::RedisServer;

use crate::report::{Goal, Pair, Report};
use crate::slices::{Mode, Rounds, Taken, emptied, tasks};
use crate::{CONCURRENCIES, bare, goal, ours, raw, server_name};

/// Without and with `SET … IFEQ`. A script with three commands costs the server 1.9 times two commands.
const AGAINST_BARE: [(f64, f64); 4] = [(0.85, 0.9), (0.7, 0.8), (0.8, 0.9), (0.95, 1.05)];
const AGAINST_NAIVE: [f64; 4] = [1.4, 1.2, 1.25, 1.4];
const OURS: usize = 0;
const BARE: usize = 1;
const NAIVE: usize = 2;
const RAW: usize = 3;

pub async fn all(report: &Report, server: &RedisServer) {
    let executor = ours::executor(server, None).await;
    let connection = bare::connect(server).await;
    let modes: [Mode; 4] = [
        tasks({
            let executor = executor.clone();
            move |number| ours::run(executor.clone(), number)
        }),
        tasks({
            let connection = connection.clone();
            move |number| bare::mark(connection.clone(), number)
        }),
        tasks(move |number| bare::naive(connection.clone(), number)),
        raw::mode(server),
    ];
    let mut ran = 0;
    for (at, tasks) in CONCURRENCIES.into_iter().enumerate() {
        if !report.wants(server_name(), &format!("fresh, {tasks} at once")) {
            continue;
        }
        let rounds = Rounds::take(report, server, tasks, &modes, emptied(server)).await;
        ran += rounds.done(OURS);
        let rate = |floor: usize| rounds.pair(OURS, floor, Taken::rate);
        let line =
            |case: &str, unit, pair: Pair, goal| report.pair((server_name(), case, Some(tasks)), unit, pair, goal);
        line("fresh, to bare redis-rs", "runs/s", rate(BARE), goal(AGAINST_BARE[at].0, AGAINST_BARE[at].1));
        let cpu = if tasks == 64 { Goal::AtMost(1.0) } else { Goal::None };
        line("fresh, CPU, to bare redis-rs", "us", rounds.pair(OURS, BARE, Taken::cpu), cpu);
        line("fresh, CPU here", "us", rounds.pair(OURS, BARE, Taken::client), Goal::None);
        line("fresh, CPU of the server", "us", rounds.pair(OURS, BARE, Taken::server), Goal::None);
        line("fresh, to four commands", "runs/s", rate(NAIVE), Goal::AtLeast(AGAINST_NAIVE[at]));
        let raw = if tasks >= 64 { Goal::AtLeast(0.4) } else { Goal::None };
        line("fresh, to a raw socket", "runs/s", rate(RAW), raw);
    }
    assert_eq!(executor.counts().of("ran"), ran);
}
