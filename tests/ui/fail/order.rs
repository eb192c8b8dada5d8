// expect: `on_broken_order` is about the call this one comes after: say which, `after = …`, or leave it out
use idempotent::{Rejection, idempotent};

#[idempotent(key = number, on_broken_order = skip("10m"))]
async fn after_nothing(number: u64) -> Result<u64, Rejection> {
    Ok(number)
}

#[idempotent(key = number, after = nmber - 1)]
async fn no_such_argument(number: u64) -> Result<u64, Rejection> {
    Ok(number)
}

#[idempotent(key = number, after = number - 1, on_broken_order = skip)]
async fn without_a_time(number: u64) -> Result<u64, Rejection> {
    Ok(number)
}

#[idempotent(key = number, after = number - 1, on_broken_order = skip(600))]
async fn without_a_unit(number: u64) -> Result<u64, Rejection> {
    Ok(number)
}

#[idempotent(key = number, after = number - 1, on_broken_order = skp("10m"))]
async fn misspelt(number: u64) -> Result<u64, Rejection> {
    Ok(number)
}

#[idempotent(key = number, after = number - 1, on_broken_order = halt("0s"))]
async fn in_no_time(number: u64) -> Result<u64, Rejection> {
    Ok(number)
}

#[idempotent(by = param, after = number - 1)]
async fn by_what_it_says(number: u64) -> Result<u64, Rejection> {
    Ok(number)
}

#[idempotent(key = number, after = number - 1, on_store_error = run_unprotected)]
async fn without_its_store(number: u64) -> Result<u64, Rejection> {
    Ok(number)
}

#[idempotent(key = number, after = before?)]
async fn leaves_early(number: u64, before: Option<u64>) -> Result<u64, Rejection> {
    Ok(number)
}

#[idempotent(key = number, after = "")]
async fn empty(number: u64) -> Result<u64, Rejection> {
    Ok(number)
}

fn main() {}
