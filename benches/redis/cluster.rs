//! New messages on a cluster of one primary, compared with a single server: the cost of the routing by slots for each node.
use idempotent::Executor;
use idempotent_harness::servers::{RedisCluster, RedisServer};
use idempotent_redis::RedisStore;

use crate::report::{Goal, Report};
use crate::slices::{Mode, Rounds, Taken, emptied, tasks};
use crate::{ours, server_name};

const CASE: &str = "fresh on a cluster of one node, to a single server";
const CONCURRENCIES: [usize; 2] = [16, 64];
const CLUSTER: usize = 0;
const SINGLE: usize = 1;

pub async fn all(report: &Report, server: &RedisServer) {
    if !report.wants(server_name(), CASE) {
        return;
    }
    let cluster = RedisCluster::start(1);
    let store = RedisStore::builder(cluster.url()).cache(None).connect().await.unwrap();
    let clustered = Executor::builder(store).build().unwrap();
    let modes = [mode(clustered.clone()), mode(ours::executor(server, None).await)];
    let mut ran = 0;
    for tasks in CONCURRENCIES {
        let (server_emptied, node_emptied) = (emptied(server), emptied(cluster.node(0)));
        let empty = |round| {
            server_emptied(round);
            node_emptied(round);
        };
        let rounds = Rounds::take(report, server, tasks, &modes, empty).await;
        ran += rounds.done(CLUSTER);
        let rate = rounds.pair(CLUSTER, SINGLE, Taken::rate);
        report.pair((server_name(), CASE, Some(tasks)), "runs/s", rate, Goal::AtLeast(0.9));
    }
    assert_eq!(clustered.counts().of("ran"), ran);
}

fn mode(executor: Executor) -> Mode {
    tasks(move |number| ours::run(executor.clone(), number))
}
