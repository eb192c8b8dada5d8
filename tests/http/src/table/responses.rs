//! The stored responses, and the form of a replay.
use http::header::SET_COOKIE;
use idempotent_tower::{ReplayHeader, ResponseRules, StorePolicy};

use super::{layer, order, row};
use crate::Expected::{Body, Problem, Ran, Replayed};
use crate::{Ask, Row};

const NOT_RETAINED: crate::Expected = Problem(409, "response-not-retained");

fn status(key: &str, status: &str) -> Ask {
    order(key).header("x-status", status)
}

fn exchange(key: &str) -> Ask {
    order(key).header("x-exchange", "1")
}

fn decide(key: &str, status: &str, decision: &str) -> Ask {
    order(key).header("x-status", status).header("x-decide", decision)
}

pub(super) fn rows() -> Vec<Row> {
    let large = (1 << 20) - 1;
    let large = |key: &str| order(key).header("x-size", large.to_string());
    vec![
        row(
            "success and redirection are stored",
            layer(),
            5,
            vec![
                (status("a", "200"), Ran(1)),
                (status("a", "200"), Replayed(1)),
                (status("b", "202"), Ran(2)),
                (status("b", "202"), Replayed(2)),
                (status("c", "204"), Ran(3)),
                (status("c", "204"), Replayed(3)),
                (status("d", "303"), Ran(4)),
                (status("d", "303"), Replayed(4)),
                (status("e", "206"), Ran(5)),
                (status("e", "206"), Replayed(5)),
            ],
        ),
        row(
            "a failure frees the key",
            layer(),
            5,
            vec![
                (status("a", "500"), Ran(1)),
                (status("a", "404"), Ran(2)),
                (status("a", "409"), Ran(3)),
                (status("a", "422"), Ran(4)),
                (order("a"), Ran(5)),
                (order("a"), Replayed(5)),
            ],
        ),
        row(
            "statuses that no retry changes can be stored",
            layer().response(ResponseRules::default().store(StorePolicy::Final)),
            4,
            vec![
                (status("a", "404"), Ran(1)),
                (status("a", "404"), Replayed(1)),
                (status("b", "400"), Ran(2)),
                (status("b", "400"), Ran(3)),
                (status("c", "410"), Ran(4)),
                (status("c", "410"), Replayed(4)),
            ],
        ),
        row(
            "all responses can be stored",
            layer().response(ResponseRules::default().store(StorePolicy::All)),
            1,
            vec![(status("a", "500"), Ran(1)), (status("a", "500"), Replayed(1))],
        ),
        row(
            "a handler overrides the rules",
            layer(),
            3,
            vec![
                (decide("a", "402", "store"), Ran(1)),
                (decide("a", "402", "store"), Replayed(1)),
                (decide("b", "202", "release"), Ran(2)),
                (decide("b", "202", "release"), Ran(3)),
            ],
        ),
        row(
            "a panic is a problem and frees the key",
            layer(),
            3,
            vec![
                (order("a").header("x-panic", "1"), Problem(500, "handler-panicked")),
                (order("a").header("x-panic", "1"), Problem(500, "handler-panicked")),
                (order("a"), Ran(3)),
                (order("a"), Replayed(3)),
            ],
        ),
        row(
            "a replay has the lines of the headers without cookies, and the mark",
            layer(),
            1,
            vec![
                (
                    order("a"),
                    Ran(1).with("x-line", "1").with("x-line", "\u{fffd}").with("set-cookie", "session=secret"),
                ),
                (
                    order("a"),
                    Replayed(1)
                        .with("x-line", "1")
                        .with("x-line", "\u{fffd}")
                        .with("location", "/orders/1")
                        .without("set-cookie"),
                ),
            ],
        ),
        row(
            "headers can be kept and dropped",
            layer().response(ResponseRules::default().keep(SET_COOKIE).drop("x-line".parse().unwrap())),
            1,
            vec![
                (order("a"), Ran(1).with("x-line", "1")),
                (order("a"), Replayed(1).with("set-cookie", "session=secret").without("x-line")),
            ],
        ),
        row(
            "headers that describe the first exchange are not replayed",
            layer(),
            1,
            vec![
                (
                    exchange("a"),
                    Ran(1)
                        .with("x-ratelimit-remaining", "1")
                        .with("x-request-id", "1")
                        .with("server-timing", "1")
                        .with("traceparent", "1"),
                ),
                (
                    exchange("a"),
                    Replayed(1)
                        .with("x-line", "1")
                        .without("x-ratelimit-remaining")
                        .without("x-request-id")
                        .without("server-timing")
                        .without("traceparent"),
                ),
            ],
        ),
        row(
            "headers that describe the first exchange can be kept",
            layer().response(ResponseRules::default().keep("x-request-id".parse().unwrap())),
            1,
            vec![
                (exchange("a"), Ran(1)),
                (exchange("a"), Replayed(1).with("x-request-id", "1").without("server-timing")),
            ],
        ),
        row(
            "a handler cannot set the mark of a replay",
            layer(),
            1,
            vec![(order("a").header("x-mark", "1"), Ran(1)), (order("a").header("x-mark", "1"), Replayed(1))],
        ),
        row(
            "the mark has a configurable name",
            layer().response(ResponseRules::default().replay_header(ReplayHeader::Named("x-again".parse().unwrap()))),
            1,
            vec![(order("a"), Ran(1).without("x-again")), (order("a"), Ran(1).with("x-again", "true"))],
        ),
        row(
            "a response over 1 MiB reaches its caller and is not stored",
            layer(),
            1,
            vec![
                (large("a"), Ran(1).with("content-length", "1048577")),
                (large("a"), NOT_RETAINED.with("location", "/orders/1")),
            ],
        ),
        row(
            "a stream reaches its caller and is not stored",
            layer(),
            1,
            vec![
                (order("a").header("x-stream", "1"), Ran(1).with("transfer-encoding", "chunked")),
                (order("a").header("x-stream", "1"), NOT_RETAINED.with("location", "/orders/1")),
            ],
        ),
        row(
            "a stream can be read into memory",
            layer().response(ResponseRules::default().buffer_unknown(true)),
            1,
            vec![(order("a").header("x-stream", "1"), Ran(1)), (order("a").header("x-stream", "1"), Replayed(1))],
        ),
        row(
            "an empty response is replayed",
            layer(),
            1,
            vec![
                (order("a").header("x-echo", "1").body(""), Body(201, b"")),
                (order("a").header("x-echo", "1").body(""), Body(201, b"").with("idempotent-replayed", "true")),
            ],
        ),
    ]
}
