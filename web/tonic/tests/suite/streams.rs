//! Calls with a key that turn out to be streams.
use futures_util::{StreamExt, stream};
use http::uri::PathAndQuery;
use idempotent_testkit::VirtualClock;
use idempotent_tonic::StreamPolicy;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt;

use crate::support::{Payment, Receipt, TEA, World, after_pause, payment, until, with_key};

async fn passing() -> (World, VirtualClock) {
    World::timed(|layer| layer.streams(StreamPolicy::PassThrough)).await
}

/// Sends messages to the client-streaming method.
async fn upload(world: &World, messages: Vec<Payment>) -> Result<Response<Receipt>, Status> {
    let mut client = world.client().await;
    let path = PathAndQuery::from_static("/shop.Orders/Upload");
    client.client_streaming(with_key("a", stream::iter(messages)), path, ProstCodec::default()).await
}

/// Calls the server-streaming method.
async fn watch(world: &World, order: &str) -> Result<Streaming<Receipt>, Status> {
    let mut client = world.client().await;
    let path = PathAndQuery::from_static("/shop.Orders/Watch");
    let call = client.server_streaming(with_key("a", payment(order)), path, ProstCodec::default());
    call.await.map(Response::into_inner)
}

/// Opens a bidirectional call that has sent `first`, and returns the channel for further messages.
async fn chat(
    world: &World,
    first: Option<Payment>,
) -> (mpsc::Sender<Payment>, Result<Response<Streaming<Receipt>>, Status>) {
    let (send, messages) = mpsc::channel(1);
    if let Some(first) = first {
        send.send(first).await.unwrap();
    }
    let mut client = world.client().await;
    let path = PathAndQuery::from_static("/shop.Orders/Chat");
    let call = client.streaming(with_key("a", ReceiverStream::new(messages)), path, ProstCodec::default());
    let response = call.await;
    (send, response)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Status>) {
    let status = result.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status:?}");
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "STREAMING_CALL");
}

#[tokio::test]
async fn a_streaming_request_is_refused_before_its_method_runs() {
    let world = World::new().await;
    refused(upload(&world, vec![payment("tea"), payment("coffee")]).await);
    refused(upload(&world, vec![]).await);
    assert_eq!((world.shop.runs(), world.executor.counts().of("ran")), (0, 0));
}

#[tokio::test]
async fn a_client_stream_of_one_message_is_a_unary_call() {
    let world = World::new().await;
    for _ in 0..2 {
        assert_eq!(upload(&world, vec![payment("tea")]).await.unwrap().get_ref().run, 1);
    }
    assert_eq!(world.shop.runs(), 1);
}

#[tokio::test]
async fn a_streaming_request_passes_through_with_all_its_messages() {
    let (world, _) = passing().await;
    for runs in 1..=2 {
        let counted = upload(&world, vec![payment("a"), payment("b"), payment("c")]).await.unwrap();
        assert_eq!((counted.get_ref().run, world.shop.runs()), (3, runs));
    }
    assert_eq!(upload(&world, vec![]).await.unwrap().get_ref().run, 0);
    assert_eq!(world.executor.counts().of("ran"), 0);
}

#[tokio::test]
async fn a_streaming_request_to_a_method_that_requires_a_key_is_refused_whatever_the_policy() {
    let (world, clock) =
        World::timed(|layer| layer.streams(StreamPolicy::PassThrough).require_key(["/shop.Orders/*"])).await;
    refused(upload(&world, vec![payment("tea"), payment("coffee")]).await);
    refused(after_pause(&clock, chat(&world, Some(payment("tea")))).await.1);
    // A unary method ignores further messages.
    let headers = [("content-type", "application/grpc"), ("idempotency-key", "a")];
    let refused = world.raw("/shop.Orders/Pay", &headers, &[TEA, TEA].concat()).await;
    assert_eq!((refused.status(), world.shop.runs()), (Some("12"), 0), "{refused:?}");
}

#[tokio::test]
async fn a_client_that_waits_for_the_server_is_refused() {
    let (world, clock) = World::timed(|layer| layer).await;
    for first in [Some(payment("tea")), None] {
        refused(after_pause(&clock, chat(&world, first)).await.1);
    }
    assert_eq!(world.shop.runs(), 0);
}

