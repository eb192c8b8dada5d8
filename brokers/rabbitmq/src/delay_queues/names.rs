//! The names of the exchanges, queues and headers that delay messages.

/// The exchange to which delayed messages are published. The names of the other exchanges and queues begin with this
/// name.
pub(super) const BASE: &str = "idempotent.delay";
/// The prefix of the names of all delay queues.
pub(crate) const QUEUE_PREFIX: &str = "idempotent.delay.";
/// The prefix of the names of all headers that route a delayed message.
pub(crate) const HEADER_PREFIX: &str = "idempotent-delay-";
pub(crate) const DESTINATION: &str = "idempotent-delay-to";
/// The header of the first level. A message that the plugin delays has none.
pub(crate) const FIRST_LEVEL: &str = "idempotent-delay-first";
/// The value of the header of the last level.
pub(super) const END: &str = "end";
/// The plugin's header with the delay in ms. On a delivered message, the plugin has negated the number.
pub(crate) const PLUGIN_DELAY: &str = "x-delay";
/// The plugin's type of exchange.
pub(super) const PLUGIN_TYPE: &str = "x-delayed-message";

/// Returns the header that a message has for the step after this level.
pub(super) fn header_after(level: u64) -> String {
    format!("{HEADER_PREFIX}after-{level}")
}

/// Returns the exchange of the step after this level.
pub(super) fn exchange_after(base: &str, level: &str) -> String {
    format!("{base}.after.{level}")
}
