//! Callers and routes as parts of the key.
use http::{Response, StatusCode};
use idempotent_tower::{Caller, Denied, IdempotencyLayer, Principal};

use super::{executor, layer, order, row};
use crate::Expected::{Body, Problem, Ran, Replayed};
use crate::{Ask, Row};

const REUSED: crate::Expected = Problem(422, "key-reused");

fn to(method: &str, target: &str) -> Ask {
    Ask::to(method, target).header("idempotency-key", "a")
}

fn denying() -> Principal {
    Principal::from_fn(|head| match head.headers.get("x-user").map(|user| user.as_bytes()) {
        None => Err(Denied::status(StatusCode::UNAUTHORIZED)),
        Some(b"eve") => Err(Denied::response(Response::builder().status(403).body("not you".into()).unwrap())),
        Some(name) => Ok(Caller::named(String::from_utf8_lossy(name))),
    })
}

pub(super) fn rows() -> Vec<Row> {
    vec![
        row(
            "equal keys of two callers are two keys",
            layer(),
            3,
            vec![
                (order("a").user("ann"), Ran(1)),
                (order("a").user("bob"), Ran(2)),
                (order("a"), Ran(3)),
                (order("a").user("ann"), Replayed(1)),
                (order("a"), Replayed(3)),
            ],
        ),
        row(
            "credentials without a named caller are an error of the setup",
            layer(),
            1,
            vec![
                (order("a").header("authorization", "Bearer x"), Problem(500, "misconfigured")),
                (order("a").header("authorization", "Bearer x").user("ann"), Ran(1)),
            ],
        ),
        row(
            "without principals all callers are one",
            IdempotencyLayer::new(executor(), Principal::none()),
            1,
            vec![(order("a").user("ann"), Ran(1)), (order("a").user("bob"), Replayed(1))],
        ),
        row(
            "a denied caller receives the response of the principal, after the check of the key",
            IdempotencyLayer::new(executor(), denying()),
            1,
            vec![
                (order("a,b"), Problem(400, "invalid-key")),
                (order("a"), Body(401, b"")),
                (order("a").user("eve"), Body(403, b"not you")),
                (order("a").user(""), Problem(401, "no-principal")),
                (order("a").user("ann"), Ran(1)),
            ],
        ),
        row(
            "each method and each route has its own keys",
            layer(),
            5,
            vec![
                (order("a"), Ran(1)),
                (to("PATCH", "/orders"), Ran(2)),
                (to("POST", "/baskets"), Ran(3)),
                (to("POST", "/orders/1"), Ran(4)),
                (to("PATCH", "/orders/1"), Ran(5)),
                (order("a"), Replayed(1)),
            ],
        ),
        row(
            "a route template is one route",
            layer(),
            1,
            vec![
                (to("POST", "/orders/1"), Ran(1)),
                (to("POST", "/orders/2"), REUSED),
                (to("POST", "/orders/1"), Replayed(1)),
            ],
        ),
        row(
            "in one scope for all routes the same key on another route is reused",
            layer().scope("shop"),
            1,
            vec![(order("a"), Ran(1)), (to("POST", "/baskets"), REUSED), (to("PATCH", "/orders"), REUSED)],
        ),
        row(
            "a function can name the route",
            layer().route(|head| Some(head.uri.path().split('/').nth(1)?.to_owned())),
            2,
            vec![(order("a"), Ran(1)), (to("POST", "/orders/1"), REUSED), (to("POST", "/baskets"), Ran(2))],
        ),
    ]
}
