//! The content of a replay, headers that are never stored, and responses that are too large.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use idempotent_core::Policy;
use idempotent_tower::__private::EXCHANGE_HEADERS;
use idempotent_tower::{IdempotencyLayer, ReplayHeader, ResponseRules, StorePolicy};

use crate::layer::support::{Sent, Shop, World, order_by};

/// Creates a shop whose handler returns the output of `answer`.
fn answering<F>(layer: IdempotencyLayer, make: F) -> (Shop, Arc<AtomicU32>)
where
    F: Fn() -> Response + Clone + Send + Sync + 'static,
{
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handler = move || {
        counted.fetch_add(1, SeqCst);
        let response = make();
        async move { response }
    };
    (Shop::of(Router::new().route("/orders", post(handler)).layer(layer)), runs)
}

fn lines(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
}

fn named(name: &'static str) -> HeaderName {
    HeaderName::from_static(name)
}

async fn twice(shop: &Shop) -> (Sent, Sent) {
    (order_by("a").send(shop).await, order_by("a").send(shop).await)
}

#[tokio::test]
async fn a_replay_has_the_status_bytes_and_headers_in_order_and_number() {
    let world = World::new();
    let (shop, runs) = answering(world.layer(), || {
        let all: Bytes = (0..=255).collect();
        let response = Response::builder().status(299).header("x-b", "1").header("x-a", "2").header("x-b", "3");
        let response = response.header("x-empty", "").header("x-latin", &b"\xe4\xff"[..]).header("link", "<a>, <b>");
        response
            .header("content-encoding", "gzip")
            .header("vary", "accept")
            .header("x-a", "2")
            .body(Body::from(all))
            .unwrap()
    });
    let (first, second) = twice(&shop).await;
    assert_eq!((runs.load(SeqCst), first.status, second.status), (1, 299, 299));
    assert_eq!(first.body, second.body);
    assert!(!first.is_replay() && second.is_replay());
    let mut replayed = lines(&second.headers);
    replayed.retain(|(name, _)| name != "idempotent-replayed");
    let mut original = lines(&first.headers);
    original.retain(|(name, _)| name != "content-length");
    replayed.retain(|(name, _)| name != "content-length");
    assert_eq!(original, replayed);
    assert_eq!(second.headers.get_all("x-b").iter().map(|value| value.as_bytes()).collect::<Vec<_>>(), [b"1", b"3"]);
}

#[tokio::test]
async fn a_mark_set_by_the_handler_is_removed() {
    let marks = ["idempotent-replayed", "idempotency-replayed", "x-again"];
    for (header, ours) in [
        (ReplayHeader::Replayed, &marks[..1]),
        (ReplayHeader::Both, &marks[..2]),
        (ReplayHeader::Named(named("x-again")), &marks[2..]),
        (ReplayHeader::None, &[][..]),
    ] {
        for status in [200, 500] {
            let world = World::new();
            let (shop, _) =
                answering(world.layer().response(ResponseRules::default().replay_header(header.clone())), move || {
                    let response = Response::builder().status(status);
                    marks
                        .iter()
                        .fold(response, |response, name| response.header(*name, "upstream"))
                        .body(Body::empty())
                        .unwrap()
                });
            let (first, second) = twice(&shop).await;
            for name in marks {
                let (of_first, of_second) = match (ours.contains(&name), status) {
                    (true, 200) => (None, Some("true")),
                    (true, _) => (None, None),
                    (false, _) => (Some("upstream"), Some("upstream")),
                };
                assert_eq!((first.header(name), second.header(name)), (of_first, of_second), "{name} {status}");
                assert!(second.headers.get_all(name).iter().count() <= 1, "{name} {status}");
            }
        }
    }
}