#[tokio::test]
async fn a_conversation_passes_through() {
    let (world, clock) = passing().await;
    for first in [Some(payment("tea")), None] {
        let is_first = first.is_some();
        let (send, response) = after_pause(&clock, chat(&world, first)).await;
        let mut receipts = response.unwrap().into_inner();
        let mut count = 0;
        if is_first {
            count += 1;
            assert_eq!(receipts.next().await.unwrap().unwrap().run, 1);
        }
        for _ in 0..3 {
            send.send(payment("more")).await.unwrap();
            count += 1;
            assert_eq!(receipts.next().await.unwrap().unwrap().run, count);
        }
        drop(send);
        assert!(receipts.next().await.is_none());
    }
}

/// Calls the server-streaming method, and advances the clock after the method has begun for the n-th time.
async fn watch_open(world: &World, clock: &VirtualClock, run: u32) -> Result<Streaming<Receipt>, Status> {
    let begun = async {
        until(|| world.shop.runs() == run).await;
        after_pause(clock, std::future::pending::<()>()).await;
    };
    tokio::select! {
        response = watch(world, "open") => response,
        () = begun => unreachable!("the advances have no end"),
    }
}

#[tokio::test]
async fn a_streaming_response_is_refused_and_its_method_runs_once() {
    let world = World::new().await;
    for _ in 0..2 {
        refused(watch(&world, "two").await);
    }
    assert_eq!(world.shop.runs(), 1);
}

#[tokio::test]
async fn a_failure_after_the_message_is_stored_by_its_code() {
    for (stored, runs) in [(&[][..], 2), (&[Code::FailedPrecondition], 1)] {
        let world = World::with(|layer| layer.store_codes(stored.iter().copied())).await;
        for _ in 0..2 {
            let mut receipts = watch(&world, "fails").await.unwrap();
            assert!(receipts.next().await.unwrap().is_ok());
            assert_eq!(receipts.next().await.unwrap().unwrap_err().code(), Code::FailedPrecondition);
        }
        assert_eq!(world.shop.runs(), runs);
    }
}

#[tokio::test]
async fn a_response_without_an_end_is_refused_and_its_method_runs_once() {
    let (world, clock) = World::timed(|layer| layer).await;
    for _ in 0..2 {
        refused(watch_open(&world, &clock, 1).await);
    }
    assert_eq!(world.shop.runs(), 1);
}

#[tokio::test]
async fn a_streaming_response_passes_through_and_its_duplicate_learns_of_the_completion() {
    let (world, _) = passing().await;
    let receipts: Vec<_> = watch(&world, "two").await.unwrap().collect().await;
    assert_eq!(receipts.len(), 2);
    let duplicate = watch(&world, "two").await.unwrap_err();
    assert_eq!(duplicate.code(), Code::AlreadyExists);
    assert_eq!(duplicate.get_error_details().error_info().unwrap().reason, "RESPONSE_NOT_RETAINED");
    assert_eq!(world.shop.runs(), 1);
}

#[tokio::test]
async fn an_open_streaming_response_reaches_its_caller() {
    let (world, clock) = passing().await;
    let mut receipts = watch_open(&world, &clock, 1).await.unwrap();
    assert_eq!(receipts.next().await.unwrap().unwrap().run, 1);
}

#[tokio::test]
async fn an_endless_request_is_refused_after_its_first_message() {
    let world = World::new().await;
    let mut client = world.client().await;
    let path = PathAndQuery::from_static("/shop.Orders/Upload");
    let endless = stream::repeat(payment("tea"));
    refused(client.client_streaming::<_, _, Receipt, _>(with_key("a", endless), path, ProstCodec::default()).await);
    assert_eq!(world.shop.runs(), 0);
}

#[tokio::test]
async fn an_incomplete_message_is_refused() {
    let world = World::new().await;
    let headers = [("content-type", "application/grpc"), ("idempotency-key", "a")];
    for body in [&b"\0"[..], b"\0\0\0\0", b"\0\0\0\0\x05\x0a\x03te"] {
        assert_eq!(world.raw("/shop.Orders/Pay", &headers, body).await.status(), Some("3"), "{body:?}");
    }
    assert_eq!(world.shop.runs(), 0);
}
