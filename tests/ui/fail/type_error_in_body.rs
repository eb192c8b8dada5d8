// expect: expected `String`, found `&str`
use idempotent::{Rejection, idempotent};

const ONE: u8 = 1;

#[idempotent(key = const { ONE })]
async fn charge() -> Result<String, Rejection> {
    Ok("text")
}

#[idempotent(key = const { ONE })]
async fn nothing() -> Result<String, Rejection> {
    let _ = 1;
}

fn main() {
    let _ = (charge(), nothing());
}