#[tokio::test]
async fn sensitive_header_values_are_replayed_as_sensitive() {
    let world = World::new();
    let (shop, _) = answering(world.layer(), || {
        let mut secret = HeaderValue::from_static("s3cret");
        secret.set_sensitive(true);
        let response = Response::builder().header("x-token", secret.clone()).header("x-token", "plain");
        response.header("location", secret).body(Body::empty()).unwrap()
    });
    let (_, second) = twice(&shop).await;
    assert!(second.is_replay());
    let shown = second.headers.get_all("x-token").iter().map(HeaderValue::is_sensitive).collect::<Vec<_>>();
    assert_eq!((shown, second.headers["location"].is_sensitive()), (vec![true, false], true));
}

#[tokio::test]
async fn only_the_first_caller_receives_extensions() {
    #[derive(Clone, Debug, PartialEq)]
    struct Traced(u8);
    let world = World::new();
    let (shop, _) = answering(world.layer(), || Response::builder().extension(Traced(7)).body(Body::empty()).unwrap());
    let (first, second) = twice(&shop).await;
    assert_eq!(first.extensions.get::<Traced>(), Some(&Traced(7)));
    assert_eq!(second.extensions.get::<Traced>(), None);
}

fn with_all_sorts_of_headers() -> Response {
    let names = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "date",
        "set-cookie",
        "authorization",
        "x-hop",
        "x-keep",
        "x-private",
    ];
    let response = names.iter().fold(Response::builder(), |response, name| {
        response.header(*name, if *name == "connection" { "close, X-Hop" } else { "1" })
    });
    response.header("set-cookie", "b=2").header(CONTENT_LENGTH, "2").body(Body::from("ok")).unwrap()
}

#[tokio::test]
async fn connection_and_transient_headers_are_not_stored() {
    let world = World::new();
    let (shop, _) = answering(world.layer(), with_all_sorts_of_headers);
    let (first, second) = twice(&shop).await;
    assert_eq!(first.headers.get_all("set-cookie").iter().count(), 2, "the first caller gets all");
    let names: Vec<_> =
        second.headers.keys().map(HeaderName::as_str).filter(|name| *name != "content-length").collect();
    assert_eq!(names, ["x-keep", "x-private", "idempotent-replayed"]);
    assert_eq!(&second.body[..], b"ok");
}

#[tokio::test]
async fn headers_can_be_kept_and_dropped_but_connection_headers_cannot_be_kept() {
    let world = World::new();
    let rules = ["set-cookie", "date", "connection", "transfer-encoding", "content-length", "x-hop"];
    let rules = rules.into_iter().fold(ResponseRules::default(), |rules, name| rules.keep(named(name)));
    let (shop, _) = answering(world.layer().response(rules.drop(named("x-private"))), with_all_sorts_of_headers);
    let (_, second) = twice(&shop).await;
    let names: Vec<_> =
        second.headers.keys().map(HeaderName::as_str).filter(|name| *name != "content-length").collect();
    assert_eq!(names, ["date", "set-cookie", "x-keep", "idempotent-replayed"]);
    assert_eq!(second.headers.get_all("set-cookie").iter().collect::<Vec<_>>(), ["1", "b=2"]);
}

#[tokio::test]
async fn a_wrong_content_length_is_computed_again() {
    let world = World::new();
    let (shop, _) = answering(world.layer(), || {
        Response::builder().header(CONTENT_LENGTH, "999").body(Body::from("four")).unwrap()
    });
    let (_, second) = twice(&shop).await;
    assert!(second.header("content-length").is_none_or(|length| length == "4"), "{second:?}");
}

#[tokio::test]
async fn a_sanitizer_edits_only_the_stored_response() {
    let world = World::new();
    let rules = ResponseRules::default().sanitize(|response| {
        response.headers_mut().remove("x-private");
        *response.body_mut() =
            response.body().iter().map(|byte| if byte.is_ascii_digit() { b'*' } else { *byte }).collect();
    });
    let (shop, _) = answering(world.layer().response(rules), || {
        Response::builder().header("x-private", "1").body(Body::from("card 4111")).unwrap()
    });
    let (first, second) = twice(&shop).await;
    assert_eq!((&first.body[..], first.header("x-private")), (&b"card 4111"[..], Some("1")));
    assert_eq!((&second.body[..], second.header("x-private")), (&b"card ****"[..], None));
}

