//! Cut connections, a stopped server, and a closed port, on the way through a proxy.
use idempotent_core::{CasBackend, StoreErrorKind};
use idempotent_dynamodb::DynamoBackend;
use idempotent_harness::proxy::{Fault, Proxy};

use crate::world::{World, client, key, record, secs};

const GET: &str = "DynamoDB_20120810.GetItem";
const PUT: &str = "DynamoDB_20120810.PutItem";
const DELETE: &str = "DynamoDB_20120810.DeleteItem";

/// Returns a backend whose requests pass a proxy.
async fn proxied(world: &World) -> (Proxy, DynamoBackend) {
    let proxy = Proxy::start(&world.address).await;
    let backend = DynamoBackend::builder(&client(&proxy.address()), &world.table).open().await.unwrap();
    (proxy, backend)
}

#[tokio::test]
async fn a_cut_write_is_ambiguous_whether_it_was_applied_or_not() {
    let world = World::new().await;
    let (proxy, backend) = proxied(&world).await;
    let now = backend.read(&key("1")).await.unwrap().now;
    let next = record(now, now + secs(60));
    for (part, fault, is_applied) in
        [("1", Fault::CutBeforeSend, false), ("2", Fault::CutAfterApply, true), ("3", Fault::CutMidReply, true)]
    {
        proxy.fail_next_with(PUT, fault);
        let error = backend.swap(&key(part), 0, Some(&next)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Ambiguous, "{fault:?}: {error}");
        assert_eq!(world.item(&key(part)).await.is_some(), is_applied, "{fault:?}");
        // The repetition shows what happened.
        assert_eq!(backend.swap(&key(part), 0, Some(&next)).await.unwrap(), !is_applied, "{fault:?}");
        let version = backend.read(&key(part)).await.unwrap().version;
        proxy.fail_next_with(DELETE, fault);
        let error = backend.swap(&key(part), version, None).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Ambiguous, "{fault:?}: {error}");
        assert_eq!(world.item(&key(part)).await.is_none(), is_applied, "{fault:?}");
    }
}

#[tokio::test]
async fn a_cut_read_is_not_applied_and_the_next_one_succeeds() {
    let world = World::new().await;
    let (proxy, backend) = proxied(&world).await;
    for fault in [Fault::CutBeforeSend, Fault::CutAfterApply, Fault::CutMidReply] {
        proxy.fail_next_with(GET, fault);
        let error = backend.read(&key("1")).await.unwrap_err();
        assert!(
            error.kind() == StoreErrorKind::NotApplied && error.to_string().contains("reading the table"),
            "{error}"
        );
        assert_eq!(backend.read(&key("1")).await.unwrap().version, 0);
    }
}

#[tokio::test]
async fn a_closed_port_is_not_applied_for_writes_too() {
    let world = World::new().await;
    let (proxy, backend) = proxied(&world).await;
    let now = backend.read(&key("1")).await.unwrap().now;
    let next = record(now, now + secs(60));
    proxy.refuse();
    proxy.cut_all();
    let written = backend.swap(&key("1"), 0, Some(&next)).await.unwrap_err();
    assert_eq!(written.kind(), StoreErrorKind::NotApplied, "{written}");
    assert!(written.to_string().contains("check the region and the endpoint"), "{written}");
    proxy.listen();
    assert!(backend.swap(&key("1"), 0, Some(&next)).await.unwrap());
}

#[tokio::test]
async fn a_server_that_does_not_answer_leaves_a_read_undone_and_a_write_unknown() {
    let world = World::new().await;
    let (proxy, backend) = proxied(&world).await;
    let now = backend.read(&key("1")).await.unwrap().now;
    let (next, free) = (record(now, now + secs(60)), key("1"));
    proxy.fail_next_with(GET, Fault::HalfOpen);
    proxy.fail_next_with(PUT, Fault::HalfOpenAfterApply);
    let (read, written) = tokio::join!(backend.read(&free), backend.swap(&free, 0, Some(&next)));
    let (read, written) = (read.unwrap_err(), written.unwrap_err());
    assert!(read.kind() == StoreErrorKind::NotApplied && read.to_string().contains("no answer within 5 s"), "{read}");
    assert!(written.kind() == StoreErrorKind::Ambiguous && written.to_string().contains("within 5 s"), "{written}");
    assert!(backend.read(&free).await.unwrap().record.is_some(), "the write was applied");
}
