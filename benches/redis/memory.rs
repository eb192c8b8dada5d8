//! The memory of a stored record on the server.
use std::sync::Arc;

use idempotent::{Executor, Scene};
use idempotent_harness::servers::RedisServer;

use crate::report::{Goal, Report, drive};
use crate::{keys, ours, server_name};

const RECORDS: u64 = 100_000;
/// A namespace with which storage keys have 40 characters.
const NAMESPACE: &str = "orders";

pub async fn all(report: &Report, server: &RedisServer) {
    let (plain, with) = ("memory of a consumed record", "memory of one with a fingerprint");
    if !report.wants(server_name(), plain) && !report.wants(server_name(), with) {
        return;
    }
    assert_eq!(keys::identity(0).key(NAMESPACE).unwrap().as_str().len(), 40);
    let records = if report.is_tried() { 1_000 } else { RECORDS };
    let executor = Executor::builder(ours::store(server, None).await).namespace(NAMESPACE).build().unwrap();
    assert_eq!(executor.policy(&Scene::Mq), idempotent::Policy::of(&Scene::Mq));
    for (case, goal) in [(plain, 150.0), (with, 185.0)] {
        let executor = executor.clone();
        let run = move |number| {
            let executor = executor.clone();
            async move {
                if case == plain {
                    ours::run(executor, number).await;
                } else {
                    ours::run_with_fingerprint(executor, number).await;
                }
            }
        };
        let run = Arc::new(run);
        // The scripts and the buffers of the connection exist before the measurement.
        drive(64, records, records / 10, &run).await;
        server.command(&["FLUSHALL", "SYNC"]);
        let before = used(server);
        drive(64, 0, records, &run).await;
        assert_eq!(server.command(&["DBSIZE"]), idempotent_harness::servers::Value::Integer(records as i64));
        let each = (used(server) - before) / records as f64;
        report.value((server_name(), case, None), "B", each, Goal::AtMost(goal));
    }
    server.command(&["FLUSHALL", "SYNC"]);
}

/// Returns the allocated memory when two readings are equal, because the table of keys is resized gradually.
fn used(server: &RedisServer) -> f64 {
    let used = || server.info("used_memory").parse::<f64>().unwrap();
    let mut last = used();
    loop {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let now = used();
        if (now - last).abs() < 8_192.0 {
            return now;
        }
        last = now;
    }
}
