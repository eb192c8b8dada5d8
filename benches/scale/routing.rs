//! The share of duplicates that the cache of a consumer answers, with routing by key and with random routing.
use std::sync::Arc;

use idempotent::{Executor, RedisStore};
use idempotent_harness::servers::RedisServer;

use crate::packed::mixed;
use crate::report::{Goal, Report, drive};
use crate::{REDIS, ours};

const CONSUMERS: u64 = 8;
const MESSAGES: u64 = 100_000;
/// The new messages that are sent before their duplicates.
const NEW_AT_ONCE: u64 = 500;
const TASKS: u64 = 64;

/// The rule by which a message reaches a consumer.
#[derive(Clone, Copy)]
enum Routing {
    Sticky,
    Random,
}

const ROUTINGS: [(Routing, &str, Goal); 2] = [
    (Routing::Sticky, "cached duplicates with sticky routing", Goal::AtLeast(95.0)),
    (Routing::Random, "cached duplicates with random routing", Goal::None),
];

pub async fn all(report: &Report, is_full: bool) {
    let messages = match (report.is_tried(), is_full) {
        (true, _) => 2 * NEW_AT_ONCE,
        (false, false) => MESSAGES,
        (false, true) => 100 * MESSAGES,
    };
    for (routing, case, goal) in ROUTINGS {
        if report.wants(REDIS, case) {
            report.value((REDIS, case, Some(TASKS as usize)), "%", share(routing, messages).await, goal);
        }
    }
}

/// Sends each message twice, and returns the share in percent of the duplicates that a cache answered.
async fn share(routing: Routing, messages: u64) -> f64 {
    let server = RedisServer::start();
    let mut stores = Vec::new();
    for _ in 0..CONSUMERS {
        stores.push(RedisStore::connect(server.url()).await.unwrap());
    }
    let executors: Arc<[Executor]> = stores.iter().cloned().map(Executor::new).collect();
    let deliver = |copy: u64| {
        let executors = executors.clone();
        Arc::new(move |number| {
            let hash = match routing {
                Routing::Sticky => mixed(number),
                Routing::Random => mixed(number ^ ((1 + copy) << 40)),
            };
            ours::run(executors[(hash % CONSUMERS) as usize].clone(), number)
        })
    };
    let (new, again) = (deliver(0), deliver(1));
    for from in (0..messages / 2).step_by(NEW_AT_ONCE as usize) {
        drive(TASKS, from, NEW_AT_ONCE, &new).await;
        drive(TASKS, from, NEW_AT_ONCE, &again).await;
    }
    let counts: Vec<_> = executors.iter().map(Executor::counts).collect();
    let replayed: u64 = counts.iter().map(|counts| counts.of("replayed")).sum();
    assert_eq!(replayed, messages / 2, "each message has one duplicate");
    let hits: u64 = stores.iter().map(|store| store.counts().cache_hits).sum();
    100.0 * hits as f64 / replayed as f64
}
