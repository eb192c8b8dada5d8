//! Arguments reserved for later versions. Each error names the missing feature and an alternative for now.

const ARGUMENTS: &[(&str, &str, &str)] = &[(
    "version",
    "a version guard that the attribute calls",
    "call `VersionGuard` of `idempotent-sqlx` yourself, in the transaction that makes the update",
)];

/// Returns the error for the reserved argument `name`, if it is one.
pub(crate) fn argument(name: &str) -> Option<String> {
    let (_, part, today) = ARGUMENTS.iter().find(|(reserved, ..)| *reserved == name)?;
    Some(format!("`{name}` comes with {part}, which is not in this version; today: {today}"))
}

/// The error for `on_in_flight = ack`.
pub(crate) const ACK: &str = "`on_in_flight = ack` loses the message where the run in flight fails and nothing sends it \
     again, and the attribute cannot see what stands behind it; set it where that is known: `Messages::keyed(…).policy(…)` on a \
     consumer with `ConsumerBuilder::log`; here: `on_in_flight = retry` or `on_in_flight = wait(\"2s\")`";
