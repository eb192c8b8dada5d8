//! Every argument of `by = token` and `by = param` at once, in shapes that ask for trouble.
#![deny(warnings)]
use std::borrow::Cow;

use idempotent::{Executor, MemoryStore, Rejection, Tokens, idempotent};

const WORDS: &str = "sent already";

#[idempotent(
    by = token,
    key = token.or(fallback),
    tenant = (shop, &user),
    scene = rest,
    scope = "submit",
    ttl = "1h 30m",
    with = e,
    lease = "30s",
    max_run = "1h",
    retain = forever,
    fingerprint = body,
    on_in_flight = wait("2s"),
    on_store_error = fail,
    replay,
    message = WORDS,
    detach,
    crate = ::idempotent,
)]
async fn submit(
    e: Executor,
    (shop, user): (u32, String),
    token: Option<&'static str>,
    fallback: Option<&'static str>,
    body: Vec<u8>,
) -> Result<usize, Rejection> {
    Ok(body.len() + user.len())
}

#[idempotent(
    by = param,
    key = (body, { let r#match = user; r#match + 1 }, note),
    tenant = user,
    scene = "orders",
    scope = "order",
    prefix = "shop",
    window = "1m",
    replay,
    message = WORDS,
    with = e,
    on_store_error = run_unprotected,
    release_on_cancel,
)]
async fn order(e: &Executor, user: u32, body: &[u8], note: String) -> Result<usize, Rejection> {
    drop(note); // only looked at for the key
    Ok(body.len())
}

/// The body moves the arguments; they borrow, and have names that ours might have.
#[idempotent(by = param, scope = "every")]
async fn every<const N: usize>(
    mut call: Vec<String>,
    __idempotent_said: Option<&str>,
    [a, ref b @ ..]: [u8; 3],
    r#in: Cow<'_, str>,
    said: [u8; 2],
) -> Result<usize, Rejection> {
    call.push(r#in.into_owned());
    Ok(call.len() + __idempotent_said.map_or(0, str::len) + usize::from(a) + b.len() + said.len() + N)
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() {
    let e = Executor::new(MemoryStore::default());
    let token = Tokens::new(&e).scope("submit").issue((7, "u")).await.unwrap();
    let token: &'static str = token.as_str().to_owned().leak();
    for (given, fallback) in [(Some(token), None), (None, Some(token)), (Some(token), None)] {
        let answer = submit(e.clone(), (7, "u".into()), given, fallback, vec![1, 2]).await;
        assert_eq!(answer.unwrap(), 3);
    }
    let changed = submit(e.clone(), (7, "u".into()), Some(token), None, vec![1]).await;
    assert!(matches!(changed, Err(Rejection::Mismatch)), "{changed:?}");

    for _ in 0..2 {
        assert_eq!(order(&e, 1, b"tea", "x".into()).await.unwrap(), 3);
    }
    assert_eq!(e.counts().of("replayed"), 3);

    let call = |n| every::<1>(vec!["a".into()], Some("b"), [n, 2, 3], "c".into(), [4, 5]);
    e.scope(async {
        assert_eq!(call(1).await.unwrap(), 9);
        assert!(matches!(call(1).await, Err(Rejection::Duplicate { .. })));
        assert_eq!(call(2).await.unwrap(), 10);
    })
    .await;
}
