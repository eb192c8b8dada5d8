//! The header of the key, and the methods of protected requests.
use http::{HeaderName, Method};
use idempotent_tower::{KeyFormat, KeyRules, KeySyntax};

use super::{layer, order, row};
use crate::Expected::{Problem, Ran, Replayed};
use crate::{Ask, Row};

const INVALID: crate::Expected = Problem(400, "invalid-key");
const MISSING: crate::Expected = Problem(400, "missing-key");

pub(super) fn rows() -> Vec<Row> {
    let long = "k".repeat(255);
    let too_long = "k".repeat(256);
    let other_header = KeyRules::default().header(HeaderName::from_static("x-request-id"));
    vec![
        row(
            "a key runs once, and another key runs again",
            layer(),
            2,
            vec![(order("a"), Ran(1)), (order("a"), Replayed(1)), (order("b"), Ran(2)), (order("b"), Replayed(2))],
        ),
        row(
            "a quoted and a bare value are one key",
            layer(),
            1,
            vec![(order("8e03"), Ran(1)), (order("\"8e03\""), Replayed(1)), (order("\"8e03\";ttl=3"), Replayed(1))],
        ),
        row(
            "a key has 1 to 255 characters",
            layer(),
            1,
            vec![(order(&long), Ran(1)), (order(&too_long), INVALID), (order(""), INVALID), (order("\"  \""), INVALID)],
        ),
        row(
            "several lines or a list are no key",
            layer(),
            0,
            vec![
                (order("a").header("idempotency-key", "a"), INVALID),
                (order("a, b"), INVALID),
                (order("a b"), INVALID),
                (order("x").key(b"\xff"), INVALID),
            ],
        ),
        row("a key is required", layer(), 0, vec![(Ask::post("/orders"), MISSING)]),
        row(
            "an optional key may be missing, but not malformed",
            layer().required(false),
            3,
            vec![
                (Ask::post("/orders"), Ran(1)),
                (Ask::post("/orders"), Ran(2)),
                (order("a,b"), INVALID),
                (order("a"), Ran(3)),
                (order("a"), Replayed(3)),
            ],
        ),
        row(
            "the header of the key is configurable",
            layer().key(other_header),
            1,
            vec![
                (Ask::post("/orders").header("x-request-id", "a"), Ran(1)),
                (Ask::post("/orders").header("x-request-id", "a"), Replayed(1)),
                (order("a"), MISSING),
            ],
        ),
        row(
            "syntax and format are configurable",
            layer().key(KeyRules::default().syntax(KeySyntax::Structured).format(KeyFormat::Uuid)),
            1,
            vec![
                (order("8e03978e-40d5-43dd-bc93-6894a57f9324"), INVALID),
                (order("\"8e03\""), INVALID),
                (order("\"8e03978e-40d5-43dd-bc93-6894a57f9324\""), Ran(1)),
            ],
        ),
        row(
            "the key may be in the body",
            layer().key_from(|_, body| Some(String::from_utf8_lossy(body).strip_prefix("key=")?.to_owned())),
            1,
            vec![
                (Ask::post("/orders").body("key=a"), Ran(1)),
                (Ask::post("/orders").body("key=a"), Replayed(1)),
                (Ask::post("/orders").body("other"), MISSING),
                (Ask::post("/orders").body("key="), INVALID),
            ],
        ),
        row(
            "other methods pass through, even with a malformed key",
            layer(),
            5,
            vec![
                (Ask::get("/orders").header("idempotency-key", "a,b"), Ran(1)),
                (Ask::to("PUT", "/orders").header("idempotency-key", "a"), Ran(2)),
                (Ask::to("PUT", "/orders").header("idempotency-key", "a"), Ran(3)),
                (Ask::to("DELETE", "/orders/1").header("idempotency-key", "a"), Ran(4)),
                (Ask::to("OPTIONS", "/orders"), Ran(5)),
            ],
        ),
        row(
            "the methods are configurable",
            layer().methods([Method::PUT]),
            3,
            vec![
                (Ask::to("PUT", "/orders").header("idempotency-key", "a"), Ran(1)),
                (Ask::to("PUT", "/orders").header("idempotency-key", "a"), Replayed(1)),
                (order("a"), Ran(2)),
                (order("a"), Ran(3)),
            ],
        ),
        row(
            "a function can pass requests through",
            layer().skip(|head| head.headers.contains_key("x-skip")),
            2,
            vec![
                (order("a").header("x-skip", "1"), Ran(1)),
                (order("a").header("x-skip", "1"), Ran(2)),
                (Ask::post("/orders"), MISSING),
            ],
        ),
    ]
}
