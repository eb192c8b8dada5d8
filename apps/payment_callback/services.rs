//! The two called services, each with its own keys, and their client.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use idempotent::http::Principal;
use idempotent::{Executor, IdempotencyLayer, MemoryStore};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

/// A call holds the transaction of the handler open, so it is short.
const TIMEOUT: Duration = Duration::from_secs(5);

const NAMES: [&str; 2] = ["tickets", "points"];

/// The requests that a service received for an order, and the effects that they had.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) effects: u64,
}

/// The counts by path.
#[derive(Clone, Debug, Default)]
struct Ledger(Arc<Mutex<BTreeMap<String, Counts>>>);

impl Ledger {
    fn change(&self, path: &str, change: impl FnOnce(&mut Counts)) {
        change(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(path.to_owned()).or_default());
    }

    fn of(&self, path: &str) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied().unwrap_or_default()
    }
}

/// Serves both services in one process. Their records are in memory: a real service has a database.
pub(crate) async fn serve(listen: &str) -> anyhow::Result<()> {
    let ledger = Ledger::default();
    // A service whose only caller is this worker needs no principal.
    let once = IdempotencyLayer::new(Executor::new(MemoryStore::new()), Principal::none());
    let app = Router::new()
        .route("/{service}/{order}", post(take_effect).route_layer(once))
        .route_layer(middleware::from_fn_with_state(ledger.clone(), count_request))
        .route("/counts/{service}/{order}", get(counts))
        .with_state(ledger);
    let listener = TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

async fn count_request(State(ledger): State<Ledger>, request: Request, next: Next) -> Response {
    ledger.change(request.uri().path(), |counts| counts.requests += 1);
    next.run(request).await
}

async fn take_effect(State(ledger): State<Ledger>, Path((service, order)): Path<(String, String)>) -> StatusCode {
    ledger.change(&format!("/{service}/{order}"), |counts| counts.effects += 1);
    StatusCode::CREATED
}

async fn counts(State(ledger): State<Ledger>, Path((service, order)): Path<(String, String)>) -> Json<Counts> {
    Json(ledger.of(&format!("/{service}/{order}")))
}

#[derive(Debug, thiserror::Error)]
#[error("the service {service} did not answer with success")]
pub(crate) struct CallError {
    service: &'static str,
    source: reqwest::Error,
}

/// A client of the services.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Services {
    /// URL of the called services
    #[arg(long, default_value = "http://127.0.0.1:8081")]
    services: String,
    #[arg(skip)]
    client: reqwest::Client,
}

impl Services {
    /// Calls a service for an order. Calls with the same key have one effect.
    pub(crate) async fn call(&self, service: &'static str, order: &str, key: &str) -> Result<(), CallError> {
        let request = self.client.post(format!("{}/{service}/{order}", self.services)).timeout(TIMEOUT);
        let response = request.header("Idempotency-Key", key).send().await;
        let answer = response.and_then(reqwest::Response::error_for_status);
        answer.map(drop).map_err(|source| CallError { service, source })
    }

    /// Returns the counts of an order by service.
    pub(crate) async fn counts(&self, order: &str) -> anyhow::Result<Vec<(&'static str, Counts)>> {
        let mut all = Vec::new();
        for service in NAMES {
            let counts = self.client.get(format!("{}/counts/{service}/{order}", self.services)).send().await?;
            all.push((service, counts.error_for_status()?.json().await?));
        }
        Ok(all)
    }
}
