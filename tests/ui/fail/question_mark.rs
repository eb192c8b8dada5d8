// expect: an `Option` can be part of `key`, and a missing value is an error for this message
use idempotent::{Rejection, idempotent};

struct Message {
    id: Option<String>,
}

#[idempotent(key = msg.id?)]
async fn charge(msg: Message) -> Result<bool, Rejection> {
    Ok(msg.id.is_some())
}

fn main() {
    let _ = charge(Message { id: None });
}
