// expect: `by = token` needs a `tenant`, the caller that the token was issued to
use idempotent::{Rejection, idempotent};

#[idempotent(by = token, key = token)]
async fn of_anybody(token: &str) -> Result<usize, Rejection> {
    Ok(token.len())
}

#[idempotent(by = token, key = token, tenant = ())]
async fn of_none(token: &str) -> Result<usize, Rejection> {
    Ok(token.len())
}

#[idempotent(by = token, tenant = user)]
async fn none(user: usize, token: &str) -> Result<usize, Rejection> {
    Ok(user + token.len())
}

#[idempotent(by = token, key = tokn, tenant = user)]
async fn slip(user: usize, token: &str) -> Result<usize, Rejection> {
    Ok(user + token.len())
}

#[idempotent(by = token, key = "token", tenant = user)]
async fn quoted(user: usize, token: &str) -> Result<usize, Rejection> {
    Ok(user + token.len())
}

#[idempotent(by = token, key = token, tenant = user, scene = mq)]
async fn scene(user: usize, token: &str) -> Result<usize, Rejection> {
    Ok(user + token.len())
}

#[idempotent(by = token, key = token, tenant = user, prefix = "shop")]
async fn prefix(user: usize, token: &str) -> Result<usize, Rejection> {
    Ok(user + token.len())
}

#[idempotent(by = token, key = token, tenant = user, window = "5s")]
async fn window(user: usize, token: &str) -> Result<usize, Rejection> {
    Ok(user + token.len())
}

#[idempotent(by = token, key = token, tenant = user, ttl = 600)]
async fn ttl(user: usize, token: &str) -> Result<usize, Rejection> {
    Ok(user + token.len())
}

#[idempotent(by = token, key = token, tenant = user, on_store_error = run_unprotected)]
async fn unprotected(user: usize, token: &str) -> Result<usize, Rejection> {
    Ok(user + token.len())
}

#[idempotent(by = token, key = token, tenant = user, replay = true)]
async fn replay(user: usize, token: &str) -> Result<usize, Rejection> {
    Ok(user + token.len())
}

fn main() {
    let _ = (of_anybody("t"), none(1, "t"), slip(1, "t"), quoted(1, "t"), scene(1, "t"), prefix(1, "t"));
    let _ = (window(1, "t"), ttl(1, "t"), unprotected(1, "t"), replay(1, "t"));
}
