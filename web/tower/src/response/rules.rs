//! Rules for storing responses.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::response::Parts;
use idempotent_core::{Executor, OnLeaseLost, Policy, SystemClock};

use crate::panic_guard::catch_panic;
use crate::response::body_store::{BodyStore, BodyStoreConfig};
use crate::response::exchange_headers::describes_exchange;
use crate::response::replay_header::ReplayHeader;
use crate::response::store_policy::{Idempotent, StorePolicy, grpc_status, is_grpc};

/// Headers that apply to one connection (RFC 9110, section 7.6.1). The server computes the length of a replay itself.
static CONNECTION_HEADERS: [HeaderName; 10] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
];

/// The largest total size of the stored headers, in bytes.
pub(crate) const MAX_HEADERS: usize = 256 << 10;

/// The default for the longest run that renews its lease.
const MAX_RUN: Duration = Duration::from_secs(24 * 3600);

type SanitizerFn = dyn Fn(&mut Response<Bytes>) + Send + Sync;

/// Rules that decide which responses are stored, and which parts of them.
#[derive(Clone)]
#[must_use]
pub struct ResponseRules {
    pub(crate) max_response: u64,
    buffer_unknown: bool,
    store: StorePolicy,
    pub(crate) replay_header: ReplayHeader,
    dropped: Vec<HeaderName>,
    kept: Vec<HeaderName>,
    sanitizer: Option<Arc<SanitizerFn>>,
    pub(crate) spill: Option<BodyStoreConfig>,
    spill_within: Duration,
}

impl Default for ResponseRules {
    fn default() -> Self {
        Self {
            max_response: 1 << 20,
            buffer_unknown: false,
            store: StorePolicy::Success,
            replay_header: ReplayHeader::Replayed,
            dropped: Vec::new(),
            kept: Vec::new(),
            sanitizer: None,
            spill: None,
            spill_within: Self::SPILL_WITHIN,
        }
    }
}

impl fmt::Debug for ResponseRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseRules")
            .field("max_response", &self.max_response)
            .field("store", &self.store)
            .field("replay_header", &self.replay_header)
            .finish_non_exhaustive()
    }
}

impl ResponseRules {
    /// The default time limit of a [`BodyStore`] operation: 10 s.
    pub const SPILL_WITHIN: Duration = Duration::from_secs(10);

    /// Sets the size of the largest body that a record stores, in bytes. A larger body passes through to its caller,
    /// and duplicates learn that the request has completed.
    ///
    /// The layer derives `max_result` from this limit, unless its policy or the executor's policy for REST sets
    /// `max_result`. A response that exceeds `max_result` is not stored at all, not even its `Location`.
    ///
    /// # Default
    /// 1 MiB
    pub fn max_response(mut self, bytes: u64) -> Self {
        self.max_response = bytes;
        self
    }

    /// Stores bodies larger than [`max_response`](Self::max_response), up to `max` bytes, in external storage. The body
    /// stays in memory while it is written.
    ///
    /// Larger bodies pass through. Bodies of unknown length pass through as well, unless
    /// [`buffer_unknown`](Self::buffer_unknown) is set. Applies only to the layer.
    ///
    /// # Default
    /// No external storage
    pub fn spill(mut self, to: impl BodyStore, max: u64) -> Self {
        let (to, clock) = (Arc::new(to), Arc::new(SystemClock::new()));
        self.spill = Some(BodyStoreConfig { to, max, within: self.spill_within, clock });
        self
    }

    /// Sets the time limit for storing a body in the [`spill`](Self::spill), and for loading one. During that time the
    /// request holds its lease, or a client waits. After a timeout the request completes and its response is not
    /// stored.
    ///
    /// # Default
    /// [`SPILL_WITHIN`](Self::SPILL_WITHIN), 10 s
    pub fn spill_within(mut self, most: Duration) -> Self {
        self.spill_within = most;
        self.spill = self.spill.map(|spill| BodyStoreConfig { within: most, ..spill });
        self
    }

