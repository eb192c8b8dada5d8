// expect: no argument distinguishes two calls
use idempotent::{Executor, Rejection, idempotent};

#[idempotent(by = param)]
async fn none() -> Result<u64, Rejection> {
    Ok(1)
}

#[idempotent(by = param, with = e)]
async fn executor_alone(e: &Executor, _: u64) -> Result<u64, Rejection> {
    Ok(e.counts().deliveries())
}

#[idempotent(by = param, key = "order")]
async fn constant(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(by = param, key = oder)]
async fn slip(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(by = param, ttl = "5s")]
async fn ttl(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(by = param, retain = "5s")]
async fn retain(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(by = param, fingerprint = order)]
async fn fingerprint(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(by = param, window = "0s")]
async fn zero(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

#[idempotent(by = param, window = "5 secs ago")]
async fn window(order: u64) -> Result<u64, Rejection> {
    Ok(order)
}

fn main() {
    let _ = (none(), constant(1), slip(1), ttl(1), retain(1), fingerprint(1), zero(1), window(1));
    let _ = executor_alone;
}
