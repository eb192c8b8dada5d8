//! Headers that describe one exchange and not its result.
use http::HeaderName;

/// The headers and trailers that are stored only on request. They describe the first exchange: its moment, its client, its
/// limits, its ids and its path. A `*` at the end stands for any rest. The HTTP reference of the book has the same list.
pub const EXCHANGE_HEADERS: [&str; 46] = [
    // Its moment and its client (RFC 6265).
    "date",
    "age",
    "set-cookie",
    "authorization",
    "authentication-info",
    "proxy-authentication-info",
    // Rate limits.
    "ratelimit*",
    "x-ratelimit*",
    "x-rate-limit*",
    // Ids of requests.
    "request-id",
    "x-request-id",
    "correlation-id",
    "x-correlation-id",
    "x-amz-request-id",
    "x-amz-id-2",
    "x-amz-cf-id",
    "x-amzn-requestid",
    "x-ms-request-id",
    "cf-ray",
    // Traces.
    "traceparent",
    "tracestate",
    "traceresponse",
    "baggage",
    "trace-id",
    "x-trace-id",
    "b3",
    "x-b3-*",
    "x-datadog-*",
    "uber-trace-id",
    "sentry-trace",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "grpc-trace-bin",
    // Timings and load.
    "server-timing",
    "x-runtime",
    "x-response-time",
    "x-process-time",
    "x-envoy-upstream-service-time",
    "endpoint-load-metrics*",
    "grpc-server-stats-bin",
    // Caches, proxies and retries.
    "via",
    "x-cache*",
    "cache-status",
    "proxy-status",
    "grpc-previous-rpc-attempts",
    "grpc-retry-pushback-ms",
];

/// Returns whether a header describes the first exchange.
pub(crate) fn describes_exchange(name: &HeaderName) -> bool {
    let name = name.as_str();
    EXCHANGE_HEADERS.iter().any(|header| match header.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *header,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_named_in_full_or_by_its_start() {
        for name in ["date", "x-request-id", "ratelimit", "x-ratelimit-remaining", "x-b3-spanid"] {
            assert!(describes_exchange(&HeaderName::from_static(name)), "{name}");
        }
        for name in ["dates", "x-request-id-2", "x-b3", "etag", "location", "content-type", "retry-after", "x-rate"] {
            assert!(!describes_exchange(&HeaderName::from_static(name)), "{name}");
        }
    }
}
