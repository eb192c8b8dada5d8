//! The HTTP layers, called as services without a connection.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use idempotent::IdempotencyLayer;
use idempotent::http::{Caller, Principal};
use idempotent_harness::servers::RedisServer;
use tower::ServiceExt;

use crate::peer::Peer;
use crate::report::{Goal, Report};
use crate::request::{USERS, request};
use crate::slices::{Mode, Rounds, Taken, emptied, tasks};
use crate::{KEYS, ours};

const TASKS: usize = 64;
const OURS: usize = 0;
const PEER: usize = 1;

/// The route with our layer. Clones share the counter of the handler's runs.
#[derive(Clone)]
struct Layered {
    route: Router,
    users: Arc<Vec<String>>,
    runs: Arc<AtomicU64>,
}

async fn place(State(runs): State<Arc<AtomicU64>>) -> StatusCode {
    runs.fetch_add(1, Ordering::Relaxed);
    StatusCode::CREATED
}

impl Layered {
    async fn new(server: &RedisServer) -> Self {
        let runs = Arc::new(AtomicU64::new(0));
        let principal = Principal::from_fn(|parts| {
            let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok());
            Ok(user.map_or_else(Caller::anonymous, Caller::named))
        });
        let route = Router::new()
            .route("/orders", post(place))
            .layer(IdempotencyLayer::new(ours::executor(server, None).await, principal))
            .with_state(runs.clone());
        // As long as the session ids of the peer.
        let users = (0..USERS).map(|user| format!("user-{user:017}")).collect();
        Self { route, users: Arc::new(users), runs }
    }

    async fn run(&self, number: u64) {
        let user = &self.users[(number % USERS) as usize];
        let response = self.route.clone().oneshot(request(number, user)).await;
        assert_eq!(response.unwrap().status(), StatusCode::CREATED);
    }

    /// Returns a mode with the keys below this number, or with new ones.
    fn mode(&self, keys: Option<u64>) -> Mode {
        let layered = self.clone();
        tasks(move |number| {
            let layered = layered.clone();
            async move { layered.run(keys.map_or(number, |keys| number % keys)).await }
        })
    }
}

pub async fn all(report: &Report, server: &RedisServer, peer: &Peer) {
    let ours = Layered::new(server).await;
    let line = |case: &str, rounds: &Rounds| {
        let at = ("redis", &*format!("HTTP {case}, to {}", peer.kind.name()), Some(TASKS));
        report.pair(at, "requests/s", rounds.pair(OURS, PEER, Taken::rate), Goal::None);
    };
    if report.wants("redis", "HTTP fresh") {
        let rounds = Rounds::take(report, server, TASKS, &[ours.mode(None), peer.fresh()], emptied(server)).await;
        assert_eq!(ours.runs.swap(0, Ordering::Relaxed), rounds.done(OURS));
        line("fresh", &rounds);
    }
    if report.wants("redis", "HTTP replay") {
        server.command(&["FLUSHALL", "SYNC"]);
        let keys = if report.is_tried() { 101 } else { KEYS };
        for number in 0..keys {
            ours.run(number).await;
        }
        peer.fill(keys);
        let rounds = Rounds::take(report, server, TASKS, &[ours.mode(Some(keys)), peer.duplicates(keys)], |_| ()).await;
        assert_eq!(ours.runs.load(Ordering::Relaxed), keys);
        line("replay", &rounds);
    }
}
