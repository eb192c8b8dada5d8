// expect: `#[idempotent]` applies to
use idempotent::{Rejection, idempotent};

#[idempotent(key = self.0)]
struct Order(u64);

#[idempotent(key = self.0)]
impl Order {
    fn charge(&self) -> Result<u64, Rejection> {
        Ok(self.0)
    }
}

#[idempotent(key = 1u8)]
const fn constant() {}

#[idempotent(key = 1u8)]
extern "C" fn foreign() {}

trait Handle {
    #[idempotent(key = 1u8)]
    async fn handle(&self) -> Result<(), Rejection>;
}

fn main() {
    constant();
    foreign();
    let _ = Order(1).charge();
}
