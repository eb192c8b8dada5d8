//! Words that are no arguments of the attribute: each error says what to use.

/// Returns why there is no argument `name`, and what to use.
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
pub(crate) const ACK: &str = "`on_in_flight = ack` loses the message where the run in flight fails and nothing sends it \
     again, and the attribute cannot see what stands behind it; set it where that is known: `Messages::keyed(…).policy(…)` on a \
     consumer with `ConsumerBuilder::log`; here: `on_in_flight = retry` or `on_in_flight = wait(\"2s\")`";
