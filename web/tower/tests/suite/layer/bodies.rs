//! Request and response bodies that exceed a limit, fail or never end.
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use idempotent_tower::ResponseRules;
use tower::ServiceExt;

use crate::layer::support::{Shop, World, order_by, send};

/// The declared length of a body whose frames do not match it.
const NEVER_ENDS: u64 = 1;

/// A body with frames and an arbitrary declared length.
struct Told {
    frames: Vec<Result<Frame<Bytes>, std::io::Error>>,
    length: u64,
}

impl http_body::Body for Told {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match self.frames.is_empty() {
            false => Poll::Ready(Some(self.frames.remove(0))),
            true if self.length == NEVER_ENDS => Poll::Pending,
            true => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}

fn data(text: &'static str) -> Result<Frame<Bytes>, std::io::Error> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

fn broken() -> Result<Frame<Bytes>, std::io::Error> {
    Err(std::io::Error::other("cut"))
}

#[tokio::test]
async fn the_limit_applies_to_extractors_inside_the_layer() {
    let world = World::new();
    let large = vec![b'x'; 3 << 20];
    for (most, status) in [(4 << 20, 200), (2 << 20, 413)] {
        let app: Router = Router::new()
            .route("/orders", post(async |body: Bytes| body.len().to_string()))
            .layer(world.layer().max_body(most));
        let request = order_by(&most.to_string()).request_of(Body::from(large.clone()));
        let response = app.oneshot(request).await.unwrap();
        let kind = response.headers()["content-type"].clone();
        assert_eq!(response.status(), status);
        assert_eq!(kind == "application/problem+json", status == 413, "{kind:?}");
    }
}

#[tokio::test]
async fn a_body_that_declares_too_large_a_length_is_not_read() {
    let world = World::new();
    let shop = world.shop();
    let body = Body::new(Told { frames: vec![broken()], length: 1 << 40 });
    send(&shop, order_by("a").request_of(body)).await.problem(413, "body-too-large");
}

#[tokio::test]
async fn a_large_body_that_declares_a_small_length_is_rejected() {
    let world = World::new();
    let shop = world.shop_behind(world.layer().max_body(5));
    let body = Body::new(Told { frames: vec![data("abc"), data("def")], length: 3 });
    send(&shop, order_by("a").request_of(body)).await.problem(413, "body-too-large");
}

#[tokio::test]
async fn an_incomplete_body_claims_nothing() {
    let world = World::new();
    let shop = world.shop();
    let body = Body::new(Told { frames: vec![data("ab"), broken()], length: 4 });
    send(&shop, order_by("a").request_of(body)).await.problem(400, "invalid-body");
    assert!(shop.runs() == 0 && world.is_untouched());
}

#[tokio::test]
async fn a_slow_or_aborted_upload_claims_nothing() {
    let world = World::new();
    let shop = world.shop();
    let some = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"so far"))]);
    let never = Body::from_stream(some.chain(stream::pending()));
    let upload = tokio::spawn(shop.router().oneshot(order_by("a").request_of(never)));
    world.clock.settle().await;
    assert!(!upload.is_finished() && world.is_untouched());
    order_by("a").send(&shop).await.ran(1);
    upload.abort();
    assert!(upload.await.is_err());
    world.clock.settle().await;
    order_by("a").send(&shop).await.replays(1);
}

/// Creates a shop that responds with such a body.
fn answering(
    world: &World,
    rules: ResponseRules,
    frames: fn() -> Vec<Result<Frame<Bytes>, std::io::Error>>,
    length: u64,
) -> Shop {
    let handler = move || async move { Response::new(Body::new(Told { frames: frames(), length })) };
    Shop::of(Router::new().route("/orders", post(handler)).layer(world.layer().response(rules)))
}

/// Returns the data before the failure of the body, and whether it failed.
async fn read(shop: &Shop) -> (Vec<u8>, bool, Option<HeaderMap>) {
    let mut body = shop.router().oneshot(order_by("a").request()).await.unwrap().into_body();
    let (mut read, mut trailers) = (Vec::new(), None);
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => read.extend(data),
            Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
            Err(_) => return (read, true, trailers),
        }
    }
    (read, false, trailers)
}

#[tokio::test]
async fn a_response_that_fails_midway_fails_for_its_client_and_completes() {
    let world = World::new();
    let shop = answering(&world, ResponseRules::default(), || vec![data("ab"), broken()], 4);
    assert_eq!(read(&shop).await, (b"ab".to_vec(), true, None));
    order_by("a").send(&shop).await.problem(409, "response-not-retained");
}

#[tokio::test]
async fn a_response_with_a_wrong_length_is_held_to_the_limit() {
    let world = World::new();
    let rules = ResponseRules::default().max_response(3);
    let shop = answering(&world, rules, || vec![data("ab"), data("cd"), data("e"), data("f")], 2);
    assert_eq!(read(&shop).await, (b"abcdef".to_vec(), false, None));
    order_by("a").send(&shop).await.problem(409, "response-not-retained");
}

#[tokio::test]
async fn a_response_with_a_wrong_length_that_never_ends_is_not_buffered() {
    let world = World::new();
    let rules = ResponseRules::default().max_response(3);
    let shop = answering(&world, rules, || vec![data("ab"), data("cd"), data("e")], NEVER_ENDS);
    let mut body = shop.router().oneshot(order_by("a").request()).await.unwrap().into_body();
    for piece in ["ab", "cd", "e"] {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), piece);
    }
    order_by("a").send(&shop).await.problem(409, "response-not-retained");
}

#[tokio::test]
async fn trailers_are_replayed() {
    fn frames() -> Vec<Result<Frame<Bytes>, std::io::Error>> {
        let trailers =
            [("grpc-status", "0"), ("x-sum", "1")].map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        vec![data("ab"), Ok(Frame::trailers(HeaderMap::from_iter(trailers)))]
    }
    let world = World::new();
    let shop = answering(&world, ResponseRules::default(), frames, 2);
    let (first, second) = (read(&shop).await, read(&shop).await);
    assert_eq!(first, second);
    assert_eq!(first.2.unwrap()["grpc-status"], "0");
}

#[tokio::test]
async fn headers_that_are_never_stored_are_not_stored_as_trailers() {
    fn frames() -> Vec<Result<Frame<Bytes>, std::io::Error>> {
        let trailers = [("x-sum", "1"), ("x-debug", "2"), ("set-cookie", "3"), ("authorization", "4")];
        let trailers = trailers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        vec![data("ab"), Ok(Frame::trailers(HeaderMap::from_iter(trailers)))]
    }
    let world = World::new();
    let rules = ResponseRules::default().drop("x-debug".parse().unwrap());
    let shop = answering(&world, rules, frames, 2);
    let (first, second) = (read(&shop).await, read(&shop).await);
    assert_eq!((first.0, first.2.unwrap().len()), (second.0, 4));
    let told: Vec<_> = second.2.unwrap().keys().map(ToString::to_string).collect();
    assert_eq!(told, ["x-sum"]);
}
