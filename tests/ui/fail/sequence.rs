// expect: `sequence` is a stream and a number in it: `sequence = (user, number)`
use idempotent::{Rejection, idempotent};

#[idempotent(key = number, sequence = number)]
async fn not_a_pair(number: u64) -> Result<u64, Rejection> {
    Ok(1)
}

#[idempotent(key = number, sequence = ("a", "b", number))]
async fn three(number: u64) -> Result<u64, Rejection> {
    Ok(1)
}

#[idempotent(key = number, sequence = (number, 1))]
async fn a_literal(number: u64) -> Result<u64, Rejection> {
    Ok(1)
}

#[idempotent(key = number, sequence = ("", number))]
async fn without_a_stream(number: u64) -> Result<u64, Rejection> {
    Ok(1)
}

#[idempotent(key = number, after = number - 1, sequence = ("all", number))]
async fn both(number: u64) -> Result<u64, Rejection> {
    Ok(1)
}

#[idempotent(key = number, on_late = refuse)]
async fn late_for_nothing(number: u64) -> Result<u64, Rejection> {
    Ok(1)
}

#[idempotent(key = number, after = number - 1, on_late = refuse)]
async fn late_after(number: u64) -> Result<u64, Rejection> {
    Ok(1)
}

#[idempotent(key = number, sequence = ("all", number), on_late = refse)]
async fn misspelt(number: u64) -> Result<u64, Rejection> {
    Ok(1)
}

#[idempotent(by = param, sequence = ("all", number))]
async fn by_what_it_says(number: u64) -> Result<u64, Rejection> {
    Ok(1)
}

#[idempotent(key = number, sequence = ("all", number), on_store_error = run_unprotected)]
async fn without_its_store(number: u64) -> Result<u64, Rejection> {
    Ok(1)
}

#[idempotent(key = number, sequence = (usr, number))]
async fn no_such_argument(user: u64, number: u64) -> Result<u64, Rejection> {
    Ok(1)
}

#[idempotent(key = number, sequence = ("all", number?))]
async fn leaves_early(number: Option<u64>) -> Result<u64, Rejection> {
    Ok(1)
}

fn main() {}
