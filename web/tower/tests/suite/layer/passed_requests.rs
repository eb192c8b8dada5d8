//! The protected requests, and the ones that pass through.
use std::convert::Infallible;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use idempotent_tower::RequestBody;
use tower::{Layer, ServiceExt};

use crate::layer::support::{World, order_by};

#[tokio::test]
async fn only_post_and_patch_are_protected() {
    let world = World::new();
    let shop = world.shop();
    for (method, looked_at) in [
        (Method::POST, true),
        (Method::PATCH, true),
        (Method::GET, false),
        (Method::HEAD, false),
        (Method::PUT, false),
        (Method::DELETE, false),
        (Method::OPTIONS, false),
        (Method::TRACE, false),
        (Method::from_bytes(b"PURGE").unwrap(), false),
    ] {
        let (runs, calls) = (shop.runs(), world.store.log().len());
        for _ in 0..2 {
            assert_eq!(order_by("a").to(method.clone(), "/orders").send(&shop).await.status, 201, "{method}");
        }
        assert_eq!(shop.runs() - runs, if looked_at { 1 } else { 2 }, "{method}");
        assert_eq!(world.store.log().len() > calls, looked_at, "{method}: asked of the store");
    }
}

#[tokio::test]
async fn no_body_is_copied_whether_it_passes_or_is_handled() {
    let world = World::new();
    let at = async |request: Request<RequestBody<Body>>| {
        let Some(Ok(frame)) = request.into_body().frame().await else { panic!("it has a body") };
        // The address of its only frame.
        let at = frame.into_data().unwrap().as_ptr() as usize;
        Ok::<_, Infallible>(Response::new(Body::from(at.to_string())))
    };
    let service = world.layer().layer(tower::service_fn(at));
    for method in [Method::PUT, Method::POST] {
        let body = Bytes::from(vec![b'x'; 1 << 16]);
        let ask = order_by("a").to(method, "/").body(body.clone());
        let told = service.clone().oneshot(ask.request()).await.unwrap().into_body().collect().await.unwrap();
        assert_eq!(told.to_bytes(), (body.as_ptr() as usize).to_string());
    }
}
