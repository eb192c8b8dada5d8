//! Automatic fixes.
use crate::outside::{FUZZ, STORE, outside};
use crate::tools::{Done, cargo, stream};

/// Formats, and applies clippy's suggestions.
pub(crate) fn all() -> Done {
    let clippy =
        ["clippy", "--fix", "--workspace", "--all-targets", "--all-features", "--allow-dirty", "--allow-staged"];
    let mut steps = vec![cargo(&clippy)?];
    // Formatting is the last step, because suggestions are not formatted.
    steps.push(cargo(&["fmt", "--all"])?);
    for package in [STORE, FUZZ] {
        steps.push(outside(package, "fmt", &[])?);
        // Updates a lock file to the current dependencies of the workspace's packages.
        steps.push(outside(package, "update", &["--workspace"])?);
    }
    for mut command in steps {
        if !stream(&mut command, |_| ())?.success() {
            return Ok(false);
        }
    }
    Ok(true)
}
