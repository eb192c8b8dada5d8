// expect: `batch` returns a `Vec<…>` with one answer for each item
use idempotent::{Rejection, idempotent};

#[idempotent(batch = order in orders, key = order)]
async fn one_answer(orders: Vec<u64>) -> Result<(), Rejection> {
    Ok(())
}

#[idempotent(batch = orders, key = order)]
async fn no_item(orders: Vec<u64>) -> Vec<Result<(), Rejection>> {
    vec![]
}

#[idempotent(batch = order in orders, key = order)]
async fn borrowed(orders: &[u64]) -> Vec<Result<(), Rejection>> {
    vec![]
}

#[idempotent(batch = order in order, key = order)]
async fn misspelled(orders: Vec<u64>) -> Vec<Result<(), Rejection>> {
    vec![]
}

#[idempotent(batch = order in orders, key = shop)]
async fn one_key(shop: u64, orders: Vec<u64>) -> Vec<Result<(), Rejection>> {
    vec![]
}

#[idempotent(batch = order in orders, key = orders.len())]
async fn key_of_the_list(orders: Vec<u64>) -> Vec<Result<(), Rejection>> {
    vec![]
}

#[idempotent(batch = order in orders, key = order, detach)]
async fn detached(orders: Vec<u64>) -> Vec<Result<(), Rejection>> {
    vec![]
}

#[idempotent(batch = order in orders, key = order, on_in_flight = wait("2s"))]
async fn waiting(orders: Vec<u64>) -> Vec<Result<(), Rejection>> {
    vec![]
}

#[idempotent(batch = order in orders, by = param)]
async fn without_key(orders: Vec<u64>) -> Vec<Result<(), Rejection>> {
    vec![]
}

#[idempotent(batch = order in orders, key = order)]
async fn no_conversion(orders: Vec<u64>) -> Vec<Result<(), String>> {
    vec![]
}

fn main() {}
