//! What a machine can put right.
use crate::external::external;
use crate::tools::{Done, cargo, stream};

/// Formats, and applies clippy's suggestions.
pub(crate) fn all() -> Done {
    let clippy =
        ["clippy", "--fix", "--workspace", "--all-targets", "--all-features", "--allow-dirty", "--allow-staged"];
    // Formatted last: a suggestion need not be.
    for mut command in [cargo(&clippy)?, cargo(&["fmt", "--all"])?, external("fmt", &[])?] {
        if !stream(&mut command, |_| ())?.success() {
            return Ok(false);
        }
    }
    Ok(true)
}
