// expect: must outlive `'static`
use idempotent::{Rejection, idempotent};

struct Service(u8);

impl Service {
    #[idempotent(key = 1u8, detach)]
    async fn charge(&self) -> Result<u8, Rejection> {
        Ok(self.0)
    }
}

fn main() {
    let _ = Service(1).charge();
}
