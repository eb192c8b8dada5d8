//! Installs what the tests need.
use crate::tools::Done;

/// Nothing so far, and says so. Debian packages of servers come here with the stores that need them.
#[allow(clippy::unnecessary_wraps, reason = "every command ends in the same way")]
pub(crate) fn all() -> Done {
    println!("nothing to install: a Rust toolchain and a C compiler are all that the tests need");
    Ok(true)
}
