//! The callers of calls.
use http::StatusCode;
use idempotent_core::{Executor, MemoryStore};
use idempotent_tonic::denied;
use idempotent_tower::{Caller, Denied, Principal};
use tonic::{Code, Request, Status};

use crate::support::{Payment, World, is_replay, payment, with_key};

async fn world() -> World {
    let principal = Principal::from_fn(|head| match head.headers.get("x-user").map(|user| user.as_bytes()) {
        Some(b"mallory") => Err(Denied::status(StatusCode::FORBIDDEN)),
        Some(b"ok") => Err(denied(Status::ok(""))),
        Some(user) => Ok(Caller::named(String::from_utf8_lossy(user))),
        None => Err(denied(Status::unauthenticated("no user"))),
    });
    World::of(Executor::new(MemoryStore::new()), principal, |layer| layer).await
}

fn by(user: &str) -> Request<Payment> {
    let mut request = with_key("a", payment("tea"));
    request.metadata_mut().insert("x-user", user.parse().unwrap());
    request
}

#[tokio::test]
async fn equal_keys_of_two_callers_are_two_keys() {
    let world = world().await;
    for (user, run, replay) in [("ada", 1, false), ("bob", 2, false), ("ada", 1, true)] {
        let response = world.send(by(user)).await.unwrap();
        assert_eq!((response.get_ref().run, is_replay(&response)), (run, replay), "{user}");
    }
}

#[tokio::test]
async fn a_denied_call_receives_the_status_of_the_principal() {
    let world = world().await;
    let status = world.pay("a", "tea").await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "no user"));
    for user in ["mallory", "ok"] {
        assert_eq!(world.send(by(user)).await.unwrap_err().code(), Code::PermissionDenied);
    }
    let status = world.send(by("")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "a caller without a name: {status:?}");
    assert_eq!(world.shop.runs(), 0);
}
