// expect: call to unsafe function `charge` is unsafe and requires unsafe
use idempotent::{Rejection, idempotent};

/// # Safety
/// `order` is not 0.
#[idempotent(key = order)]
async unsafe fn charge(order: u64) -> Result<u64, Rejection> {
    // SAFETY: the caller says so.
    unsafe { std::hint::assert_unchecked(order != 0) };
    Ok(order)
}

fn main() {
    // SAFETY: 1 is not 0.
    let _ = unsafe { charge(1) };
    let _ = charge(1);
}
