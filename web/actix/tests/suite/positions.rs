//! The middleware around applications, scopes, resources and routes, and inside itself.
use actix_web::test::{TestRequest, call_service, init_service, read_body};
use actix_web::{App, web};
use http::HeaderName;
use idempotent_actix_web::IdempotencyMiddleware;
use idempotent_core::{Executor, MemoryStore};
use idempotent_http_decisions::{Ask, Client, Shop};
use idempotent_tower::{KeyRules, ResponseRules, StorePolicy};

use crate::support::{Server, layer, layer_on, order, order_by, routes};

/// Checks that an order runs once.
async fn runs_once(server: &Server, key: &str) {
    let mut client = Client::connect(server.address).await;
    let (first, second) = (client.ask(&order_by(key)).await, client.ask(&order_by(key)).await);
    assert!(first.status == 201 && !first.is_replay() && second.is_replay(), "{first}\n{second}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_middleware_wraps_an_application() {
    let once = IdempotencyMiddleware::new(layer());
    runs_once(&Server::around(once, routes(&Shop::default())), "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_middleware_wraps_a_resource_or_a_route() {
    let (shop, once) = (Shop::default(), IdempotencyMiddleware::new(layer()));
    let data = web::Data::new(shop.clone());
    let server = Server::of(1, move |config| {
        config.app_data(data.clone());
        config.service(web::resource("/orders").wrap(once.clone()).route(web::post().to(order)));
        config.service(web::resource("/route").route(web::post().to(order).wrap(once.clone())));
        config.route("/unprotected", web::post().to(order));
    });
    runs_once(&server, "a").await;
    let mut client = Client::connect(server.address).await;
    let to = |target: &str| Ask::post(target).header("idempotency-key", "a");
    assert!(!client.ask(&to("/route")).await.is_replay());
    assert!(client.ask(&to("/route")).await.is_replay());
    for _ in 0..2 {
        assert!(!client.ask(&to("/unprotected")).await.is_replay());
    }
    assert_eq!(shop.runs(), 4);
}

/// A scope and an application see the same template of a route, so they have the same keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_template_of_a_nested_route_includes_its_scopes() {
    let (shop, executor) = (Shop::default(), Executor::new(MemoryStore::new()));
    let (inside, outside) = (layer_on(executor.clone()), layer_on(executor));
    let [inside, outside] = [inside, outside].map(IdempotencyMiddleware::new);
    let data = web::Data::new(shop.clone());
    let server = |outer: Option<IdempotencyMiddleware>, inner: Option<IdempotencyMiddleware>| {
        let data = data.clone();
        let conditional = |once: Option<IdempotencyMiddleware>| {
            let is_there = once.is_some();
            actix_web::middleware::Condition::new(is_there, once.unwrap_or(IdempotencyMiddleware::new(layer())))
        };
        let (outer, inner) = (outer.clone(), inner.clone());
        Server::of(1, move |config| {
            let orders = web::scope("/orders").wrap(conditional(inner.clone())).route("/{id}", web::post().to(order));
            let users = web::scope("/users/{user}").wrap(conditional(outer.clone())).service(orders);
            config.app_data(data.clone()).service(users);
        })
    };
    let (inner, outer) = (server(None, Some(inside)), server(Some(outside), None));
    let to = |target: &str| Ask::post(target).header("idempotency-key", "a");
    assert_eq!(Client::connect(inner.address).await.ask(&to("/users/1/orders/2")).await.status, 201);
    let mut client = Client::connect(outer.address).await;
    assert!(client.ask(&to("/users/1/orders/2")).await.is_replay());
    client.ask(&to("/users/1/orders/3")).await.is(422, "key-reused");
    client.ask(&to("/users/2/orders/2")).await.is(422, "key-reused");
    assert_eq!(shop.runs(), 1);
}

/// A stored problem would be the response to a retry that has a key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outer_middleware_does_not_store_the_problems_of_an_inner_one() {
    let shop = Shop::default();
    let by_header = KeyRules::default().header(HeaderName::from_static("x-outer"));
    let rules = ResponseRules::default().store(StorePolicy::All);
    let outer = IdempotencyMiddleware::new(layer().key(by_header).response(rules));
    let (inner, services) = (IdempotencyMiddleware::new(layer()), routes(&shop));
    let server = Server::of(1, move |config| {
        let scope = web::scope("").wrap(inner.clone()).wrap(outer.clone());
        config.service(scope.configure(services.clone()));
    });
    let mut client = Client::connect(server.address).await;
    let ask = Ask::post("/orders").header("x-outer", "a");
    client.ask(&ask).await.is(400, "missing-key");
    let retry = client.ask(&ask.header("idempotency-key", "b")).await;
    assert!(retry.status == 201 && !retry.is_replay(), "{retry}");
}

/// Such a test has no worker: the service runs in the `System` of the test.
#[test]
fn the_middleware_runs_in_tests_without_a_server() {
    actix_web::rt::System::new().block_on(async {
        let shop = Shop::default();
        let once = IdempotencyMiddleware::new(layer());
        let app = init_service(App::new().wrap(once).configure(routes(&shop))).await;
        for is_replay in [false, true] {
            let request = TestRequest::post().uri("/orders").insert_header(("idempotency-key", "a"));
            let response = call_service(&app, request.set_payload("tea").to_request()).await;
            assert_eq!(response.headers().contains_key("idempotent-replayed"), is_replay);
            assert_eq!(read_body(response).await, "1:");
        }
        assert_eq!(shop.runs(), 1);
    });
}
