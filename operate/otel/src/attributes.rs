//! Attributes of spans: their names, and the outcome of a run as attributes and status.
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idempotent_core::{Key, Outcome};
use opentelemetry::trace::Status;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The version of the semantic conventions whose names for messaging this crate uses. Their status is "Development", so a later
/// version of this crate may use other names.
pub const SEMCONV_VERSION: &str = "1.42.0";

/// The target of all spans of the project.
pub(crate) const TARGET: &str = "idempotent";

/// The maximum length of a text in a span, in bytes.
#[cfg(feature = "mq")]
const LONGEST: usize = 120;

/// Returns the start of a text, for names and attributes. Control characters are replaced.
#[cfg(feature = "mq")]
pub(crate) fn bounded(text: &str) -> String {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].chars().map(|char| if char.is_control() { '_' } else { char }).collect()
}

/// Returns the hash of a key, as the text of the key shows it between braces.
pub(crate) fn key_hash(key: &Key) -> String {
    URL_SAFE_NO_PAD.encode(key.hash().to_be_bytes())
}

/// Returns true if the delivery found an earlier or concurrent run of its key.
pub(crate) fn is_duplicate(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Replayed | Outcome::ConsumedWithoutResult | Outcome::Duplicate | Outcome::InFlight { .. }
    )
}

/// Sets the outcome as attributes.
pub(crate) fn set_outcome(span: &Span, outcome: &Outcome, key: Option<&Key>, attempt: Option<u32>) {
    span.set_attribute("idempotent.outcome", outcome.name());
    span.set_attribute("idempotent.duplicate", is_duplicate(outcome));
    if let Some(key) = key {
        span.set_attribute("idempotent.key_hash", key_hash(key));
    }
    if let Some(attempt) = attempt {
        span.set_attribute("idempotent.attempt", i64::from(attempt));
    }
}

/// Sets the status of a span of this project. Duplicates and deferred deliveries are not errors.
pub(crate) fn set_status(span: &Span, outcome: &Outcome) {
    let is_error = matches!(
        outcome,
        Outcome::Released { .. }
            | Outcome::Failed
            | Outcome::Dead { .. }
            | Outcome::LeaseLost
            | Outcome::Unrecorded
            | Outcome::StoreDown(_)
            | Outcome::Misconfigured
            | Outcome::NoExecutor
            | Outcome::BadKey
    );
    if is_error {
        set_error(span, outcome.name());
    }
}

/// Sets the status to an error of this type.
pub(crate) fn set_error(span: &Span, error_type: &'static str) {
    span.set_attribute("error.type", error_type);
    span.set_status(Status::error(error_type));
}
