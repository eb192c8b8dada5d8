//! Records of HTTP requests, which the caller and the key of the request name.
use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{Request, Response, StatusCode};
use axum::routing::post;
use idempotent::http::{Caller, IdempotencyKey, IdempotencyMiddleware, Principal};
use idempotent::{Executor, Http, IdempotencyLayer, idempotent};
use tempfile::TempDir;
use tower::ServiceExt;

use crate::support::{done, run};

/// A file for the records of requests.
pub(crate) struct Shop {
    _folder: TempDir,
    pub(crate) url: String,
    pub(crate) executor: Executor,
}

impl Shop {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("records.db").display());
        let executor = Executor::new(idempotent::connect(&url).create(true).await.unwrap());
        Self { _folder: folder, url, executor }
    }

    fn layer(&self) -> IdempotencyLayer {
        IdempotencyLayer::new(self.executor.clone(), principal())
    }

    /// A payment service of axum with the layer.
    pub(crate) fn router(&self) -> Router {
        Router::new().route("/payments", post(async || "paid")).route_layer(self.layer())
    }

    /// Asserts that the command line finds the records of [`USERS`] with the key `z2`, and none of another caller.
    fn finds(&self, scope: &str, parts: &[&str]) {
        let parts = parts.iter().flat_map(|part| ["--part", part]);
        let inspect: Vec<_> = ["inspect", "--scene", "rest", "--scope", scope].into_iter().chain(parts).collect();
        for caller in [&["--caller", "ada"][..], &["--tenant", "named", "--tenant", "ada"], &["--caller-anonymous"]] {
            let shown = done(&self.url, &[&inspect[..], caller].concat());
            assert!(shown.contains("\"state\":\"consumed\""), "{scope} {caller:?}: {shown}");
        }
        for other in [&["--caller", "bob"][..], &["--tenant", "ada"], &[]] {
            assert_eq!(run(&self.url, &[&inspect[..], other].concat()).code, 4, "{scope} {other:?}");
        }
    }
}

/// A caller with a name, and the anonymous one.
const USERS: [Option<&str>; 2] = [Some("ada"), None];

fn principal() -> Principal {
    Principal::from_fn(|parts| {
        let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok());
        Ok(user.map_or_else(Caller::anonymous, Caller::named))
    })
}

/// Returns a payment with the key `z2`.
pub(crate) fn payment(user: Option<&str>) -> Request<Body> {
    let request = Request::post("/payments").header("idempotency-key", "z2");
    let request = user.into_iter().fold(request, |request, user| request.header("x-user", user));
    request.body(Body::from("tea")).unwrap()
}

#[tokio::test]
async fn a_record_of_the_layer_of_tower_is_found_by_its_caller() {
    let shop = Shop::new().await;
    let paid = tower::service_fn(async |_| Ok::<_, Infallible>(Response::new(Body::from("paid"))));
    let service = tower::Layer::layer(&shop.layer(), paid);
    for user in USERS {
        assert_eq!(service.clone().oneshot(payment(user)).await.unwrap().status(), StatusCode::OK);
    }
    // Without a router there is no route, so the path is a part of the key.
    shop.finds("POST", &["/payments", "z2"]);
}

#[tokio::test]
async fn a_record_of_a_route_of_axum_is_found_by_its_caller() {
    let shop = Shop::new().await;
    for user in USERS {
        assert_eq!(shop.router().oneshot(payment(user)).await.unwrap().status(), StatusCode::OK);
    }
    shop.finds("POST /payments", &["z2"]);
}

#[idempotent(
    scene = rest, scope = "payments", key = key, tenant = caller, fingerprint = (), with = executor, reply = Http
)]
async fn pay(State(executor): State<Executor>, caller: Caller, key: IdempotencyKey) -> &'static str {
    "paid"
}

#[tokio::test]
async fn a_record_of_an_annotated_handler_is_found_by_its_caller() {
    let shop = Shop::new().await;
    let router = Router::new().route("/payments", post(pay)).layer(Extension(principal()));
    let router = router.with_state(shop.executor.clone());
    for user in USERS {
        assert_eq!(router.clone().oneshot(payment(user)).await.unwrap().status(), StatusCode::OK);
    }
    shop.finds("payments", &["z2"]);
}

#[test]
fn a_record_of_actix_web_is_found_by_its_caller() {
    use actix_web::test::{TestRequest, call_service, init_service};
    use actix_web::{App, web};

    actix_web::rt::System::new().block_on(async {
        let shop = Shop::new().await;
        let once = IdempotencyMiddleware::new(shop.layer());
        let payments = web::resource("/payments").wrap(once).route(web::post().to(async || "paid"));
        let app = init_service(App::new().service(payments)).await;
        for user in USERS {
            let request = TestRequest::post().uri("/payments").insert_header(("idempotency-key", "z2"));
            let request = user.into_iter().fold(request, |request, user| request.insert_header(("x-user", user)));
            let response = call_service(&app, request.set_payload("tea").to_request()).await;
            assert_eq!(response.status(), actix_web::http::StatusCode::OK);
        }
        shop.finds("POST /payments", &["z2"]);
    });
}
