//! The commands with redis-rs: one connection that all tasks share, without a timer for each answer.
use idempotent_harness::servers::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value, cmd};

use crate::keys;

/// Returns a key with the length of the library's keys.
pub fn key(kind: u8, number: u64) -> [u8; 44] {
    let mut key = *b"idempotent:mq:bench:{ -order-00000000000000}";
    key[21] = kind;
    key[23..43].copy_from_slice(&keys::text(number));
    key
}

/// The lease and the retention in ms.
pub const LEASE: u64 = 30_000;
pub const RETENTION: u64 = 7 * 86_400_000;

pub async fn connect(server: &RedisServer) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = redis::Client::open(server.url()).unwrap();
    client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
}

/// Marks a message with the minimum for duplicates: no fence, no guard, no attempts.
pub async fn mark(mut connection: MultiplexedConnection, number: u64) {
    let (key, owner) = (key(b'b', number), (u128::from(number) << 64).to_be_bytes());
    let claim = cmd("SET").arg(&key).arg(&owner).arg("NX").arg("GET").arg("PX").arg(LEASE).to_owned();
    assert_eq!(claim.query_async::<Value>(&mut connection).await.unwrap(), Value::Nil);
    let complete = cmd("SET").arg(&key).arg("2").arg("PX").arg(RETENTION).to_owned();
    assert_eq!(complete.query_async::<Value>(&mut connection).await.unwrap(), Value::Okay);
}

/// Runs the four commands of a common implementation.
pub async fn naive(mut connection: MultiplexedConnection, number: u64) {
    let key = key(b'n', number);
    let seen = cmd("GET").arg(&key).query_async::<Value>(&mut connection).await;
    assert_eq!(seen.unwrap(), Value::Nil);
    let won = cmd("SETNX").arg(&key).arg("consuming").query_async::<Value>(&mut connection).await;
    assert_eq!(won.unwrap(), Value::Int(1));
    let limited = cmd("EXPIRE").arg(&key).arg(LEASE / 1_000).query_async::<Value>(&mut connection).await;
    assert_eq!(limited.unwrap(), Value::Int(1));
    let complete = cmd("SET").arg(&key).arg("consumed").arg("EX").arg(RETENTION / 1_000).to_owned();
    assert_eq!(complete.query_async::<Value>(&mut connection).await.unwrap(), Value::Okay);
}

pub async fn get(mut connection: MultiplexedConnection, number: u64) {
    let seen = cmd("GET").arg(&key(b'b', number)).query_async::<Value>(&mut connection).await;
    assert_eq!(seen.unwrap(), Value::BulkString(b"2".to_vec()));
}
