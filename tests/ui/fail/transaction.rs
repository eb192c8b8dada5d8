// expect: no parameter named `tx`; did you mean `txn`?
#![allow(unused_variables)]
use idempotent::{Rejection, idempotent};

struct Transaction<'c>(&'c ());

#[idempotent(key = order, transaction = tx)]
async fn no_such_parameter(order: u64, txn: &mut Transaction<'_>) -> Result<(), Rejection> {
    let _ = txn;
    Ok(())
}

#[idempotent(key = order, transaction = tx)]
async fn owned(order: u64, tx: Transaction<'static>) -> Result<(), Rejection> {
    let _ = tx;
    Ok(())
}

#[idempotent(key = order, transaction = leased(tx))]
async fn shared(order: u64, tx: &Transaction<'_>) -> Result<(), Rejection> {
    let _ = tx;
    Ok(())
}

#[idempotent(key = order, transaction = "tx")]
async fn in_quotes(order: u64, tx: &mut Transaction<'_>) -> Result<(), Rejection> {
    let _ = tx;
    Ok(())
}

#[idempotent(key = (order, tx.0), transaction = tx)]
async fn not_begun_when_the_key_is_asked_for(order: u64, tx: &mut Transaction<'_>) -> Result<(), Rejection> {
    let _ = tx;
    Ok(())
}

#[idempotent(key = order, transaction = tx, on_store_error = run_unprotected)]
async fn without_its_store(order: u64, tx: &mut Transaction<'_>) -> Result<(), Rejection> {
    let _ = tx;
    Ok(())
}

#[idempotent(key = order, transaction = tx, detach)]
async fn detached(order: &u64, tx: &mut Transaction<'_>) -> Result<u64, Rejection> {
    let _ = tx;
    Ok(*order)
}

fn main() {
    let _ = (detached, without_its_store);
}
