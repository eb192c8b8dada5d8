//! axum-idempotent, with its sessions in Redis.
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::config::Config;
use ruts::store::redis::RedisStore;
use ruts::{CookieOptions, Id, SessionLayer};
use tower::ServiceExt;
use tower_cookies::CookieManagerLayer;

use crate::peer::{Peer, Runs};
use crate::request::{USERS, request};

#[derive(Clone)]
pub struct Layer {
    route: Router,
    users: Arc<Vec<String>>,
    runs: Runs,
}

async fn place(State(runs): State<Runs>) -> StatusCode {
    runs.add();
    StatusCode::CREATED
}

impl Layer {
    pub async fn connect(url: &str) -> Self {
        let config = Config::from_url(url).expect("a URL of Redis");
        let client = Client::new(config, None, None, None);
        client.connect();
        client.wait_for_connect().await.expect("the server answers");
        let sessions = RedisStore::new(Arc::new(client)).await.expect("Redis 7.4 or later");
        let options = IdempotentOptions::default().use_idempotency_key_header(None, true);
        let cookie = CookieOptions::build().name("session").max_age(3_600).path("/");
        let runs = Runs::default();
        let route = Router::new()
            .route("/orders", post(place))
            .layer(IdempotentLayer::<RedisStore<Client>>::new(options))
            .layer(SessionLayer::new(Arc::new(sessions)).with_cookie_options(cookie))
            .layer(CookieManagerLayer::new())
            .with_state(runs.clone());
        let users = (0..USERS).map(|_| Id::default().to_string()).collect();
        Self { route, users: Arc::new(users), runs }
    }
}

impl Peer for Layer {
    async fn run(&self, number: u64) {
        let user = &self.users[(number % USERS) as usize];
        let response = self.route.clone().oneshot(request(number, user)).await;
        assert_eq!(response.expect("the layer does not fail").status(), StatusCode::CREATED);
    }

    fn runs(&self) -> &Runs {
        &self.runs
    }
}
