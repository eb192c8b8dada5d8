// expect: `scope` is text in quotes: `scope = "billing"`
use idempotent::{Rejection, idempotent};

#[idempotent(key = order, scope = billing)]
async fn scope(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, prefix = shop)]
async fn prefix(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, message = wait)]
async fn message(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(key = order, scope = group)]
async fn of_the_call(order: u64, group: &str) -> Result<(u64, usize), Rejection> {
    Ok((order, group.len()))
}

fn main() {
    let _ = (scope(1), prefix(1), message(1), of_the_call(1, "a"));
}
