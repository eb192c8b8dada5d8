//! The recipe that many services write by hand: `SET NX PX`, the handler, `SET PX`.
use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};

use crate::bare::{LEASE, RETENTION, key};

/// Runs the handler for a new key, and returns whether it ran. The claim has no owner, so a late holder overwrites the
/// record of the next one.
pub async fn run(mut connection: MultiplexedConnection, number: u64) -> bool {
    let key = key(b'h', number);
    let claim = cmd("SET").arg(&key).arg("consuming").arg("NX").arg("PX").arg(LEASE).to_owned();
    if claim.query_async::<Value>(&mut connection).await.unwrap() == Value::Nil {
        let seen = cmd("GET").arg(&key).query_async::<Value>(&mut connection).await.unwrap();
        assert_eq!(seen, Value::BulkString(b"consumed".to_vec()));
        return false;
    }
    let complete = cmd("SET").arg(&key).arg("consumed").arg("PX").arg(RETENTION).to_owned();
    assert_eq!(complete.query_async::<Value>(&mut connection).await.unwrap(), Value::Okay);
    true
}
