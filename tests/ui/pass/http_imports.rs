//! Imports for the return type are used, also where `reply = Http` replaces it with `Response`. The bounds still
//! determine the inferred type.
#![deny(warnings, unused_imports, clippy::pedantic, clippy::nursery)]
#![allow(clippy::redundant_pub_crate, clippy::unused_async, clippy::single_call_fn, clippy::multiple_bound_locations)]
use core::fmt::Display;

use idempotent::http::Problem;
use idempotent::reply::{HandlerOutcome, RejectStrategy, ReplyStrategy, ResponseShape};
use idempotent::{Executor, Http, MemoryStore, Rejection, idempotent};

mod plain {
    use axum::response::IntoResponse;

    use super::{Executor, Http, idempotent};

    #[idempotent(scene = rest, key = id, with = e, tenant = (), fingerprint = (), reply = Http, detach)]
    pub(super) async fn create(e: Executor, id: u8) -> impl IntoResponse {
        if id == 0 {
            return (axum::http::StatusCode::CREATED, String::new());
        }
        (axum::http::StatusCode::OK, id.to_string())
    }
}

mod within {
    use axum::http::StatusCode;
    use axum::response::IntoResponse as Answer;

    use super::{Executor, Http, Problem, idempotent};

    #[idempotent(scene = rest, key = id, with = e, tenant = (), fingerprint = (), reply = Http)]
    pub(super) async fn create(e: &Executor, id: u8) -> Result<(StatusCode, impl Answer + Send + use<>), Problem> {
        Ok((StatusCode::CREATED, id.to_string()))
    }
}

struct Text;

impl ResponseShape for Text {
    type Output<R> = String;
}

impl<R: Fn(u8) -> u8 + Send> ReplyStrategy<R> for Text {
    type Value = String;
    type Failure = String;

    fn split(reply: R) -> impl Future<Output = HandlerOutcome<String, String>> {
        core::future::ready(HandlerOutcome::Value(reply(1).to_string()))
    }
    fn value(value: String) -> String {
        value
    }
    fn replayed(value: String) -> String {
        value
    }
    fn failure(failure: String) -> String {
        failure
    }
}

impl<R: Fn(u8) -> u8 + Send> RejectStrategy<R> for Text {
    fn rejected(rejection: Rejection) -> String {
        rejection.to_string()
    }
}

/// The bound determines the argument of the closure, as in a function without the attribute.
#[idempotent(key = id, with = e, reply = Text)]
async fn adder(e: &Executor, id: u8) -> impl Fn(u8) -> u8 + Send + use<> {
    move |more| id.wrapping_add(more)
}

/// A type that a separate function cannot name.
struct Shelf<T>(T);

trait Shelved<T>: axum::response::IntoResponse {}

impl<T> Shelved<T> for String {}

impl<T: Display + Sync> Shelf<T> {
    #[idempotent(scene = rest, key = id, with = e, tenant = (), fingerprint = (), reply = Http)]
    async fn own(&self, e: &Executor, id: u8) -> impl Shelved<T> {
        format!("{id}{}", self.0)
    }

    #[idempotent(scene = rest, key = id, with = e, tenant = (), fingerprint = (), reply = Http, scope = "itself")]
    async fn itself<'a, U: Sync>(&self, e: &'a Executor, id: u8, u: &'a U) -> Result<impl Shelved<Self> + 'a, Problem> {
        let _ = u;
        Ok(format!("{id}{}", self.0))
    }

    #[idempotent(scene = rest, key = id, with = e, tenant = (), fingerprint = (), reply = Http, scope = "counted")]
    async fn counted<const N: usize>(&self, e: &Executor, id: [u8; N]) -> impl Shelved<[u8; N]> + Shelved<u8> {
        format!("{id:?}{}", self.0)
    }
}

/// An answer with bounds of its own, of which a function of its own cannot say all.
mod bounded {
    use axum::response::{IntoResponse, Response};
    use idempotent::{Executor, Http, idempotent};

    pub(super) struct Row(pub(super) u8);

    const LIMIT: usize = 1;

    pub(super) struct Rows<I: Iterator<Item = Row> + Send + 'static, const N: usize>(I);

    impl<I: Iterator<Item = Row> + Send + 'static, const N: usize> IntoResponse for Rows<I, N> {
        fn into_response(self) -> Response {
            self.0.take(N).map(|row| row.0.to_string()).collect::<String>().into_response()
        }
    }

    #[idempotent(scene = rest, key = id, with = e, tenant = (), fingerprint = (), reply = Http)]
    pub(super) async fn list(e: &Executor, id: u8) -> Rows<impl Iterator<Item = Row> + Send + use<>, LIMIT> {
        Rows::<_, LIMIT>(core::iter::once(Row(id)))
    }

    pub(super) struct Sent<T: Send + 'static>(T);

    impl<T: Send + IntoResponse + 'static> IntoResponse for Sent<T> {
        fn into_response(self) -> Response {
            self.0.into_response()
        }
    }

    mod answer {
        pub(super) use axum::response::IntoResponse as Imported;
    }
    use answer::Imported;

    #[idempotent(scene = rest, key = id, with = e, tenant = (), fingerprint = (), reply = Http)]
    pub(super) async fn send(e: Executor, id: u8) -> Sent<impl Imported> {
        Sent(id.to_string())
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() {
    let e = Executor::new(MemoryStore::default());
    assert_eq!(plain::create(e.clone(), 0).await.status(), 201);
    assert_eq!(within::create(&e, 1).await.status(), 201);
    assert_eq!(adder(&e, 1).await, "2");
    assert_eq!(bounded::list(&e, 1).await.status(), 200);
    assert_eq!(bounded::send(e.clone(), 1).await.status(), 200);
    let shelf = Shelf("books");
    assert_eq!(shelf.own(&e, 1).await.status(), 200);
    assert_eq!(shelf.itself(&e, 1, &()).await.status(), 200);
    assert_eq!(shelf.counted(&e, [1]).await.status(), 200);
}