    /// Sets whether bodies of unknown length are buffered, up to the same limit. Use it for services that stream short
    /// responses. [`StorePolicy::Grpc`] implies it for gRPC responses. A body that never ends is held back until it
    /// exceeds the limit.
    ///
    /// # Default
    /// Off: such bodies pass through as they arrive, and are not stored
    pub fn buffer_unknown(mut self, buffer: bool) -> Self {
        self.buffer_unknown = buffer;
        self
    }

    /// Sets which responses complete a request.
    ///
    /// # Default
    /// [`StorePolicy::Success`]
    pub fn store(mut self, policy: StorePolicy) -> Self {
        self.store = policy;
        self
    }

    /// Sets the header that marks a replay.
    ///
    /// # Default
    /// [`ReplayHeader::Replayed`]
    pub fn replay_header(mut self, header: ReplayHeader) -> Self {
        self.replay_header = header;
        self
    }

    /// Stores a header that is not stored by default, such as `Set-Cookie` or `X-Request-Id`. Headers of the connection are
    /// never stored. Applies to trailers as well.
    ///
    /// # Default
    /// Headers that describe the first exchange are not stored: cookies, dates, rate limits, ids of requests and traces,
    /// timings, and the work of caches and proxies. The HTTP reference of the book lists them
    pub fn keep(mut self, name: HeaderName) -> Self {
        self.kept.push(name);
        self
    }

    /// Excludes a header from all stored responses. Applies to trailers as well.
    pub fn drop(mut self, name: HeaderName) -> Self {
        self.dropped.push(name);
        self
    }

    /// Edits each response before it is stored. The first caller receives the original response. The function does not
    /// see trailers; use [`drop`](Self::drop) to exclude one. If the function panics, nothing is stored.
    pub fn sanitize(mut self, sanitizer: impl Fn(&mut Response<Bytes>) + Send + Sync + 'static) -> Self {
        self.sanitizer = Some(Arc::new(sanitizer));
        self
    }

    /// Returns whether a response completes its request, or `None` if the user's function panics.
    pub(crate) fn stores<B>(&self, response: &Response<B>) -> Option<bool> {
        Idempotent::stores(response).or_else(|| self.store.stores(response.status(), response.headers()))
    }

    /// Returns the size of the largest body that is read into memory, in bytes.
    #[doc(hidden)]
    #[must_use]
    pub fn largest_in_memory(&self) -> u64 {
        self.spill.as_ref().map_or(self.max_response, |spill| spill.max.max(self.max_response))
    }

    /// Returns whether the spill accepts only bodies that fit into a record.
    pub(crate) fn spills_nothing(&self) -> bool {
        self.spill.as_ref().is_some_and(|spill| spill.max <= self.max_response)
    }

    /// Returns these rules with the clock of the executor.
    pub(crate) fn timed(rules: &Arc<Self>, executor: &Executor) -> Arc<Self> {
        match &rules.spill {
            None => rules.clone(),
            Some(spill) => {
                let spill = BodyStoreConfig { clock: executor.clock().clone(), ..spill.clone() };
                Arc::new(Self { spill: Some(spill), ..Self::clone(rules) })
            }
        }
    }

    /// Decides by the trailers whether a response completes its request, after [`stores`](Self::stores) has returned
    /// true.
    pub(crate) fn stores_with_trailers(&self, parts: &Parts, trailers: Option<&HeaderMap>) -> bool {
        if parts.extensions.get::<Idempotent>().is_some() || !matches!(self.store, StorePolicy::Grpc) {
            return true;
        }
        match trailers.and_then(grpc_status).or_else(|| grpc_status(&parts.headers)) {
            Some(code) => code == "0",
            // A gRPC response without a status has failed.
            None => !is_grpc(&parts.headers),
        }
    }

    /// Returns whether a body of unknown length is read.
    pub(crate) fn buffers_unknown(&self, parts: &Parts) -> bool {
        self.buffer_unknown || (matches!(self.store, StorePolicy::Grpc) && is_grpc(&parts.headers))
    }

