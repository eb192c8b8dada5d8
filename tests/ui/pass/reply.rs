//! A reply strategy changes what the wrapped function returns; `impl Trait` can then be returned, too.
#![deny(warnings)]
use std::fmt::Display;

use idempotent::{Executor, MemoryStore, Rejection, Rejects, Replies, Reshapes, Split, idempotent};

struct Text;

impl Reshapes for Text {
    type Output<R> = String;
}

impl<R: Display> Replies<R> for Text {
    type Value = String;
    type Failure = String;

    fn split(reply: R) -> impl Future<Output = Split<String, String>> {
        std::future::ready(Split::Value(reply.to_string()))
    }
    fn value(value: String) -> String {
        value
    }
    fn replayed(value: String) -> String {
        format!("{value} again")
    }
    fn failure(failure: String) -> String {
        failure
    }
}

impl<R: Display> Rejects<R> for Text {
    fn rejected(rejection: Rejection) -> String {
        rejection.to_string()
    }
}

#[idempotent(key = id, with = e, reply = Text)]
async fn named(e: &Executor, id: u8) -> u64 {
    if id == 0 {
        return 7;
    }
    u64::from(id)
}

#[idempotent(key = id, with = e, reply = Text)]
async fn opaque(e: &Executor, id: u8) -> impl Display {
    format!("<{id}>")
}

/// The core's own path, where there is no facade.
#[idempotent(key = id, with = e, reply = self::Text, crate = ::idempotent_core)]
async fn core(e: &Executor, id: u8) -> u8 {
    id
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() {
    let e = Executor::new(MemoryStore::default());
    assert_eq!((named(&e, 0).await, named(&e, 0).await), ("7".into(), "7 again".into()));
    assert_eq!((opaque(&e, 1).await, opaque(&e, 1).await), ("<1>".into(), "<1> again".into()));
    assert_eq!((core(&e, 1).await, core(&e, 1).await), ("1".into(), "1 again".into()));
}
