//! Duplicates of completed calls.
use idempotent_core::Fingerprint;
use idempotent_tower::ResponseRules;
use tonic::codec::CompressionEncoding;
use tonic::{Code, Response, Status};

use crate::support::{Payment, Receipt, World, is_replay, paid, payment, with_key};

/// Returns the run and whether the response is a replay.
fn run(response: Result<Response<Receipt>, Status>) -> (u32, bool) {
    let response = response.unwrap();
    (response.get_ref().run, is_replay(&response))
}

#[tokio::test]
async fn a_duplicate_receives_the_recorded_message_and_metadata() {
    let world = World::new().await;
    let first = world.pay("a", "tea").await.unwrap();
    let second = world.pay("a", "tea").await.unwrap();
    assert!(!is_replay(&first) && is_replay(&second));
    assert_eq!((first.get_ref(), world.shop.runs()), (second.get_ref(), 1));
    let parts: Vec<_> = second.metadata().get_all("x-part").iter().collect();
    assert_eq!(parts, ["one", "two"]);
    assert_eq!(run(world.pay("b", "tea").await), (2, false));
}

#[tokio::test]
async fn metadata_that_describe_the_first_call_are_left_out_unless_they_are_kept() {
    const NAMES: [&str; 5] =
        ["x-run", "x-ratelimit-remaining", "x-request-id", "grpc-trace-bin", "endpoint-load-metrics"];
    let keep = ResponseRules::default().keep("x-request-id".parse().unwrap());
    for (rules, replayed) in [(ResponseRules::default(), &NAMES[..1]), (keep, &["x-run", "x-request-id"])] {
        let world = World::with(|layer| layer.response(rules)).await;
        for expected in [&NAMES[..], replayed] {
            let headers = world.pay("a", "traced").await.unwrap().into_parts().0.into_headers();
            let present: Vec<_> = NAMES.into_iter().filter(|name| headers.contains_key(*name)).collect();
            assert_eq!(present, expected);
        }
    }
}

#[tokio::test]
async fn a_replay_equals_the_response_byte_for_byte() {
    let world = World::new().await;
    let [first, mut second] =
        [world.raw_pay(&[("idempotency-key", "a")]).await, world.raw_pay(&[("idempotency-key", "a")]).await];
    assert_eq!(second.headers.remove("idempotent-replayed").unwrap(), "true");
    for sent in [&first, &second] {
        assert!(
            sent.trailers.is_some() && sent.status() == Some("0") && sent.body[..] == *b"\0\0\0\0\x02\x08\x01",
            "{sent:?}"
        );
    }
    assert_eq!(first, second);
}

#[tokio::test]
async fn a_failed_call_frees_its_key() {
    let world = World::new().await;
    for (order, code) in
        [("declined", Code::FailedPrecondition), ("busy", Code::Unavailable), ("panic", Code::Internal)]
    {
        for _ in 0..2 {
            assert_eq!(world.pay(order, order).await.unwrap_err().code(), code, "{order}");
        }
    }
    assert_eq!(world.shop.runs(), 6);
}

#[tokio::test]
async fn a_failure_with_a_stored_code_is_replayed_with_its_status() {
    let world = World::with(|layer| layer.store_codes([Code::FailedPrecondition])).await;
    for replay in [false, true] {
        let status = world.pay("a", "declined").await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "run 1: declined"));
        assert_eq!(status.metadata().get("idempotent-replayed").is_some(), replay);
    }
    for _ in 0..2 {
        assert_eq!(world.pay("b", "busy").await.unwrap_err().code(), Code::Unavailable);
    }
    assert_eq!(world.shop.runs(), 3);
}

#[tokio::test]
async fn a_method_overrides_the_decision_of_the_layer() {
    let world = World::with(|layer| layer.store_codes([Code::Ok])).await;
    for call in 1..=2 {
        assert_eq!(run(world.pay("a", "tentative").await), (call, false));
    }
}

#[tokio::test]
async fn two_methods_have_separate_keys() {
    let world = World::new().await;
    assert_eq!(run(world.pay("a", "tea").await), (1, false));
    let headers = [("content-type", "application/grpc"), ("idempotency-key", "a")];
    let other = world.raw("/shop.Orders/Missing", &headers, b"\0\0\0\0\0").await;
    assert_eq!(other.status(), Some("12"));
    assert!(!other.headers.contains_key("idempotent-replayed"));
}

#[tokio::test]
async fn a_message_up_to_the_limit_is_replayed_and_a_larger_one_is_refused() {
    let large = |size: usize| with_key("a", Payment { order: String::new(), filler: vec![7; size] });
    let rules = ResponseRules::default().max_response(4 << 20);
    let world = World::with(|layer| layer.response(rules).max_message(3 << 20)).await;
    for replay in [false, true] {
        let response = world.send(large(2 << 20)).await.unwrap();
        assert_eq!((response.get_ref().filler.len(), is_replay(&response)), (2 << 20, replay));
    }
    let refused = world.send(large((3 << 20) + 1)).await.unwrap_err();
    assert_eq!((refused.code(), world.shop.runs()), (Code::ResourceExhausted, 1));
}

#[tokio::test]
async fn a_large_response_reaches_its_caller_and_its_duplicate_learns_of_the_completion() {
    let world = World::with(|layer| layer.response(ResponseRules::default().max_response(1000))).await;
    let large = || with_key("a", Payment { order: String::new(), filler: vec![7; 100_000] });
    assert_eq!(world.send(large()).await.unwrap().get_ref().filler.len(), 100_000);
    assert_eq!(world.send(large()).await.unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(world.shop.runs(), 1);
}

/// Sends a payment that is compressed by gzip.
async fn compressed(world: &World, order: &str) -> Result<Response<Receipt>, Status> {
    let gzip = CompressionEncoding::Gzip;
    let client = world.client().await.send_compressed(gzip).accept_compressed(gzip);
    paid(client, with_key("a", payment(order))).await
}

#[tokio::test]
async fn a_compressed_message_is_compared_as_it_was_sent() {
    let world = World::new().await;
    assert_eq!(run(compressed(&world, "tea").await), (1, false));
    assert_eq!(run(compressed(&world, "tea").await), (1, true));
    assert_eq!(compressed(&world, "coffee").await.unwrap_err().code(), Code::FailedPrecondition);
    // The same message in another encoding is another request.
    assert_eq!(world.pay("a", "tea").await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(world.shop.runs(), 1);
}

#[tokio::test]
async fn a_function_can_compare_messages() {
    // Compares the order, which follows two bytes of protobuf, by its first letter.
    let world = World::with(|layer| layer.compare(|_, message| Some(Fingerprint::of_bytes(&message[2..3])))).await;
    assert_eq!(run(world.pay("a", "tea").await), (1, false));
    assert_eq!(run(world.pay("a", "tao").await), (1, true));
    assert_eq!(world.pay("a", "coffee").await.unwrap_err().code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_handler_finds_its_key_and_attempt() {
    let world = World::new().await;
    run(world.pay("a", "tea").await);
    let attempts = world.shop.attempts.lock().unwrap().clone();
    assert!(attempts.len() == 1 && attempts[0].number() == 1 && !attempts[0].is_retry(), "{attempts:?}");
}
