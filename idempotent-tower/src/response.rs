//! Which answers are kept, and what of them.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::response::Parts;
use http::{Response, StatusCode};
use idempotent_core::{OnLeaseLost, Policy};

use crate::spill::{Spill, Spilled};

/// Which statuses end a request for good. Any other frees the key: a retry runs the handler again.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum StorePolicy {
    /// 2xx and 3xx. The default.
    #[default]
    Success,
    /// Those, and 402, 404, 409, 410 and 422: answers that a retry would not change.
    Final,
    /// All, also 500: a passing failure is then replayed until its retention ends.
    All,
    /// What this function says, by status and headers.
    By(fn(StatusCode, &HeaderMap) -> bool),
}

impl StorePolicy {
    fn stores(self, status: StatusCode, headers: &HeaderMap) -> bool {
        let success = status.is_success() || status.is_redirection();
        match self {
            Self::Success => success,
            Self::Final => success || matches!(status.as_u16(), 402 | 404 | 409 | 410 | 422),
            Self::All => true,
            Self::By(stores) => stores(status, headers),
        }
    }
}

/// A handler's own decision, over the [`StorePolicy`]: put it among the extensions of the response. With the feature
/// `axum` it is part of an answer: `(StatusCode::PAYMENT_REQUIRED, Idempotent::store(), "declined")`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Idempotent {
    store: bool,
}

impl Idempotent {
    /// The effect is done: keep this answer, whatever its status.
    #[must_use]
    pub fn store() -> Self {
        Self { store: true }
    }

    /// Nothing is done: free the key, whatever the status.
    #[must_use]
    pub fn release() -> Self {
        Self { store: false }
    }
}

/// How a replayed answer is marked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum ReplayHeader {
    /// `Idempotent-Replayed: true`. The default: most services that mark replays do it so.
    #[default]
    Replayed,
    /// This header, with `true`.
    Named(HeaderName),
    /// `Idempotent-Replayed` and `Idempotency-Replayed`, which others use.
    Both,
    /// Not at all.
    None,
}

impl ReplayHeader {
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        let mut set = |name| headers.insert(name, header::HeaderValue::from_static("true"));
        match self {
            Self::Replayed => {
                set(IDEMPOTENT_REPLAYED);
            }
            Self::Named(name) => {
                set(name.clone());
            }
            Self::Both => {
                set(IDEMPOTENT_REPLAYED);
                set(HeaderName::from_static("idempotency-replayed"));
            }
            Self::None => {}
        }
    }
}

const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

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
    pub(crate) buffer_unknown: bool,
    pub(crate) store: StorePolicy,
    pub(crate) replay_header: ReplayHeader,
    dropped: Vec<HeaderName>,
    kept: Vec<HeaderName>,
    sanitizer: Option<Arc<Sanitizer>>,
    pub(crate) spill: Option<Spilled>,
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
    /// The largest body kept, in bytes. A larger one passes through, and duplicates learn that the request is done.
    /// The layer sets `max_result` by it, unless its own policy says otherwise.
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
        self.spill = Some(Spilled { to: Arc::new(to), max });
        self
    }

    /// Buffers bodies that do not say how long they are, up to the same limit: for services that answer in streams
    /// that end soon, such as unary gRPC. A body that never ends would be held back until it exceeds the limit.
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

    /// Keeps this header of no answer.
    pub fn drop(mut self, name: HeaderName) -> Self {
        self.dropped.push(name);
        self
    }

    /// Looks over what is about to be kept; the first caller gets the answer as it was.
    pub fn sanitize(mut self, sanitizer: impl Fn(&mut Response<Bytes>) + Send + Sync + 'static) -> Self {
        self.sanitizer = Some(Arc::new(sanitizer));
        self
    }

    pub(crate) fn stores<B>(&self, response: &Response<B>) -> bool {
        match response.extensions().get::<Idempotent>() {
            Some(decided) => decided.store,
            None => self.store.stores(response.status(), response.headers()),
        }
    }

    /// What these rules need of the executor: room for all that they keep, and a run that goes on without its lease, since
    /// its effect has happened and its client waits for the answer. So it also keeps its lease for as long as it may take:
    /// nobody stops it, and a second one must not start beside it.
    pub(crate) fn policy(&self) -> Policy {
        let room = self.max_response.saturating_add(2 * MAX_HEADERS as u64);
        Policy::new().max_result(room).max_run(MAX_RUN).on_lease_lost(OnLeaseLost::Finish)
    }

    /// What is kept of an answer; a list of trailers only with the trailers.
    pub(crate) fn kept(&self, parts: &Parts, body: Bytes, trailers: bool) -> Response<Bytes> {
        let Parts { status, headers, .. } = parts;
        let mut kept = Response::new(body);
        *kept.status_mut() = *status;
        // Hop-by-hop is also what `Connection` names.
        let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
        let hops: Vec<&str> = named.flat_map(|list| list.split(',')).map(str::trim).collect();
        for (name, value) in headers {
            let hop = (OF_CONNECTION.contains(name) && !(trailers && name == header::TRAILER))
                || hops.iter().any(|hop| name.as_str().eq_ignore_ascii_case(hop));
            let moment = OF_MOMENT.contains(name) && !self.kept.contains(name);
            if !hop && !moment && !self.dropped.contains(name) {
                kept.headers_mut().append(name, value.clone());
            }
        }
        if let Some(sanitizer) = &self.sanitizer {
            sanitizer(&mut kept);
        }
        kept
    }
}
