// expect: can only be coerced to `fn` types if they do not capture
use idempotent::{Rejection, idempotent};

#[idempotent(key = limit, failed_if = |total| *total > limit)]
async fn charge(limit: u32) -> Result<u32, Rejection> {
    Ok(limit)
}

fn main() {
    let _ = charge(1);
}
