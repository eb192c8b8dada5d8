//! What a machine can put right.
use crate::outside::{FUZZ, STORE, outside};
use crate::tools::{Done, cargo, stream};

/// Formats, and applies clippy's suggestions.
pub(crate) fn all() -> Done {
    let clippy =
        ["clippy", "--fix", "--workspace", "--all-targets", "--all-features", "--allow-dirty", "--allow-staged"];
    let mut steps = vec![cargo(&clippy)?];
    // Formatted last: a suggestion need not be.
    steps.push(cargo(&["fmt", "--all"])?);
    for package in [STORE, FUZZ] {
        steps.push(outside(package, "fmt", &[])?);
        // Brings a lock file after what the workspace's packages have come to depend on.
        steps.push(outside(package, "update", &["--workspace"])?);
    }
    for mut command in steps {
        if !stream(&mut command, |_| ())?.success() {
            return Ok(false);
        }
    }
    Ok(true)
}
