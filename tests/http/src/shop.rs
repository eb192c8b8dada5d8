//! The handler of the table, without a framework.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use idempotent_core::FencingToken;
use idempotent_tower::{Idempotent, RequestAttempt};
use tokio::sync::watch;

/// A handler that counts its runs and obeys the headers of the request. Clones share their state.
///
/// An adapter routes `/orders` and `/orders/{id}` for all methods, and POST of `/baskets`, to [`run`](Self::run).
#[derive(Clone, Debug, Default)]
pub struct Shop(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    runs: AtomicU32,
    completed: AtomicU32,
    attempts: Mutex<Vec<Attempt>>,
    open: watch::Sender<bool>,
}

/// The fencing token of a run, and that of the run from which it took over.
type Attempt = (FencingToken, Option<FencingToken>);

/// The response of the handler.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The header lines.
    pub headers: Vec<(&'static str, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
    /// True if the adapter sends the body as a stream of unknown length.
    pub streamed: bool,
    /// The decision about storing, for the extensions of the response.
    pub decision: Option<Idempotent>,
}

impl Shop {
    /// Returns the number of runs that have begun.
    #[must_use]
    pub fn runs(&self) -> u32 {
        self.0.runs.load(SeqCst)
    }

    /// Returns the number of runs that have completed.
    #[must_use]
    pub fn completed(&self) -> u32 {
        self.0.completed.load(SeqCst)
    }

    /// Returns the attempts that the runs saw, in order.
    #[must_use]
    pub fn attempts(&self) -> Vec<(FencingToken, Option<FencingToken>)> {
        self.0.attempts.lock().unwrap().clone()
    }

    /// Returns the number of handlers that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.open.receiver_count()
    }

    /// Lets waiting handlers continue, now and later.
    pub fn open(&self) {
        self.0.open.send_replace(true);
    }

    /// Runs the handler. `told` returns the value of a header.
    ///
    /// Headers: `x-hold` waits for [`open`](Self::open), then `x-panic` panics. `x-status` is the status, `x-size` the
    /// size of the body, `x-decide` is `store` or `release`, `x-stream` streams the body, `x-echo` sends `body`, `x-mark` adds
    /// the mark of a replay, `x-exchange` headers that describe the exchange.
    pub async fn run(
        &self,
        told: impl Fn(&str) -> Option<String>,
        body: &[u8],
        attempt: Option<RequestAttempt>,
    ) -> Reply {
        let run = self.0.runs.fetch_add(1, SeqCst) + 1;
        let attempt = attempt.map(|attempt| (attempt.fencing(), attempt.taken_over()));
        self.0.attempts.lock().unwrap().extend(attempt);
        if told("x-hold").is_some() {
            self.0.open.subscribe().wait_for(|open| *open).await.unwrap();
        }
        assert!(told("x-panic").is_none(), "as told by the test");
        let number = |name: &str| told(name).map(|text| text.parse::<u16>().unwrap());
        let size = told("x-size").map_or(0, |size| size.parse().unwrap());
        let status = number("x-status").unwrap_or(201);
        let body = match told("x-echo") {
            Some(_) => body.to_vec(),
            // Such a response has no body.
            None if status == 204 => Vec::new(),
            None => format!("{run}:{}", "x".repeat(size)).into_bytes(),
        };
        let mut headers = vec![
            ("location", format!("/orders/{run}").into_bytes()),
            ("x-line", b"1".to_vec()),
            ("x-line", b"\xe4".to_vec()),
            ("set-cookie", b"session=secret".to_vec()),
        ];
        if told("x-mark").is_some() {
            headers.push(("idempotent-replayed", b"true".to_vec()));
        }
        if told("x-exchange").is_some() {
            let names = ["x-ratelimit-remaining", "x-request-id", "server-timing", "traceparent"];
            headers.extend(names.map(|name| (name, run.to_string().into_bytes())));
        }
        let decision = match told("x-decide").as_deref() {
            Some("store") => Some(Idempotent::store()),
            Some("release") => Some(Idempotent::release()),
            _ => None,
        };
        self.0.completed.fetch_add(1, SeqCst);
        let streamed = told("x-stream").is_some();
        Reply { status, headers, body, streamed, decision }
    }
}
