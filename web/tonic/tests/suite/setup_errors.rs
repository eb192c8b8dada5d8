//! Settings that are wrong.
use std::time::Duration;

use idempotent_core::{Executor, MemoryStore};
use idempotent_tonic::GrpcLayer;
use idempotent_tower::{KeyRules, Principal};
use tonic::{Code, Request};
use tonic_types::StatusExt;

use crate::support::{World, payment, with_key};

fn check(set: impl FnOnce(GrpcLayer) -> GrpcLayer) -> String {
    let layer = set(GrpcLayer::new(Executor::new(MemoryStore::new()), Principal::none()));
    layer.check().map_or_else(|error| error.to_string(), |()| String::new())
}

#[test]
fn defaults_are_valid() {
    assert_eq!(check(|layer| layer), "");
    let all = check(|layer| {
        layer.require_key(["/shop.Orders/Pay"]).pass_through(["/shop.Orders/Watch", "/grpc.health.v1.Health/*"])
    });
    assert_eq!(all, "");
}

#[test]
fn each_error_names_the_setting_the_value_and_the_remedy() {
    let named = |name: &'static str| KeyRules::default().header(name.parse().unwrap());
    let binary = check(|layer| layer.key(named("request-bin")));
    assert!(binary.contains("`request-bin`") && binary.contains("without `-bin`"), "{binary}");
    let reserved = check(|layer| layer.key(named("grpc-key")));
    assert!(reserved.contains("`grpc-key`") && reserved.contains("reserves"), "{reserved}");
    let pause = check(|layer| layer.stream_after(Duration::ZERO));
    assert!(pause.contains("`stream_after` is zero"), "{pause}");
    let form = check(|layer| layer.require_key(["shop.Orders/Pay"]).pass_through(["/shop.Orders"]));
    assert!(form.contains("`require_key` has `shop.Orders/Pay`"), "{form}");
    assert!(form.contains("`pass_through` has `/shop.Orders`; use `/package.Service/Method`"), "{form}");
    let both = check(|layer| layer.require_key(["/shop.Orders/Pay"]).pass_through(["/shop.Orders/*"]));
    assert!(both.contains("`/shop.Orders/Pay` requires a key and passes through"), "{both}");
    let empty = check(|layer| layer.namespace(""));
    assert!(empty.contains("`namespace` is empty"), "{empty}");
    let lease = check(|layer| layer.lease(Duration::ZERO));
    assert!(lease.contains("lease"), "{lease}");
}

#[tokio::test]
async fn a_layer_with_invalid_settings_refuses_calls_with_a_key() {
    let world = World::with(|layer| layer.pass_through(["/shop.Orders"])).await;
    let status = world.pay("a", "tea").await.unwrap_err();
    assert_eq!((status.code(), world.shop.runs()), (Code::Internal, 0));
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "MISCONFIGURED");
    assert!(!status.message().contains("shop.Orders"), "the log has the cause: {status:?}");
}

#[tokio::test]
async fn a_method_that_both_requires_a_key_and_passes_through_is_refused() {
    for (required, passed) in [
        ("/shop.Orders/Pay", "/shop.Orders/Pay"),
        ("/shop.Orders/Pay", "/shop.Orders/*"),
        ("/shop.Orders/*", "/shop.Orders/*"),
    ] {
        let world = World::with(|layer| layer.require_key([required]).pass_through([passed])).await;
        for request in [Request::new(payment("tea")), with_key("a", payment("tea"))] {
            assert_eq!(world.send(request).await.unwrap_err().code(), Code::Internal, "{required}, {passed}");
        }
        assert_eq!(world.shop.runs(), 0);
    }
    // A method is an exception of its service.
    let world = World::with(|layer| layer.require_key(["/shop.Orders/*"]).pass_through(["/shop.Orders/Pay"])).await;
    assert_eq!(world.send(Request::new(payment("tea"))).await.unwrap().get_ref().run, 1);
}
