// expect: an idempotent handler cannot return `u64`
use idempotent::{Rejection, idempotent};

#[async_trait::async_trait]
trait Handle {
    async fn number(&self, order: u64) -> u64;
    async fn slip(&self, order: u64) -> Result<u64, Rejection>;
}

struct Service;

#[async_trait::async_trait]
impl Handle for Service {
    #[idempotent(key = order)]
    async fn number(&self, order: u64) -> u64 {
        order
    }

    #[idempotent(key = oder)]
    async fn slip(&self, order: u64) -> Result<u64, Rejection> {
        Ok(order)
    }
}

fn main() {
    let _ = (Service.number(1), Service.slip(1));
}
