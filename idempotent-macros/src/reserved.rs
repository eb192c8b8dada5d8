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

/// The error for `on_in_flight = ack`.
pub(crate) const ACK: &str = "`on_in_flight = ack` loses the message if the run in flight fails and nothing \
     resends it, which the attribute cannot see; set the policy instead: `Messages::keyed(…).policy(…)` on a \
     consumer with `ConsumerBuilder::log`; here: `on_in_flight = retry` or `on_in_flight = wait(\"2s\")`";
