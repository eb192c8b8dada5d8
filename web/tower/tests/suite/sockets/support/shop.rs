//! The service inside the layer: a handler that counts its runs and obeys the headers of the request.
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use idempotent_tower::{Caller, IdempotencyLayer, Principal, RequestAttempt};
use tokio::sync::watch;

/// A run of the handler. It counts from its start, because its effect may have happened from then on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Execution {
    pub(crate) sku: String,
    pub(crate) bytes: usize,
    pub(crate) fencing: u64,
    /// The number of the run that this one took over from.
    pub(crate) taken_over: Option<u64>,
}

/// The service. Clones share its state.
#[derive(Clone)]
pub(crate) struct Shop(Arc<Inner>);

struct Inner {
    ran: Mutex<Vec<Execution>>,
    /// The file where processes that will be killed write their runs.
    ledger: Option<PathBuf>,
    gate: watch::Sender<u64>,
    cut_off: AtomicUsize,
    unanswered: AtomicUsize,
    over: AtomicUsize,
}

impl Shop {
    pub(crate) fn new(ledger: Option<PathBuf>) -> Self {
        let [cut_off, unanswered, over] = [(); 3].map(|()| AtomicUsize::new(0));
        Self(Arc::new(Inner { ran: Mutex::default(), ledger, gate: watch::Sender::new(0), cut_off, unanswered, over }))
    }

    /// Returns the routes: `/orders` inside the layer, and the routes of the tests outside.
    pub(crate) fn router(&self, layer: IdempotencyLayer) -> Router {
        let orders = Router::new().route("/orders", post(order)).route("/other", post(order));
        // The test concerns the limit of the layer.
        let orders = orders.layer(DefaultBodyLimit::disable()).layer(layer);
        let watched = orders.layer(from_fn_with_state(self.clone(), watched));
        let open = async |State(shop): State<Self>, Path(number): Path<u64>| shop.open(number);
        let count = async |State(shop): State<Self>, Path(sku): Path<String>| shop.count(&sku).to_string();
        let told = Router::new().route("/open/{number}", get(open)).route("/count/{sku}", get(count));
        watched.merge(told).with_state(self.clone())
    }

    pub(crate) fn executions(&self) -> Vec<Execution> {
        self.0.ran.lock().unwrap().clone()
    }

    /// Returns the number of runs of the handler.
    pub(crate) fn total(&self) -> usize {
        self.0.ran.lock().unwrap().len()
    }

    pub(crate) fn count(&self, sku: &str) -> usize {
        self.0.ran.lock().unwrap().iter().filter(|run| run.sku == sku).count()
    }

    pub(crate) fn counts(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        self.0.ran.lock().unwrap().iter().for_each(|run| *counts.entry(run.sku.clone()).or_default() += 1);
        counts
    }

    /// Opens the gate up to this number for waiting handlers.
    pub(crate) fn open(&self, number: u64) {
        self.0.gate.send_modify(|open| *open = number.max(*open));
    }

    /// Returns the number of handlers that were dropped before completion.
    pub(crate) fn cut_off(&self) -> usize {
        self.0.cut_off.load(SeqCst)
    }

    /// Returns the number of requests that the server dropped because their clients had disconnected.
    pub(crate) fn unanswered(&self) -> usize {
        self.0.unanswered.load(SeqCst)
    }

    /// Returns the number of finished requests, with or without a response.
    pub(crate) fn over(&self) -> usize {
        self.0.over.load(SeqCst)
    }

    /// The number of the run, unique across processes.
    fn begin(&self, execution: Execution) -> String {
        if let Some(ledger) = &self.0.ledger {
            let Execution { sku, fencing, taken_over, .. } = &execution;
            let taken_over = taken_over.map_or_else(|| "-".to_owned(), |number| number.to_string());
            let line = format!("{sku} {fencing} {taken_over}\n");
            // A single append, so the lines of several processes do not mix.
            OpenOptions::new().create(true).append(true).open(ledger).unwrap().write_all(line.as_bytes()).unwrap();
        }
        let mut ran = self.0.ran.lock().unwrap();
        ran.push(execution);
        format!("{}-{}", std::process::id(), ran.len())
    }
}

/// Counts on drop, unless disarmed.
struct Unfinished<'a>(Option<&'a AtomicUsize>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.0 {
            count.fetch_add(1, SeqCst);
        }
    }
}

async fn watched(State(shop): State<Shop>, request: Request, next: Next) -> Response {
    let _over = Unfinished(Some(&shop.0.over));
    let mut unfinished = Unfinished(Some(&shop.0.unanswered));
    let response = next.run(request).await;
    unfinished.0 = None;
    response
}

/// Obeys headers, which are not part of the payload: `X-Sku` names the counter, `X-Hold: n` waits for the gate,
/// `X-Answer` determines the outcome.
async fn order(State(shop): State<Shop>, attempt: Option<RequestAttempt>, headers: HeaderMap, body: Bytes) -> Response {
    let told = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (fencing, taken_over) =
        attempt.map_or((0, None), |attempt| (attempt.fencing().0, attempt.taken_over().map(|other| other.0)));
    let sku = told("x-sku").unwrap_or_default().to_owned();
    let number = shop.begin(Execution { sku, bytes: body.len(), fencing, taken_over });
    let mut unfinished = Unfinished(Some(&shop.0.cut_off));
    if let Some(hold) = told("x-hold") {
        let hold: u64 = hold.parse().unwrap();
        shop.0.gate.subscribe().wait_for(|open| *open >= hold).await.unwrap();
    }
    unfinished.0 = None;
    match told("x-answer") {
        Some("panic") => panic!("as told by the test"),
        Some("500") => (StatusCode::INTERNAL_SERVER_ERROR, number).into_response(),
        _ => {
            let location = HeaderValue::try_from(format!("/orders/{number}")).unwrap();
            let cookie = HeaderValue::from_static("session=secret");
            (StatusCode::CREATED, [(LOCATION, location), (SET_COOKIE, cookie)], number).into_response()
        }
    }
}

/// Takes the caller from `X-User`.
pub(crate) fn principal() -> Principal {
    Principal::from_fn(|parts| {
        let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok());
        Ok(user.map_or_else(Caller::anonymous, Caller::named))
    })
}
