//! The layer around one service, and between other layers.
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use idempotent_core::{Executor, MemoryStore};
use idempotent_tonic::{GrpcLayer, StreamPolicy, denied};
use idempotent_tower::{Caller, Principal};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::InterceptorLayer;
use tonic::{Code, Status};
use tonic_web::GrpcWebLayer;
use tower::{Layer, Service, ServiceExt};

use crate::support::{Shop, TEA};

fn layer(principal: Principal) -> GrpcLayer {
    GrpcLayer::new(Executor::new(MemoryStore::new()), principal)
}

/// Returns a call with a key.
fn call(method: &str, kind: &str, body: impl Into<Bytes>) -> Request<Body> {
    let request = Request::post(format!("/shop.Orders/{method}")).header("content-type", kind);
    request.header("idempotency-key", "a").body(Body::new(Full::new(body.into()))).unwrap()
}

/// Sends a call, and returns whether the response is a replay, and its body.
async fn send<S, R>(service: &S, call: Request<Body>) -> (Response<()>, Bytes)
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone,
    R: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
{
    let (parts, body) = service.clone().oneshot(call).await.unwrap().into_parts();
    (Response::from_parts(parts, ()), body.collect().await.unwrap().to_bytes())
}

/// A service that answers with no gRPC, if it is ready.
#[derive(Clone)]
struct Plain(Poll<()>);

impl<B> Service<Request<B>> for Plain {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.map(Ok)
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        // Read as gRPC, two messages.
        ready(Ok(Response::new(Full::new(Bytes::from_static(&[0; 10])))))
    }
}

#[test]
fn the_layer_is_ready_when_its_service_is() {
    for is_ready in [Poll::Pending, Poll::Ready(())] {
        let mut service = layer(Principal::none()).layer(Plain(is_ready));
        let found = Service::<Request<Body>>::poll_ready(&mut service, &mut Context::from_waker(Waker::noop()));
        assert_eq!(found.is_ready(), is_ready.is_ready());
    }
}

#[tokio::test]
async fn a_response_that_is_no_grpc_passes_through() {
    let service = layer(Principal::none()).layer(Plain(Poll::Ready(())));
    assert_eq!(send(&service, call("Pay", "application/grpc", TEA)).await.1[..], [0; 10]);
}

fn is_replay(response: &Response<()>) -> bool {
    response.headers().contains_key("idempotent-replayed")
}

#[tokio::test]
async fn the_layer_protects_one_service_under_its_name() {
    fn name<S: NamedService>(_: &S) -> &'static str {
        S::NAME
    }
    let service = layer(Principal::none()).layer(Shop::new());
    assert_eq!(name(&service), "shop.Orders");
    for replay in [false, true] {
        assert_eq!(is_replay(&send(&service, call("Pay", "application/grpc", TEA)).await.0), replay);
    }
}

#[tokio::test]
async fn a_grpc_web_call_is_replayed_inside_its_translation() {
    let shop = Shop::new();
    let service = GrpcWebLayer::new().layer(layer(Principal::none()).layer(shop.clone()));
    let (first, body) = send(&service, call("Pay", "application/grpc-web+proto", TEA)).await;
    let (second, replayed) = send(&service, call("Pay", "application/grpc-web+proto", TEA)).await;
    assert_eq!((is_replay(&first), is_replay(&second), shop.runs()), (false, true, 1));
    // The trailers are a part of the body.
    let text = String::from_utf8_lossy(&body);
    assert!(body == replayed && text.contains("grpc-status:0"), "{text:?}");
}

#[tokio::test]
async fn an_interceptor_outside_names_the_caller() {
    #[derive(Clone)]
    struct User(String);
    let principal = Principal::from_fn(|head| match head.extensions.get::<User>() {
        Some(user) => Ok(Caller::named(&*user.0)),
        None => Err(denied(Status::unauthenticated("no user"))),
    });
    let authenticate = |mut request: tonic::Request<()>| {
        if let Some(user) = request.metadata().get("x-user").map(|user| user.to_str().unwrap().to_owned()) {
            request.extensions_mut().insert(User(user));
        }
        Ok(request)
    };
    let service = InterceptorLayer::new(authenticate).layer(layer(principal).layer(Shop::new()));
    for (user, replay) in [("ada", false), ("bob", false), ("ada", true)] {
        let mut call = call("Pay", "application/grpc", TEA);
        call.headers_mut().insert("x-user", user.parse().unwrap());
        assert_eq!(is_replay(&send(&service, call).await.0), replay, "{user}");
    }
    let (anonymous, _) = send(&service, call("Pay", "application/grpc", TEA)).await;
    assert_eq!(Status::from_header_map(anonymous.headers()).unwrap().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_layer_inside_another_passes_calls_through_by_its_own_rules() {
    let shop = Shop::new();
    // The inner layer refuses streams with a key, but not the ones of this method.
    let inner = layer(Principal::none()).pass_through(["/shop.Orders/Upload"]).layer(shop.clone());
    let service = layer(Principal::none()).streams(StreamPolicy::PassThrough).layer(inner);
    for runs in 1..=2 {
        let (passed, _) = send(&service, call("Upload", "application/grpc", [TEA, TEA].concat())).await;
        assert!(!passed.headers().contains_key("grpc-status"), "{passed:?}");
        assert_eq!(shop.runs(), runs);
    }
}
