// expect: `detach` needs owned arguments
use idempotent::{Rejection, idempotent};

struct Service(u64);

impl Service {
    #[idempotent(key = order, detach)]
    async fn charge(&self, order: u64) -> Result<u64, Rejection> {
        Ok(self.0 + order)
    }
}

#[idempotent(key = order, detach)]
async fn refund(order: &str) -> Result<usize, Rejection> {
    Ok(order.len())
}

struct Order<'a>(&'a str);

// A lifetime in a type of one's own is for rustc to judge.
#[idempotent(key = order.0, detach)]
async fn cancel(order: Order<'_>) -> Result<usize, Rejection> {
    Ok(order.0.len())
}

fn main() {
    let _ = Service(1).charge(1);
    let _ = (refund("a"), cancel(Order("a")));
}
