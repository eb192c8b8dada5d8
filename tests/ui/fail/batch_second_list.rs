// expect: put the entry of `prices` into its item
use std::collections::VecDeque;

use idempotent::{Rejection, idempotent};

#[idempotent(batch = order in orders, key = order)]
async fn vec(orders: Vec<u64>, prices: Vec<u32>) -> Vec<Result<(), Rejection>> {
    orders.iter().zip(prices).map(|_| Ok(())).collect()
}

#[idempotent(batch = order in orders, key = order)]
async fn before(prices: &[u32], orders: Vec<u64>) -> Vec<Result<(), Rejection>> {
    orders.iter().zip(prices).map(|_| Ok(())).collect()
}

#[idempotent(batch = order in orders, key = order)]
async fn iterator(orders: Vec<u64>, mut prices: impl Iterator<Item = u32>) -> Vec<Result<(), Rejection>> {
    orders.iter().map(|_| prices.next().map(drop).ok_or(Rejection::Nested { scope: "".into() })).collect()
}

#[idempotent(batch = order in orders, key = order)]
async fn deque(orders: Vec<u64>, mut prices: VecDeque<u32>) -> Vec<Result<(), Rejection>> {
    orders.iter().map(|_| prices.pop_front().map(drop).ok_or(Rejection::Nested { scope: "".into() })).collect()
}

fn main() {
    let _ = (vec(vec![], vec![]), before(&[], vec![]), iterator(vec![], [].into_iter()), deque(vec![], [].into()));
}
