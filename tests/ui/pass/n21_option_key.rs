//! A missing value is an error for the message, never a constant that all such messages share.
#![deny(warnings)]
use idempotent::{Executor, MemoryStore, Rejection, idempotent};

#[idempotent(key = id, with = e)]
async fn charge(e: &Executor, id: Option<String>) -> Result<u8, Rejection> {
    Ok(1)
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() {
    let e = Executor::new(MemoryStore::default());
    assert_eq!(charge(&e, Some("a".into())).await.unwrap(), 1);
    let Err(Rejection::Key(error)) = charge(&e, None).await else { panic!("ran without a key") };
    assert!(error.to_string().contains("id"), "names the expression: {error}");
}