    /// Returns the policy that these rules need: room for a stored response, and a run that continues after it has lost
    /// its lease.
    ///
    /// Such a run completes because its effect has happened and its client waits for the response. It renews its lease
    /// as long as it may take, because nothing stops it and a second run must not start in parallel.
    pub(crate) fn policy(&self) -> Policy {
        let room = self.max_response.saturating_add(2 * MAX_HEADERS as u64);
        Policy::new().max_result(room).max_run(MAX_RUN).on_lease_lost(OnLeaseLost::Finish)
    }

    /// Returns the headers to store. Includes the `Trailer` header only if the trailers are stored.
    pub(crate) fn headers<'a>(
        &'a self,
        headers: &'a HeaderMap,
        trailers: bool,
    ) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
        // Headers that `Connection` names are hop-by-hop as well.
        let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
        let hops: Vec<&str> = named.flat_map(|list| list.split(',')).map(str::trim).collect();
        headers.iter().filter(move |(name, _)| {
            let is_hop = (CONNECTION_HEADERS.contains(name) && !(trailers && *name == header::TRAILER))
                || hops.iter().any(|hop| name.as_str().eq_ignore_ascii_case(hop));
            let is_left_out = describes_exchange(name) && !self.kept.contains(name);
            !is_hop && !is_left_out && !self.dropped.contains(name)
        })
    }

    /// Returns the response as the sanitizer leaves it, or `None` without a sanitizer.
    pub(crate) fn sanitized(&self, parts: &Parts, body: Bytes, trailers: bool) -> Option<SanitizedResponse> {
        let sanitizer = self.sanitizer.as_ref()?;
        let mut kept = Response::new(body);
        *kept.status_mut() = parts.status;
        for (name, value) in self.headers(&parts.headers, trailers) {
            kept.headers_mut().append(name, value.clone());
        }
        let sanitized = catch_panic("ResponseRules::sanitize", || sanitizer(&mut kept));
        Some(sanitized.map(|()| kept).ok_or(SanitizerPanicked))
    }
}

/// The output of a sanitizer.
pub(crate) type SanitizedResponse = Result<Response<Bytes>, SanitizerPanicked>;

/// The sanitizer panicked, so no part of the response may be stored.
pub(crate) struct SanitizerPanicked;

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::CONTENT_TYPE;

    use super::*;
    use crate::BodyStoreFuture;

    struct NoStore;

    impl BodyStore for NoStore {
        fn put<'a>(&'a self, _: &'a str, _: Bytes) -> BodyStoreFuture<'a, ()> {
            Box::pin(std::future::pending())
        }

        fn get<'a>(&'a self, _: &'a str) -> BodyStoreFuture<'a, Option<Bytes>> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn the_largest_body_in_memory_is_that_of_the_record_or_of_the_body_store() {
        let rules = ResponseRules::default().max_response(100);
        assert_eq!(rules.largest_in_memory(), 100);
        assert_eq!(rules.clone().spill(NoStore, 1_000).largest_in_memory(), 1_000);
        assert_eq!(rules.spill(NoStore, 10).largest_in_memory(), 100);
    }

    #[test]
    fn a_body_of_unknown_length_is_read_for_grpc_by_the_grpc_policy_only() {
        let grpc = ResponseRules::default().store(StorePolicy::Grpc);
        let (mut parts, ()) = http::Response::new(()).into_parts();
        assert!(!grpc.buffers_unknown(&parts));
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        assert!(grpc.buffers_unknown(&parts));
        assert!(!ResponseRules::default().buffers_unknown(&parts));
    }

    #[test]
    fn a_stored_response_has_room_for_its_headers_and_trailers() {
        let rules = ResponseRules { max_response: 1_000, ..ResponseRules::default() };
        let expected = Policy::new().max_result(1_000 + 512 * 1_024).max_run(MAX_RUN);
        assert_eq!(rules.policy(), expected.on_lease_lost(OnLeaseLost::Finish));
    }
}
