// expect: `reply = Http` does not support `u64`
use idempotent::{Http, IdempotencyKey, idempotent};

#[idempotent(scene = rest, key = key, tenant = (), fingerprint = (), reply = Http)]
async fn create(key: IdempotencyKey) -> u64 {
    17
}

#[idempotent(scene = rest, key = key, tenant = (), fingerprint = (), reply = Http)]
async fn fallible(key: IdempotencyKey) -> Result<&'static str, std::io::Error> {
    Ok("created")
}

fn main() {
    let _: axum::Router<()> = axum::Router::new().route("/", axum::routing::post(create));
}
