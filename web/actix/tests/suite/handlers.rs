//! The view of a handler: extensions, extractors, the context of its run, errors, and limits.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use actix_web::error::{ErrorConflict, ErrorServiceUnavailable};
use actix_web::http::header::HeaderMap;
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use idempotent_actix_web::IdempotencyMiddleware;
use idempotent_core::{Executor, Lease, MemoryStore, Rejection, step};
use idempotent_http_decisions::{Client, until};
use idempotent_tower::{IdempotencyKey, Idempotent, RequestAttempt, ResponseRules, StorePolicy};

use crate::support::{Server, SlowClaims, layer, layer_on, order_by};

/// Serves a handler at `/orders`.
macro_rules! serve {
    ($layer:expr, $handler:expr) => {{
        let handler = $handler;
        Server::behind(IdempotencyMiddleware::new($layer), move |config| {
            config.route("/orders", web::post().to(handler.clone()));
        })
    }};
}

fn told(headers: &HeaderMap, name: &str) -> bool {
    headers.contains_key(name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_sees_its_key_and_its_attempt() {
    let handler = async |key: web::ReqData<IdempotencyKey>, attempt: web::ReqData<RequestAttempt>| {
        let current = RequestAttempt::current();
        format!("{} {} {}", key.as_str(), attempt.number(), current == Some(*attempt))
    };
    let server = serve!(layer(), handler);
    let mut client = Client::connect(server.address).await;
    assert_eq!(client.ask(&order_by("\"a b\"")).await.text(), "a b 1 true");
}

/// The claim takes long, so the run has left the connection when the handler starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_of_a_detached_run_has_its_context_and_can_spawn_local_tasks() {
    let store = SlowClaims::new(MemoryStore::new());
    let handler = async || {
        let local = std::rc::Rc::new(7);
        let spawned = actix_web::rt::spawn(async move { *local }).await.unwrap();
        format!("{spawned} {} {}", Lease::current().is_some(), RequestAttempt::current().is_some())
    };
    let server = serve!(layer_on(Executor::new(store.clone())), handler);
    let mut client = Client::connect(server.address).await;
    client.send(&order_by("a").bytes()).await;
    store.made.acquire().await.unwrap().forget();
    store.may.add_permits(1);
    assert_eq!(client.answer().await.text(), "7 true true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_a_handler_runs_once_in_all_attempts() {
    let charges = Arc::new(AtomicU32::new(0));
    let counter = charges.clone();
    let handler = move |request: HttpRequest| {
        let counter = counter.clone();
        async move {
            let charged = step("charge", || async move { Ok::<_, Rejection>(counter.fetch_add(1, SeqCst) + 1) }).await;
            match charged {
                Ok(_) if told(request.headers(), "x-fail") => HttpResponse::InternalServerError().finish(),
                Ok(number) => HttpResponse::Ok().body(format!("charge {number}")),
                Err(rejection) => HttpResponse::InternalServerError().body(rejection.to_string()),
            }
        }
    };
    let server = serve!(layer(), handler);
    let mut client = Client::connect(server.address).await;
    assert_eq!(client.ask(&order_by("a").header("x-fail", "1")).await.text(), "");
    assert_eq!(client.ask(&order_by("a")).await.text(), "charge 1");
    assert_eq!(charges.load(SeqCst), 1);
}

/// actix-web turns the error of a handler into its response, so the status decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_a_handler_counts_by_the_status_of_its_response() {
    let runs = Arc::new(AtomicU32::new(0));
    let counter = runs.clone();
    let handler = move |request: HttpRequest| {
        let run = counter.fetch_add(1, SeqCst) + 1;
        async move {
            match told(request.headers(), "x-conflict") {
                true => Err::<&str, _>(ErrorConflict(format!("conflict {run}"))),
                false => Err(ErrorServiceUnavailable(format!("unavailable {run}"))),
            }
        }
    };
    let server = serve!(layer().response(ResponseRules::default().store(StorePolicy::Final)), handler);
    let mut client = Client::connect(server.address).await;
    for run in 1..=2 {
        let failed = client.ask(&order_by("a")).await;
        assert_eq!((failed.status, failed.text()), (503, format!("unavailable {run}")));
    }
    for is_replay in [false, true] {
        let stored = client.ask(&order_by("a").header("x-conflict", "1")).await;
        assert_eq!((stored.status, stored.text(), stored.is_replay()), (409, "conflict 3".to_owned(), is_replay));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_stores_a_failure_by_an_extension_of_its_response() {
    let handler = async || {
        let mut response = HttpResponse::PaymentRequired().body("declined");
        response.extensions_mut().insert(Idempotent::store());
        response
    };
    let server = serve!(layer(), handler);
    let mut client = Client::connect(server.address).await;
    for is_replay in [false, true] {
        let declined = client.ask(&order_by("a")).await;
        assert_eq!((declined.status, declined.text(), declined.is_replay()), (402, "declined".to_owned(), is_replay));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limits_of_extractors_apply_inside_the_layer_and_free_the_key() {
    let json = web::JsonConfig::default().limit(16);
    let handler = async |body: web::Json<Vec<u32>>| format!("{}", body.len());
    let server = Server::behind(IdempotencyMiddleware::new(layer()), move |config| {
        config.app_data(json.clone()).route("/orders", web::post().to(handler));
    });
    let mut client = Client::connect(server.address).await;
    let send = |body: String| order_by("a").header("content-type", "application/json").body(body);
    let refused = client.ask(&send(format!("[{}1]", "1,".repeat(20)))).await;
    assert!(refused.status == 413 && refused.code().is_empty(), "{refused}");
    assert_eq!(client.ask(&send("[1,2]".to_owned())).await.text(), "2");
    assert!(client.ask(&send("[1,2]".to_owned())).await.is_replay());
}

/// The default limit of the extractors for bytes and text is 256 KiB, less than that of the layer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payload_config_outside_raises_the_limit_of_extractors() {
    for (limit, status) in [(256 << 10, 413), (1 << 20, 200)] {
        let server = Server::behind(IdempotencyMiddleware::new(layer()), move |config| {
            let handler = async |body: Bytes| body.len().to_string();
            config.app_data(web::PayloadConfig::new(limit)).route("/orders", web::post().to(handler));
        });
        let answer = Client::connect(server.address).await.ask(&order_by("a").body(vec![b'x'; 500_000])).await;
        assert_eq!(answer.status, status, "{answer}");
    }
}

/// A panic of the handler does not stop its worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_after_a_pause_is_a_problem_on_the_same_connection() {
    let handler = async || -> String {
        tokio::task::yield_now().await;
        panic!("secret");
    };
    let server = serve!(layer(), handler);
    let mut client = Client::connect(server.address).await;
    for _ in 0..2 {
        let failed = client.ask(&order_by("a")).await;
        failed.is(500, "handler-panicked");
        assert!(!failed.text().contains("secret"), "{failed}");
    }
    until("a new connection", async || Client::connect(server.address).await.ask(&order_by("b")).await.status == 500)
        .await;
}
