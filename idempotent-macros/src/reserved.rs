//! Words that are not arguments of the attribute. Each error names the replacement.

/// Returns the reason why `name` is not an argument, and the replacement.
pub(crate) fn argument(name: &str) -> Option<&'static str> {
    match name {
        "version" => Some(VERSION),
        _ => None,
    }
}

const VERSION: &str = "there is no argument `version`: a version is compared and set in the transaction of the update. Give the \
     handler `transaction = tx`, and call `guard.newer(&mut **tx, entity, fields, version)` of an `idempotent::VersionGuard` \
     before the update";
