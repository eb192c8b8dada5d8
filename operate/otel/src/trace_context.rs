//! The W3C trace context in the headers of messages.
//!
//! Headers are input of strangers. A malformed header is ignored, and nothing is allocated for a header that is too long.
use std::str::FromStr;

use idempotent_mq::{Headers, TRACE_HEADERS};
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

const TRACEPARENT: &str = TRACE_HEADERS[0];
const TRACESTATE: &str = TRACE_HEADERS[1];
/// The length of a `traceparent` of version 00, which is also the length of the known part of later versions.
const KNOWN_LENGTH: usize = 55;
/// The maximum length of a `traceparent` of a later version.
const LONGEST_PARENT: usize = 256;
/// The maximum length of all `tracestate` headers together: the length that the specification asks each component to support.
const LONGEST_STATE: usize = 512;

/// The trace context of a message. Complete by definition.
#[derive(Debug)]
pub(crate) enum ExtractedContext {
    Missing,
    /// The message has a header `traceparent`, and no valid one.
    Invalid,
    Valid(SpanContext),
}

impl ExtractedContext {
    /// Reads the first valid `traceparent`, and `tracestate` if it is valid.
    pub(crate) fn of(headers: &Headers) -> Self {
        let mut parents = headers.all(TRACEPARENT).map(parse_parent).peekable();
        if parents.peek().is_none() {
            return Self::Missing;
        }
        match parents.flatten().next() {
            Some((trace, span, flags)) => Self::Valid(SpanContext::new(trace, span, flags, true, parse_state(headers))),
            None => Self::Invalid,
        }
    }

    pub(crate) fn valid(self) -> Option<SpanContext> {
        match self {
            Self::Valid(context) => Some(context),
            Self::Missing | Self::Invalid => None,
        }
    }
}

/// Returns the headers of a context, or none for an invalid context.
pub(crate) fn headers_of(context: &SpanContext) -> Vec<(&'static str, String)> {
    if !context.is_valid() {
        return Vec::new();
    }
    let flags = context.trace_flags() & TraceFlags::SAMPLED;
    let parent = format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), flags.to_u8());
    let state = context.trace_state().header();
    let state = (!state.is_empty()).then_some((TRACESTATE, state));
    std::iter::once((TRACEPARENT, parent)).chain(state).collect()
}

/// Replaces the trace context of a message.
pub(crate) fn replace(headers: &mut Headers, with: Vec<(&'static str, String)>) {
    TRACE_HEADERS.into_iter().for_each(|name| headers.remove(name));
    with.into_iter().for_each(|(name, value)| headers.push(name, value));
}

fn parse_parent(value: &[u8]) -> Option<(TraceId, SpanId, TraceFlags)> {
    let (known, rest) = value.split_at_checked(KNOWN_LENGTH).filter(|_| value.len() <= LONGEST_PARENT)?;
    let [version, trace, span, flags] =
        <[&[u8]; 4]>::try_from(known.split(|byte| *byte == b'-').collect::<Vec<_>>()).ok()?;
    let lengths = [version.len(), trace.len(), span.len(), flags.len()];
    let extension = match (parse_hex(version)?, rest) {
        (0xff, _) => return None,
        (_, []) => true,
        (0, _) => false,
        (_, rest) => rest[0] == b'-',
    };
    let (trace, span, flags) = (parse_hex(trace)?, u64::try_from(parse_hex(span)?).ok()?, parse_hex(flags)?);
    if lengths != [2, 32, 16, 2] || !extension || trace == 0 || span == 0 {
        return None;
    }
    let flags = TraceFlags::new(u8::try_from(flags).ok()?) & TraceFlags::SAMPLED;
    Some((TraceId::from(trace), SpanId::from(span), flags))
}

/// Parses lower-case hexadecimal digits.
fn parse_hex(digits: &[u8]) -> Option<u128> {
    let is_lower = digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_lower.then(|| std::str::from_utf8(digits).ok().and_then(|text| u128::from_str_radix(text, 16).ok()))?
}

/// Returns the trace state, or an empty one if a header is malformed or too long.
fn parse_state(headers: &Headers) -> TraceState {
    let length: usize = headers.all(TRACESTATE).map(|value| value.len() + 1).sum();
    if length > LONGEST_STATE + 1 {
        return TraceState::default();
    }
    let joined = headers.all(TRACESTATE).collect::<Vec<_>>().join(&b","[..]);
    // Other bytes could end up in a header of a protocol that gives them a meaning.
    let is_printable = joined.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let state = std::str::from_utf8(&joined).ok().filter(|_| is_printable);
    state.and_then(|state| TraceState::from_str(state).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
