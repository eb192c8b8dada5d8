// expect: return an owned value: a recorded result is replayed to later calls
use async_trait::async_trait;
use idempotent::{Rejection, idempotent};

#[idempotent(key = order)]
async fn charge(order: &str) -> Result<&str, Rejection> {
    Ok(order)
}

#[idempotent(key = order)]
async fn refund(order: u64) -> Result<Option<&'static str>, Rejection> {
    Ok((order > 1).then_some("refunded"))
}

struct Service;

#[async_trait]
trait Handle {
    async fn handle(&self, order: u64) -> Result<&'static str, Rejection>;
}

#[async_trait]
impl Handle for Service {
    #[idempotent(key = order)]
    async fn handle(&self, order: u64) -> Result<&'static str, Rejection> {
        Ok(if order > 1 { "done" } else { "refused" })
    }
}

fn main() {
    let _ = (charge("a"), refund(1), Service.handle(1));
}
