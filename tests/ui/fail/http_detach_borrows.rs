// expect: `detach` needs owned arguments
use axum::Json;
use idempotent::{Executor, Http, IdempotencyKey, idempotent};

struct Orders {
    executor: Executor,
}

impl Orders {
    #[idempotent(scene = rest, key = key, with = self.executor, tenant = (), fingerprint = (), reply = Http, detach)]
    async fn create(&self, key: IdempotencyKey, order: u32) -> Json<u32> {
        self.note(order);
        Json(order)
    }

    fn note(&self, _: u32) {}
}

fn main() {
    let _ = Orders::create;
}
