// expect: `&Connection` cannot distinguish two calls
use idempotent::{Rejection, idempotent};

struct Connection;

#[idempotent(by = param)]
async fn every_argument(connection: &Connection, order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(by = param, key = (connection, order))]
async fn as_named(connection: &Connection, order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (every_argument(&Connection, 1), as_named(&Connection, 1));
}
