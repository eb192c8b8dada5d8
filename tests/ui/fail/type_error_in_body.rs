// expect: expected `String`, found `&str`
use idempotent::{Rejection, idempotent};

#[idempotent(key = 1u8)]
async fn charge() -> Result<String, Rejection> {
    Ok("text")
}

#[idempotent(key = 1u8)]
async fn nothing() -> Result<String, Rejection> {
    let _ = 1;
}

fn main() {
    let _ = (charge(), nothing());
}
