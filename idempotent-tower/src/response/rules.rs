//! Which answers are kept, and what of them.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::response::Parts;
use idempotent_core::{Executor, OnLeaseLost, Policy, SystemClock};

use crate::panic_guard::caught;
use crate::response::body_store::{Spill, Spilled};
use crate::response::replay_header::ReplayHeader;
use crate::response::store_policy::{Idempotent, StorePolicy, grpc_status, is_grpc};

/// True of one connection only (RFC 9110, section 7.6.1); the length is counted anew.
static OF_CONNECTION: [HeaderName; 10] = [
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

/// True of one moment, or meant for one browser (RFC 6265): kept only if asked for.
static OF_MOMENT: [HeaderName; 3] = [header::DATE, header::SET_COOKIE, header::AUTHORIZATION];

/// What the headers of a kept answer may come to, in bytes, beside its body.
pub(crate) const MAX_HEADERS: usize = 256 << 10;

/// How long a run keeps its lease, unless told otherwise.
const MAX_RUN: Duration = Duration::from_secs(24 * 3600);

type Sanitizer = dyn Fn(&mut Response<Bytes>) + Send + Sync;

/// Which answers are kept, and what of them.
#[derive(Clone)]
#[must_use]
pub struct ResponseRules {
    pub(crate) max_response: u64,
    buffer_unknown: bool,
    store: StorePolicy,
    pub(crate) replay_header: ReplayHeader,
    dropped: Vec<HeaderName>,
    kept: Vec<HeaderName>,
    sanitizer: Option<Arc<Sanitizer>>,
    pub(crate) spill: Option<Spilled>,
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
    /// How long a [`Spill`] may take, unless told otherwise.
    pub const SPILL_WITHIN: Duration = Duration::from_secs(10);

    /// The largest body kept, in bytes. A larger one passes through, and duplicates learn that the request is done.
    /// The layer sets `max_result` by it, unless its own policy or the executor's for REST says otherwise: what is larger
    /// than that is not kept at all, not even its `Location`.
    ///
    /// # Default
    /// 1 MiB
    pub fn max_response(mut self, bytes: u64) -> Self {
        self.max_response = bytes;
        self
    }

    /// Keeps bodies over [`max_response`](Self::max_response) elsewhere, up to `max` bytes: they are held in memory while
    /// they are written there. Still larger ones pass through, and so do those that do not say how long they are, unless
    /// [`buffer_unknown`](Self::buffer_unknown) says otherwise. For the layer only.
    ///
    /// # Default
    /// None are kept
    pub fn spill(mut self, to: impl Spill, max: u64) -> Self {
        let (to, clock) = (Arc::new(to), Arc::new(SystemClock::new()));
        self.spill = Some(Spilled { to, max, within: self.spill_within, clock });
        self
    }

    /// How long the [`spill`](Self::spill) may take to keep a body, and to give one back: meanwhile a request holds its
    /// lease, and a client waits. After it the request is done and its answer not kept.
    ///
    /// # Default
    /// [`SPILL_WITHIN`](Self::SPILL_WITHIN), 10 s
    pub fn spill_within(mut self, most: Duration) -> Self {
        self.spill_within = most;
        self.spill = self.spill.map(|spill| Spilled { within: most, ..spill });
        self
    }

    /// Buffers bodies that do not say how long they are, up to the same limit: for services that answer in streams
    /// that end soon; [`StorePolicy::Grpc`] does so by itself. A body that never ends would be held back until it exceeds the limit.
    ///
    /// # Default
    /// No: they pass through as they come, and are not kept
    pub fn buffer_unknown(mut self, buffer: bool) -> Self {
        self.buffer_unknown = buffer;
        self
    }

    /// Which statuses are kept.
    ///
    /// # Default
    /// [`StorePolicy::Success`]
    pub fn store(mut self, policy: StorePolicy) -> Self {
        self.store = policy;
        self
    }

    /// How a replay is marked.
    ///
    /// # Default
    /// [`ReplayHeader::Replayed`]
    pub fn replay_header(mut self, header: ReplayHeader) -> Self {
        self.replay_header = header;
        self
    }

    /// Keeps a header that is never kept otherwise, `Set-Cookie` say. Those of the connection never are.
    pub fn keep(mut self, name: HeaderName) -> Self {
        self.kept.push(name);
        self
    }

    /// Keeps this header of no answer, nor this trailer.
    pub fn drop(mut self, name: HeaderName) -> Self {
        self.dropped.push(name);
        self
    }

    /// Looks over what is about to be kept; the first caller gets the answer as it was. It does not
    /// see trailers: of them, [`drop`](Self::drop) takes what must not be kept. Where it panics nothing is kept.
    pub fn sanitize(mut self, sanitizer: impl Fn(&mut Response<Bytes>) + Send + Sync + 'static) -> Self {
        self.sanitizer = Some(Arc::new(sanitizer));
        self
    }

    /// Whether an answer ends its request for good; `None` where the user's function panics.
    pub(crate) fn stores<B>(&self, response: &Response<B>) -> Option<bool> {
        Idempotent::stores(response).or_else(|| self.store.stores(response.status(), response.headers()))
    }

    /// What it takes is kept in records already.
    pub(crate) fn spills_nothing(&self) -> bool {
        self.spill.as_ref().is_some_and(|spill| spill.max <= self.max_response)
    }

    /// These rules, with this executor's clock.
    pub(crate) fn timed(rules: &Arc<Self>, executor: &Executor) -> Arc<Self> {
        match &rules.spill {
            None => rules.clone(),
            Some(spill) => {
                let spill = Spilled { clock: executor.clock().clone(), ..spill.clone() };
                Arc::new(Self { spill: Some(spill), ..Self::clone(rules) })
            }
        }
    }

    /// As [`stores`](Self::stores) said yes, with what stands behind the body.
    pub(crate) fn stores_behind(&self, parts: &Parts, trailers: Option<&HeaderMap>) -> bool {
        if parts.extensions.get::<Idempotent>().is_some() || !matches!(self.store, StorePolicy::Grpc) {
            return true;
        }
        match trailers.and_then(grpc_status).or_else(|| grpc_status(&parts.headers)) {
            Some(code) => code == "0",
            // One that has no status has not ended well.
            None => !is_grpc(&parts.headers),
        }
    }

    /// Whether a body of unknown length is read.
    pub(crate) fn buffers_unknown(&self, parts: &Parts) -> bool {
        self.buffer_unknown || (matches!(self.store, StorePolicy::Grpc) && is_grpc(&parts.headers))
    }

    /// What these rules need of the executor: room for all that they keep, and a run that goes on without its lease, since
    /// its effect has happened and its client waits for the answer. So it also keeps its lease for as long as it may take:
    /// nobody stops it, and a second one must not start beside it.
    pub(crate) fn policy(&self) -> Policy {
        let room = self.max_response.saturating_add(2 * MAX_HEADERS as u64);
        Policy::new().max_result(room).max_run(MAX_RUN).on_lease_lost(OnLeaseLost::Finish)
    }

    /// The headers that are kept; a list of trailers only with the trailers.
    pub(crate) fn headers<'a>(
        &'a self,
        headers: &'a HeaderMap,
        trailers: bool,
    ) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
        // Hop-by-hop is also what `Connection` names.
        let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
        let hops: Vec<&str> = named.flat_map(|list| list.split(',')).map(str::trim).collect();
        headers.iter().filter(move |(name, _)| {
            let hop = (OF_CONNECTION.contains(name) && !(trailers && *name == header::TRAILER))
                || hops.iter().any(|hop| name.as_str().eq_ignore_ascii_case(hop));
            let moment = OF_MOMENT.contains(name) && !self.kept.contains(name);
            !hop && !moment && !self.dropped.contains(name)
        })
    }

    /// What a sanitizer leaves of an answer; `None` where there is none.
    pub(crate) fn sanitized(&self, parts: &Parts, body: Bytes, trailers: bool) -> Option<Sanitized> {
        let sanitizer = self.sanitizer.as_ref()?;
        let mut kept = Response::new(body);
        *kept.status_mut() = parts.status;
        for (name, value) in self.headers(&parts.headers, trailers) {
            kept.headers_mut().append(name, value.clone());
        }
        let looked_over = caught("ResponseRules::sanitize", || sanitizer(&mut kept));
        Some(looked_over.map(|()| kept).ok_or(Unclean))
    }
}

/// What a sanitizer left, if it came to its end.
pub(crate) type Sanitized = Result<Response<Bytes>, Unclean>;

/// A sanitizer panicked over it: nothing of it may be kept.
pub(crate) struct Unclean;
