//! The growth of the bare work, without the library: a map with locks, and two Redis commands. These figures have no goal. They show which part
//! of the growth is that of the machine and of the server.
use std::sync::Arc;

use idempotent_harness::servers::RedisServer;
use redis::Client;
use redis::aio::MultiplexedConnection;

use crate::floors::BareMap;
use crate::keys_in_stores::{CONSUMED, TASKS, spread};
use crate::report::{Goal, Report, drive};
use crate::sizes::{at_size, compare, grouped};

pub const LOOK_UP: &str = "look-up";
pub const SET_AND_DELETE: &str = "SET NX and DEL";

/// Measures look-ups in maps of different sizes.
pub async fn maps(report: &Report, numbers: &[u64], operations: u64) {
    if !report.wants("bare map", LOOK_UP) {
        return;
    }
    let operations = if report.is_tried() { 64 } else { operations };
    let mut sizes = Vec::new();
    for keys in numbers {
        let map = Arc::new(BareMap::new());
        (0..*keys).for_each(|number| map.insert_and_update(number));
        let known = (*keys).min(CONSUMED);
        sizes.push(at_size(move |round| {
            let map = map.clone();
            let look_up = move |number| {
                assert!(map.look_up(spread(number) % known));
                std::future::ready(())
            };
            async move { drive(TASKS, (round + 1) * operations, operations, &Arc::new(look_up)).await }
        }));
    }
    let pairs = compare(report, 21, operations, &sizes).await;
    for (keys, pair) in numbers.iter().zip(pairs).skip(1) {
        let line = format!("{LOOK_UP} at {} keys, to {}", grouped(*keys), grouped(numbers[0]));
        report.pair(("bare map", &line, usize::try_from(TASKS).ok()), "ns", pair, Goal::None);
    }
}

/// Measures two commands on servers with different numbers of keys.
pub async fn commands(report: &Report, servers: &[(u64, RedisServer)], operations: u64) {
    if !report.wants("redis-rs", SET_AND_DELETE) {
        return;
    }
    let operations = if report.is_tried() { 64 } else { operations };
    let mut sizes = Vec::new();
    for (_, server) in servers {
        let client = Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        sizes.push(at_size(move |round| {
            let connection = connection.clone();
            let operation = move |number| set_and_delete(connection.clone(), number);
            async move { drive(TASKS, (round + 1) * operations, operations, &Arc::new(operation)).await }
        }));
    }
    let pairs = compare(report, 21, operations, &sizes).await;
    for ((keys, _), pair) in servers.iter().zip(pairs).skip(1) {
        let line = format!("{SET_AND_DELETE} at {} keys, to {}", grouped(*keys), grouped(servers[0].0));
        report.pair(("redis-rs", &line, usize::try_from(TASKS).ok()), "ns", pair, Goal::None);
    }
}

async fn set_and_delete(mut connection: MultiplexedConnection, number: u64) {
    let key = format!("bare:{:020}", spread(number));
    let set = redis::cmd("SET").arg(&key).arg("consuming").arg("NX").arg("PX").arg(30_000).to_owned();
    set.exec_async(&mut connection).await.unwrap();
    assert_eq!(redis::cmd("DEL").arg(&key).query_async::<u64>(&mut connection).await.unwrap(), 1);
}
