#![allow(clippy::unwrap_used)]
use std::collections::HashMap;

use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TraceContextExt;
use opentelemetry_sdk::propagation::TraceContextPropagator;

use super::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn extracted<const N: usize>(headers: [(&str, &[u8]); N]) -> ExtractedContext {
    ExtractedContext::of(&headers.into_iter().collect())
}

fn found<const N: usize>(headers: [(&str, &[u8]); N]) -> Option<SpanContext> {
    extracted(headers).valid()
}

#[test]
fn a_context_comes_back_as_it_was_written() {
    let state = TraceState::from_str("vendor=1,other@x=2").unwrap();
    for flags in [TraceFlags::default(), TraceFlags::SAMPLED] {
        let context = SpanContext::new(TraceId::from(7_u128), SpanId::from(u64::MAX), flags, true, state.clone());
        let mut headers: Headers =
            [("traceparent", "old"), ("other", "kept"), ("tracestate", "old=1")].into_iter().collect();
        replace(&mut headers, headers_of(&context));
        assert_eq!(ExtractedContext::of(&headers).valid().unwrap(), context);
        assert_eq!(headers.len(), 3);
    }
    assert!(headers_of(&SpanContext::empty_context()).is_empty());
}

#[test]
fn hostile_parents_are_ignored() {
    let long = [PARENT.as_bytes(), &[b'-'; 10_000]].concat();
    let future = PARENT.replacen("00", "cc", 1);
    let hostile: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"-".to_vec(),
        vec![b'-'; 55],
        vec![0xff; 55],
        vec![b'0'; 55],
        long.clone(),
        [future.as_bytes(), &long[55..]].concat(),
        format!("{PARENT}-00").into(),
        format!("{PARENT} ").into(),
        format!(" {PARENT}").into(),
        format!("{future}00").into(),
        PARENT.replacen("00", "ff", 1).into(),
        PARENT.replacen("00", "0", 1).into(),
        PARENT.replacen("00", "0g", 1).into(),
        PARENT.replace("4bf9", "4BF9").into(),
        PARENT.replace("4bf9", "4bg9").into(),
        PARENT.replace("4bf9", "+bf9").into(),
        PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)).into(),
        PARENT.replace("00f067aa0ba902b7", &"0".repeat(16)).into(),
        PARENT.replace("-01", "-0x").into(),
        PARENT.replace("36-00", "3-600").into(),
        PARENT.replace('-', "_").into(),
        PARENT.replace("4b", "é").into(),
    ];
    for value in hostile {
        let text = String::from_utf8_lossy(&value[..value.len().min(80)]).into_owned();
        assert!(matches!(extracted([("traceparent", &value)]), ExtractedContext::Invalid), "{text}");
    }
    assert!(matches!(extracted([]), ExtractedContext::Missing));
    assert!(matches!(extracted([("tracestate", b"a=b"), ("Traceparent", b"")]), ExtractedContext::Missing));
}

#[test]
fn the_first_valid_of_several_parents_counts() {
    let other = PARENT.replace("4bf9", "0000");
    let context =
        found([("traceparent", b"bad"), ("traceparent", PARENT.as_bytes()), ("traceparent", other.as_bytes())]);
    assert_eq!(context.unwrap().trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
}

#[test]
fn a_later_version_is_read_like_version_00_and_unknown_flags_are_dropped() {
    for later in
        [PARENT.replacen("00", "cc", 1), PARENT.replacen("00", "01", 1) + "-more", PARENT.replace("-01", "-ff")]
    {
        let context = found([("traceparent", later.as_bytes())]).unwrap();
        assert_eq!((context.trace_flags(), context.is_remote()), (TraceFlags::SAMPLED, true), "{later}");
    }
}

#[test]
fn a_malformed_state_is_dropped_and_the_parent_is_kept() {
    let at_most = format!("a={},b={}", "x".repeat(255), "y".repeat(252));
    assert_eq!(at_most.len(), 512);
    let too_long = format!("{at_most}y");
    let kept: [(&[u8], &str); 3] = [(b"a=1", "a=1"), (b"a=1, b=2", "a=1,b=2"), (at_most.as_bytes(), &at_most)];
    for (state, expected) in kept {
        let context = found([("traceparent", PARENT.as_bytes()), ("tracestate", state)]).unwrap();
        assert_eq!(context.trace_state().header(), expected);
    }
    let dropped: [&[u8]; 7] =
        [b"a", b"A=1", b"a=1\r\nx: y", b"a=\xff", "a=é".as_bytes(), too_long.as_bytes(), &[b','; 100_000]];
    for state in dropped {
        let context = found([("traceparent", PARENT.as_bytes()), ("tracestate", state)]).unwrap();
        assert_eq!(context.trace_state().header(), "", "{:?}", String::from_utf8_lossy(&state[..state.len().min(9)]));
    }
    let two = found([("traceparent", PARENT.as_bytes()), ("tracestate", b"a=1"), ("tracestate", b"b=2")]).unwrap();
    assert_eq!(two.trace_state().header(), "a=1,b=2");
    let many: Headers = std::iter::once(("traceparent", PARENT)).chain((0..600).map(|_| ("tracestate", ""))).collect();
    assert_eq!(ExtractedContext::of(&many).valid().unwrap().trace_state().header(), "");
}

#[test]
fn the_propagator_of_the_sdk_reads_and_writes_the_same() {
    for parent in [PARENT.to_owned(), PARENT.replace("-01", "-00"), PARENT.replacen("00", "cc", 1)] {
        let context = found([("traceparent", parent.as_bytes()), ("tracestate", b"a=1,b=2")]).unwrap();
        let carrier =
            HashMap::from([("traceparent".to_owned(), parent), ("tracestate".to_owned(), "a=1,b=2".to_owned())]);
        let theirs = TraceContextPropagator::new().extract(&carrier);
        assert_eq!(*theirs.span().span_context(), context);
        let mut written = HashMap::new();
        TraceContextPropagator::new()
            .inject_context(&Context::new().with_remote_span_context(context.clone()), &mut written);
        let ours: HashMap<_, _> =
            headers_of(&context).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(ours, written);
    }
}
