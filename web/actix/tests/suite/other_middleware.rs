//! Other middleware outside and inside.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::error::ErrorForbidden;
use actix_web::middleware::{Compress, DefaultHeaders, Next, from_fn};
use actix_web::{Error, HttpMessage, HttpRequest, HttpResponse, web};
use http::StatusCode;
use idempotent_actix_web::IdempotencyMiddleware;
use idempotent_core::{Executor, MemoryStore};
use idempotent_http_decisions::{Client, Shop};
use idempotent_tower::{Caller, Denied, IdempotencyLayer, Principal};

use crate::support::{Server, layer, order_by, routes};

/// Inserted by the authentication outside.
#[derive(Clone)]
struct User(String);

async fn authenticate(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let user = request.headers().get("x-token").and_then(|token| token.to_str().ok()).map(str::to_owned);
    if let Some(user) = user {
        request.extensions_mut().insert(User(user));
    }
    next.call(request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authentication_outside_names_the_caller() {
    let principal = Principal::from_fn(|head| match head.extensions.get::<User>() {
        Some(user) => Ok(Caller::named(user.0.as_str())),
        None => Err(Denied::status(StatusCode::UNAUTHORIZED)),
    });
    let layer = IdempotencyLayer::new(Executor::new(MemoryStore::new()), principal);
    let once = IdempotencyMiddleware::new(layer).extension(|request| request.extensions().get::<User>().cloned());
    // The handler receives the extension, too.
    let handler = async |user: web::ReqData<User>| user.0.clone();
    let server = Server::of(1, move |config| {
        let orders = web::resource("/orders").wrap(once.clone()).wrap(from_fn(authenticate));
        config.service(orders.route(web::post().to(handler)));
    });
    let mut client = Client::connect(server.address).await;
    for user in ["ann", "bob"] {
        for is_replay in [false, true] {
            let answer = client.ask(&order_by("a").header("x-token", user)).await;
            assert_eq!((answer.text(), answer.is_replay()), (user.to_owned(), is_replay));
        }
    }
    assert_eq!(client.ask(&order_by("a")).await.status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_head_has_the_address_of_the_peer_and_connection_info_on_request() {
    let principal = Principal::from_fn(|head| {
        let peer = head.extensions.get::<std::net::SocketAddr>().map(|peer| peer.ip().to_string());
        let host = head.extensions.get::<Host>().map(|host| host.0.clone());
        Ok(Caller::named(format!("{peer:?} {host:?}")))
    });
    #[derive(Clone)]
    struct Host(String);
    let layer = IdempotencyLayer::new(Executor::new(MemoryStore::new()), principal.clone());
    let once = IdempotencyMiddleware::new(layer.key_from(|head, _| {
        let peer = head.extensions.get::<std::net::SocketAddr>()?;
        Some(format!("{} {}", peer.ip(), head.extensions.get::<Host>()?.0))
    }))
    .extension(|request| Some(Host(request.connection_info().host().to_owned())));
    let handler = async |key: web::ReqData<idempotent_tower::IdempotencyKey>| key.as_str().to_owned();
    let server = Server::behind(once, move |config| {
        config.route("/orders", web::post().to(handler));
    });
    let answer = Client::connect(server.address).await.ask(&order_by("a")).await;
    assert_eq!(answer.text(), "127.0.0.1 localhost");
}

/// One client accepts gzip, and the other does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compression_outside_is_not_stored() {
    let once = IdempotencyMiddleware::new(layer());
    let handler = async || HttpResponse::Ok().content_type("text/plain").body("tea ".repeat(1_000));
    let server = Server::of(1, move |config| {
        let orders = web::resource("/orders").wrap(once.clone()).wrap(Compress::default());
        config.service(orders.route(web::post().to(handler)));
    });
    let mut client = Client::connect(server.address).await;
    let zipped = client.ask(&order_by("a").header("accept-encoding", "gzip")).await;
    assert_eq!((zipped.header("content-encoding"), zipped.body.len() < 1_000), (Some("gzip"), true));
    let plain = client.ask(&order_by("a")).await;
    assert!(plain.is_replay() && plain.header("content-encoding").is_none());
    assert_eq!(plain.text(), "tea ".repeat(1_000));
    let again = client.ask(&order_by("a").header("accept-encoding", "gzip")).await;
    assert!(again.is_replay() && again.header("content-encoding") == Some("gzip"));
}

/// The compressed length is unknown, so the response is stored only if the layer reads it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compression_inside_is_replayed_as_it_was_sent() {
    let rules = idempotent_tower::ResponseRules::default().buffer_unknown(true);
    let once = IdempotencyMiddleware::new(layer().response(rules));
    let handler = async || HttpResponse::Ok().content_type("text/plain").body("tea ".repeat(1_000));
    let server = Server::of(1, move |config| {
        let orders = web::resource("/orders").wrap(Compress::default()).wrap(once.clone());
        config.service(orders.route(web::post().to(handler)));
    });
    let mut client = Client::connect(server.address).await;
    let ask = order_by("a").header("accept-encoding", "gzip");
    let (first, replay) = (client.ask(&ask).await, client.ask(&ask).await);
    assert!(replay.is_replay() && first.header("content-encoding") == Some("gzip"));
    assert_eq!((&first.body, first.header("content-encoding")), (&replay.body, replay.header("content-encoding")));
}

/// The service returns no response, so there is none to store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_a_middleware_inside_frees_the_key_and_passes_outside() {
    let (shop, refusals, seen) = (Shop::default(), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (once, services) = (IdempotencyMiddleware::new(layer()), routes(&shop));
    let (refused, errors) = (refusals.clone(), seen.clone());
    let server = Server::of(1, move |config| {
        let (refused, errors) = (refused.clone(), errors.clone());
        let refuse_first = from_fn(move |request: ServiceRequest, next: Next<BoxBody>| {
            let is_first = refused.fetch_add(1, SeqCst) == 0;
            async move { if is_first { Err(ErrorForbidden("not yet")) } else { next.call(request).await } }
        });
        let count_errors =
            from_fn(move |request: ServiceRequest, next: Next<_>| count_errors(errors.clone(), request, next));
        let scope = web::scope("").wrap(refuse_first).wrap(once.clone()).wrap(count_errors);
        config.service(scope.configure(services.clone()));
    });
    let mut client = Client::connect(server.address).await;
    let first = client.ask(&order_by("a")).await;
    assert_eq!((first.status, first.text()), (403, "not yet".to_owned()));
    assert_eq!(client.ask(&order_by("a")).await.status, 201);
    assert!(client.ask(&order_by("a")).await.is_replay());
    assert_eq!((refusals.load(SeqCst), seen.load(SeqCst), shop.runs()), (2, 1, 1));
}

async fn count_errors<B: MessageBody>(
    errors: Arc<AtomicU32>,
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    next.call(request).await.inspect_err(|_| {
        errors.fetch_add(1, SeqCst);
    })
}

#[derive(Clone, Debug, PartialEq)]
struct Mark(&'static str);

/// The head of the handler's response passes outside with its extensions and its error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_middleware_outside_sees_the_extensions_of_the_response_and_the_error() {
    let once = IdempotencyMiddleware::new(layer());
    let handler = async |request: HttpRequest| -> Result<HttpResponse, Error> {
        if request.headers().contains_key("x-fail") {
            return Err(ErrorForbidden("no"));
        }
        let mut response = HttpResponse::Ok().finish();
        response.extensions_mut().insert(Mark("of the handler"));
        Ok(response)
    };
    let server = Server::of(1, move |config| {
        let orders = web::resource("/orders")
            .wrap(DefaultHeaders::new().add(("x-inside", "1")))
            .wrap(once.clone())
            .wrap(from_fn(observe))
            .wrap(DefaultHeaders::new().add(("x-outside", "1")));
        config.service(orders.route(web::post().to(handler)));
    });
    let mut client = Client::connect(server.address).await;
    let first = client.ask(&order_by("a")).await;
    let seen = |name: &str| first.header(name);
    assert_eq!(
        (seen("x-mark"), seen("x-error"), seen("x-inside"), seen("x-outside")),
        (Some("of the handler"), None, Some("1"), Some("1"))
    );
    let failed = client.ask(&order_by("b").header("x-fail", "1")).await;
    assert_eq!((failed.status, failed.header("x-error")), (403, Some("no")));
}

async fn observe<B: MessageBody>(request: ServiceRequest, next: Next<B>) -> Result<ServiceResponse<B>, Error> {
    let mut response = next.call(request).await?;
    let mark = response.response().extensions().get::<Mark>().cloned();
    let error = response.response().error().map(ToString::to_string);
    let headers = response.headers_mut();
    for (name, value) in [("x-mark", mark.map(|mark| mark.0.to_owned())), ("x-error", error)] {
        if let Some(value) = value {
            let name = actix_web::http::header::HeaderName::from_static(name);
            headers.insert(name, value.parse().unwrap());
        }
    }
    Ok(response)
}
