//! The comparison of requests with the same key, and the limits of their bodies.
use idempotent_core::Fingerprint;
use idempotent_tower::PayloadCheck;

use super::{layer, order, row};
use crate::Expected::{Body, Problem, Ran, Replayed};
use crate::{Ask, Row, Step};

const REUSED: crate::Expected = Problem(422, "key-reused");
const TOO_LARGE: crate::Expected = Problem(413, "body-too-large");

/// `{"x":1,"y":2}` by gzip.
const GZIP: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x01\x0d\x00\xf2\xff{\"x\":1,\"y\":2}^\x92\xca\x0d\x0d\x00\x00\x00";

/// Returns an order whose body is a form, with this boundary and these values of its fields.
fn form(boundary: &str, values: &[&str]) -> Ask {
    let field = |value: &&str| {
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n{value}\r\n")
    };
    let body = values.iter().map(field).chain([format!("--{boundary}--\r\n")]).collect::<String>();
    order("a").header("content-type", format!("multipart/form-data; boundary=\"{boundary}\"")).body(body)
}

pub(super) fn rows() -> Vec<Row> {
    let binary: Vec<u8> = (0..=255).collect();
    vec![
        row(
            "another body or query is rejected, other headers are not",
            layer(),
            1,
            vec![
                (order("a"), Ran(1)),
                (order("a").body("other"), REUSED),
                (order("a").body(""), REUSED),
                (Ask::post("/orders?x=1").header("idempotency-key", "a"), REUSED),
                (order("a").header("traceparent", "1"), Replayed(1)),
            ],
        ),
        row(
            "a body in chunks equals the same body of known length",
            layer(),
            1,
            vec![(order("a").body("hello world"), Ran(1)), (order("a").body("hello world").chunked(4), Replayed(1))],
        ),
        row(
            "another order of JSON fields and another compression are rejected by default",
            layer(),
            1,
            vec![
                (order("a").body(r#"{"x":1,"y":2}"#), Ran(1)),
                (order("a").body(r#"{"y":2,"x":1}"#), REUSED),
                (order("a").header("content-encoding", "gzip").body(GZIP), REUSED),
            ],
        ),
        row(
            "a form with another multipart boundary is the same request",
            layer(),
            1,
            vec![
                (form("----one", &["tea", "2"]), Ran(1)),
                (form("two", &["tea", "2"]), Replayed(1)),
                (form("three", &["tea", "2"]).chunked(7), Replayed(1)),
                (form("two", &["tea", "3"]), REUSED),
                (form("two", &["2", "tea"]), REUSED),
                (form("two", &["tea", "2", ""]), REUSED),
                (form("two", &["tea"]), REUSED),
            ],
        ),
        row(
            "the JSON value can be compared, without some fields",
            layer().payload(PayloadCheck::canonical_json().exclude("/at")),
            2,
            vec![
                (order("a").body(r#"{"x":1,"y":2,"at":3}"#), Ran(1)),
                (order("a").body(r#"{ "y": 2, "x": 1, "at": 4 }"#), Replayed(1)),
                (order("a").body(r#"{"x":1,"y":3}"#), REUSED),
                (form("one", &["tea"]).key(b"b"), Ran(2)),
                (form("two", &["tea"]).key(b"b"), Replayed(2)),
            ],
        ),
        row(
            "a function can compare",
            layer().payload(PayloadCheck::by(|_, body| Some(Fingerprint::of_bytes(&body[..1])))),
            1,
            vec![
                (order("a").body("tea"), Ran(1)),
                (order("a").body("time"), Replayed(1)),
                (order("a").body("gin"), REUSED),
            ],
        ),
        row(
            "the comparison can be switched off",
            layer().payload(PayloadCheck::off()),
            1,
            vec![(order("a"), Ran(1)), (order("a").body("other"), Replayed(1))],
        ),
        row(
            "the handler receives the bytes of the body",
            layer(),
            3,
            vec![
                (order("a").header("x-echo", "1").body(binary.clone()), Body(201, binary.leak())),
                (order("b").header("x-echo", "1").body("hello").chunked(2), Body(201, b"hello")),
                (
                    order("b").header("x-echo", "1").body("hello"),
                    Body(201, b"hello").with("idempotent-replayed", "true"),
                ),
                (order("c").header("x-echo", "1").body(""), Body(201, b"")),
            ],
        ),
        row(
            "a body over the limit is rejected before the claim",
            layer().max_body(3),
            1,
            vec![
                (order("a").body("abcd"), TOO_LARGE),
                (order("a").body("abcd").chunked(1), TOO_LARGE),
                (order("a").body("abc"), Ran(1)),
            ],
        ),
        row(
            "the default limit is 2 MiB",
            layer(),
            1,
            vec![
                (order("a").body(vec![b'x'; (2 << 20) + 1]), TOO_LARGE),
                (order("a").body(vec![b'x'; 2 << 20]), Ran(1)),
            ],
        ),
        Row {
            name: "a duplicate in flight is rejected, and another body with its key",
            layer: layer(),
            steps: vec![
                Step::Begin(order("a").hold(1)),
                Step::Send(order("a"), Problem(409, "in-flight")),
                Step::Send(order("a").body("other"), REUSED),
                Step::Send(order("b"), Ran(2)),
                Step::Open(Ran(1)),
                Step::Send(order("a"), Replayed(1)),
            ],
            runs: 2,
        },
        Row {
            name: "a duplicate can wait for the response",
            layer: layer().wait(crate::PATIENCE),
            steps: vec![Step::Begin(order("a").hold(1)), Step::Follow(order("a"), Replayed(1)), Step::Open(Ran(1))],
            runs: 1,
        },
    ]
}
