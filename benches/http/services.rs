//! The route, served in several ways.
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use idempotent::IdempotencyLayer;
use idempotent::http::{Caller, Principal};
use idempotent::{Executor, MemoryStore, Policy, RedisStore, Scene};
use idempotent_harness::servers::RedisServer;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use ruts::store::moka::MokaStore;
use ruts::store::{SessionStore, Ttl};
use ruts::{CookieOptions, Id, SessionLayer};
use tempfile::NamedTempFile;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tower::ServiceExt;
use tower_cookies::CookieManagerLayer;

use crate::route::{Runs, place, place_with_two_commands};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    Bare,
    /// The layer with a memory store, which is empty at the start of each slice.
    Memory,
    /// The layer with one memory store for all slices, whose records expire after half a second.
    SteadyMemory,
    /// The layer with Redis.
    Redis,
    TwoCommands,
    AxumIdempotent,
}

/// The number of users. axum-idempotent keeps all answers of a session in one map, which it scans for each answer. As
/// in a service with many users, each has few answers here.
const USERS: usize = 10_000;

pub struct Services {
    runtime: Runtime,
    redis: Executor,
    steady: Executor,
    connection: MultiplexedConnection,
    users: Vec<Id>,
    /// The names of the users, for `wrk`.
    pub names: NamedTempFile,
}

/// A service that runs until it is dropped.
pub struct Served {
    pub address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Services {
    pub fn new(server: &RedisServer) -> Self {
        let runtime = crate::cpu::runtime(2);
        let (redis, connection) = runtime.block_on(async {
            let store = RedisStore::connect(server.url()).await.unwrap();
            // No timer for each answer.
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let client = redis::Client::open(server.url()).unwrap();
            (Executor::new(store), client.get_multiplexed_async_connection_with_config(&config).await.unwrap())
        });
        let short = Policy::of(&Scene::Rest).lease(Duration::from_millis(400)).retain(Duration::from_millis(500));
        let steady = Executor::builder(MemoryStore::new()).policy(Scene::Rest, short).build().unwrap();
        let users: Vec<_> = (0..USERS).map(|_| Id::default()).collect();
        let mut names = NamedTempFile::new().unwrap();
        for user in &users {
            writeln!(names, "{user}").unwrap();
        }
        Self { runtime, redis, steady, connection, users, names }
    }

    /// Returns the route in this way. No key is known, except those in Redis and in the store of a steady size.
    pub fn route(&self, way: Way, runs: &Runs) -> Router {
        let layered = |executor| {
            Router::new()
                .route("/orders", post(place))
                .layer(IdempotencyLayer::new(
                    executor,
                    Principal::from_fn(|parts| {
                        let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok());
                        Ok(user.map_or_else(Caller::anonymous, Caller::named))
                    }),
                ))
                .with_state(runs.clone())
        };
        match way {
            Way::Bare => Router::new().route("/orders", post(place)).with_state(runs.clone()),
            Way::Memory => layered(Executor::new(MemoryStore::new())),
            Way::SteadyMemory => layered(self.steady.clone()),
            Way::Redis => layered(self.redis.clone()),
            Way::TwoCommands => Router::new()
                .route("/orders", post(place_with_two_commands))
                .with_state((runs.clone(), self.connection.clone())),
            Way::AxumIdempotent => {
                let options = IdempotentOptions::default().use_idempotency_key_header(None, true);
                Router::new()
                    .route("/orders", post(place))
                    .layer(IdempotentLayer::<MokaStore>::new(options))
                    .layer(
                        SessionLayer::new(self.sessions())
                            .with_cookie_options(CookieOptions::build().name("session").max_age(3_600).path("/")),
                    )
                    .layer(CookieManagerLayer::new())
                    .with_state(runs.clone())
            }
        }
    }

    /// Creates the session store, without which axum-idempotent does nothing.
    fn sessions(&self) -> Arc<MokaStore> {
        let sessions = MokaStore::builder().max_capacity(2 * USERS as u64).build();
        self.runtime.block_on(async {
            for user in &self.users {
                sessions.set(user, "is", &true, Ttl::new(3_600).unwrap(), None).await.unwrap();
            }
        });
        Arc::new(sessions)
    }

    /// Places an order with each of these keys.
    pub fn use_up(&self, route: &Router, prefix: &str, keys: u64) {
        self.runtime.block_on(async {
            for number in 0..keys {
                let user = &self.users[usize::try_from(number).unwrap() % USERS];
                let request = Request::post("/orders")
                    .header("host", "bench")
                    .header("content-type", "application/json")
                    .header("x-user", user.as_str())
                    .header("cookie", format!("session={user}"))
                    .header("idempotency-key", format!("{prefix}{number}"))
                    .body(Body::from(r#"{"sku":"desk","qty":2}"#));
                let response = route.clone().oneshot(request.unwrap()).await.unwrap();
                assert_eq!(response.status(), StatusCode::CREATED);
            }
        });
    }

    pub fn serve(&self, route: Router) -> Served {
        let listener = self.runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = self.runtime.spawn(async { axum::serve(listener, route).await.unwrap() });
        Served { address, serving }
    }
}
