//! An unsafe handler stays unsafe.
#![deny(warnings)]
use idempotent::{Executor, MemoryStore, Rejection, idempotent};

/// # Safety
/// None is needed.
#[idempotent(key = id, with = e)]
async unsafe fn charge(e: &Executor, id: u8) -> Result<u8, Rejection> {
    // SAFETY: for the compiler's eyes only.
    unsafe { std::hint::assert_unchecked(true) };
    Ok(id)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let e = Executor::new(MemoryStore::default());
    #[deny(unused_unsafe)]
    // SAFETY: none is needed; without the block this would not compile.
    let answer = unsafe { charge(&e, 1) }.await;
    assert_eq!(answer.unwrap(), 1);
}