#[tokio::test]
async fn a_sanitizer_cannot_add_headers_that_are_never_stored() {
    let world = World::new();
    let rules = ResponseRules::default().drop(named("x-private")).sanitize(|response| {
        for name in ["content-length", "transfer-encoding", "set-cookie", "x-private", "x-looked-over"] {
            response.headers_mut().insert(name, HeaderValue::from_static("7"));
        }
    });
    let shop = world.shop_behind(world.layer().response(rules));
    let (_, second) = twice(&shop).await;
    assert!(second.is_replay());
    let has = |name: &str| second.header(name);
    // The length is computed again.
    assert_eq!((has("content-length"), has("transfer-encoding"), has("set-cookie")), (Some("2"), None, None));
    assert_eq!((has("x-private"), has("x-looked-over")), (None, Some("7")));
}

#[tokio::test]
async fn a_body_of_up_to_a_mebibyte_is_stored_to_the_byte() {
    const MIB: usize = 1 << 20;
    for (size, kept) in [(MIB - 1, true), (MIB, true), (MIB + 1, false)] {
        let world = World::new();
        let shop = world.shop();
        let ask = order_by("a").with("x-size", (size - 2).to_string());
        assert_eq!(ask.send(&shop).await.body.len(), size);
        let second = ask.send(&shop).await;
        if kept {
            assert!(second.is_replay());
            assert_eq!(second.body.len(), size);
        } else {
            second.problem(409, "response-not-retained");
            assert_eq!(
                (second.header("location"), second.told()["retryable"].as_bool()),
                (Some("/orders/1"), Some(false))
            );
        }
        assert_eq!(shop.runs(), 1);
    }
}

#[tokio::test]
async fn the_limit_of_stored_bodies_can_be_raised_and_lowered() {
    let world = World::new();
    for (limit, size, kept) in [(10, 10, true), (10, 11, false), (0, 2, false), (3 << 20, 3 << 20, true)] {
        let layer = world.layer().namespace(format!("{limit}-{size}"));
        let shop = world.shop_behind(layer.response(ResponseRules::default().max_response(limit)));
        let ask = order_by("a").with("x-size", (size - 2).to_string());
        assert_eq!(ask.send(&shop).await.body.len(), size);
        assert_eq!(ask.send(&shop).await.is_replay(), kept, "{limit} {size}");
    }
}

#[tokio::test]
async fn the_limit_of_a_policy_takes_precedence() {
    let world = World::new();
    let shop = world.shop_behind(world.layer().policy(Policy::new().max_result(100)));
    let ask = order_by("a").with("x-size", "200");
    ask.send(&shop).await.ran(1);
    ask.send(&shop).await.problem(409, "response-not-retained");
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn a_dropped_location_is_not_stored_for_a_large_response_either() {
    let world = World::new();
    let rules = ResponseRules::default().max_response(10).drop(named("location"));
    let shop = world.shop_behind(world.layer().response(rules));
    let ask = order_by("a").with("x-size", "20");
    assert_eq!(ask.send(&shop).await.ran(1).header("location"), Some("/orders/1"));
    assert_eq!(ask.send(&shop).await.problem(409, "response-not-retained").header("location"), None);
}

#[tokio::test]
async fn oversized_headers_are_not_stored() {
    let world = World::new();
    let (shop, runs) = answering(world.layer(), || {
        let response = (0..300).fold(Response::builder(), |response, _| response.header("x-large", "h".repeat(1_000)));
        response.header("location", "/orders/1").body(Body::empty()).unwrap()
    });
    let (first, second) = twice(&shop).await;
    assert_eq!(first.headers.get_all("x-large").iter().count(), 300);
    assert_eq!(second.problem(409, "response-not-retained").header("location"), Some("/orders/1"));
    assert_eq!(runs.load(SeqCst), 1);
}

fn streamed(pieces: &'static [&'static [u8]]) -> Body {
    Body::from_stream(stream::iter(pieces).map(|piece| Ok::<_, std::io::Error>(Bytes::from_static(piece))))
}

