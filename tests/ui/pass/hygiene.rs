//! Handlers, arguments and types may have the names that the expansion uses.
#![forbid(unreachable_code)]
#![deny(warnings)]
#![allow(non_camel_case_types, dead_code)]
use idempotent::{Executor, MemoryStore, Rejection, idempotent};

mod core {}
mod std {}
struct Option;
struct Call;
struct Handler;
struct Policy;
struct Identity;
struct Auto;
struct Json;

#[idempotent(key = call, with = with)]
async fn run(with: &Executor, call: u8, handler: u8) -> Result<u8, Rejection> {
    Ok(call + handler)
}

#[idempotent(
    key = (__idempotent_call, __idempotent_handler),
    with = __idempotent_with,
    failed_if = |__idempotent_handler| *__idempotent_handler == 0
)]
async fn executor(
    __idempotent_with: &Executor,
    __idempotent_call: u8,
    __idempotent_handler: u8,
    __idempotent_return: u8,
) -> Result<u8, Rejection> {
    assert!(Executor::current().is_none() || __idempotent_with.clone().install().is_ok());
    Ok(__idempotent_call + __idempotent_handler + __idempotent_return)
}

#[idempotent(key = r#type, with = r#fn)]
async fn r#match(r#fn: Executor, r#type: u8) -> Result<u8, Rejection> {
    Ok(r#type)
}

macro_rules! handlers {
    ($($name:ident($id:ident: $ty:ty) -> $ret:ty = $key:expr;)*) => {$(
        #[idempotent(key = $key, with = e)]
        async fn $name(e: &Executor, $id: $ty) -> $ret {
            Ok($id)
        }
    )*};
}
handlers! { made(id: u8) -> Result<u8, Rejection> = id; }

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() {
    let e = Executor::new(MemoryStore::default());
    for _ in 0..2 {
        assert_eq!(run(&e, 1, 2).await.unwrap(), 3);
        assert_eq!(executor(&e, 1, 2, 3).await.unwrap(), 6);
        assert_eq!(r#match(e.clone(), 1).await.unwrap(), 1);
        assert_eq!(made(&e, 1).await.unwrap(), 1);
    }
}
