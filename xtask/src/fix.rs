//! What a machine can put right.
use crate::tools::{Done, cargo, stream};

/// Formats, and applies clippy's suggestions.
pub(crate) fn all() -> Done {
    let clippy =
        ["clippy", "--fix", "--workspace", "--all-targets", "--all-features", "--allow-dirty", "--allow-staged"];
    // Formatted last: a suggestion need not be.
    for arguments in [&clippy[..], &["fmt", "--all"]] {
        if !stream(&mut cargo(arguments)?, |_| ())?.success() {
            return Ok(false);
        }
    }
    Ok(true)
}