#[tokio::test]
async fn a_stream_reaches_its_client_before_its_end() {
    use http_body_util::BodyExt;
    use tower::ServiceExt;
    let world = World::new();
    let (shop, _) = answering(world.layer(), || {
        let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"first"))]);
        Response::new(Body::from_stream(first.chain(stream::pending())))
    });
    let mut response = shop.router().oneshot(order_by("a").request()).await.unwrap();
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(&frame.into_data().unwrap()[..], b"first");
    order_by("a").send(&shop).await.problem(409, "response-not-retained");
}

#[tokio::test]
async fn bodies_of_unknown_length_can_be_buffered_up_to_the_limit() {
    let world = World::new();
    let rules = ResponseRules::default().buffer_unknown(true).max_response(4);
    let (shop, _) = answering(world.layer().response(rules.clone()), || Response::new(streamed(&[b"ab", b"", b"cd"])));
    let (first, second) = twice(&shop).await;
    assert_eq!((&first.body[..], &second.body[..], second.is_replay()), (&b"abcd"[..], &b"abcd"[..], true));
    let (shop, _) = answering(world.layer().namespace("b").response(rules), || {
        Response::new(streamed(&[b"ab", b"cd", b"e", b"f"]))
    });
    let (first, second) = twice(&shop).await;
    assert_eq!(&first.body[..], b"abcdef", "as it came");
    second.problem(409, "response-not-retained");
}

#[tokio::test]
async fn a_protocol_switch_is_never_replayed() {
    let world = World::new();
    let rules = ResponseRules::default().store(StorePolicy::All);
    let (shop, runs) = answering(world.layer().response(rules), || {
        Response::builder().status(101).header("upgrade", "echo").body(Body::empty()).unwrap()
    });
    let (first, second) = twice(&shop).await;
    assert_eq!(first.status, 101);
    second.problem(409, "response-not-retained");
    assert_eq!(runs.load(SeqCst), 1);
}

/// Returns a name for each entry of the list.
fn names() -> impl Iterator<Item = HeaderName> {
    EXCHANGE_HEADERS.iter().map(|header| header.replace('*', "-x").parse().unwrap())
}

/// Returns the names in a replay with these rules.
async fn replayed(rules: ResponseRules) -> BTreeSet<String> {
    let world = World::new();
    let handler = async || {
        let response =
            names().fold(Response::builder().header("etag", "1"), |response, name| response.header(name, "1"));
        response.body(Body::empty()).unwrap()
    };
    let shop = Shop::of(Router::new().route("/orders", post(handler)).layer(world.layer().response(rules)));
    let first = order_by("a").send(&shop).await;
    assert!(names().all(|name| first.headers.contains_key(name)), "the first caller receives all: {first:?}");
    let second = order_by("a").send(&shop).await;
    assert!(second.is_replay());
    second.headers.keys().map(ToString::to_string).filter(|name| name != "content-length").collect()
}

#[tokio::test]
async fn each_header_that_describes_the_first_exchange_is_left_out_and_can_be_kept() {
    let others = ["etag", "idempotent-replayed"].map(str::to_owned);
    assert_eq!(replayed(ResponseRules::default()).await, BTreeSet::from(others.clone()));
    let rules = names().fold(ResponseRules::default(), ResponseRules::keep);
    let all = names().map(|name| name.to_string()).chain(others).collect();
    assert_eq!(replayed(rules).await, all);
}

#[test]
fn the_guide_lists_the_headers_that_describe_the_first_exchange() {
    let guide = include_str!("../../../../../guides/http-reference.md");
    let table = guide.split("### Headers of the first exchange").nth(1).unwrap().split("\n\n").nth(2).unwrap();
    let listed: BTreeSet<_> = table.split('`').skip(1).step_by(2).map(str::to_lowercase).collect();
    assert_eq!(listed, EXCHANGE_HEADERS.map(str::to_owned).into());
}
