//! The statuses of refused calls, and the tables of problems and codes.
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Executor, MemoryStore};
use idempotent_testkit::{FaultStore, VirtualClock};
use idempotent_tonic::{GrpcLayer, problem_code};
use idempotent_tower::{Principal, ProblemKind};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::support::World;

/// Checks code, reason and whether the status has a delay before a retry.
#[track_caller]
fn expect(status: &Status, code: Code, reason: &str, retries: bool) {
    let details = status.get_error_details();
    let info = details.error_info().unwrap();
    assert_eq!((status.code(), &*info.reason, &*info.domain), (code, reason, idempotent_tonic::DOMAIN), "{status:?}");
    let delay = details.retry_info().and_then(|info| info.retry_delay);
    assert_eq!(delay.is_some_and(|delay| delay > Duration::ZERO), retries, "{status:?}");
    let pushback = status.metadata().get("grpc-retry-pushback-ms").map(|ms| ms.to_str().unwrap().parse::<u64>());
    assert_eq!(pushback.is_some_and(|ms| ms.unwrap() > 0), retries, "{status:?}");
    assert!(!status.message().is_empty());
}

#[tokio::test]
async fn a_duplicate_of_a_running_call_is_aborted_with_a_delay() {
    let world = World::new().await;
    let first = world.hold("a").await;
    expect(&world.pay("a", "hold").await.unwrap_err(), Code::Aborted, "IN_FLIGHT", true);
    // Another message is an error of the client, whose retry is useless.
    expect(&world.pay("a", "tea").await.unwrap_err(), Code::FailedPrecondition, "KEY_REUSED", false);
    world.shop.gate.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap().get_ref().run, 1);
}

#[tokio::test]
async fn a_key_of_another_message_is_refused() {
    let world = World::new().await;
    world.pay("a", "tea").await.unwrap();
    let refused = world.pay("a", "coffee").await.unwrap_err();
    expect(&refused, Code::FailedPrecondition, "KEY_REUSED", false);
    let place = |text: &str| refused.message().find(text).unwrap_or_else(|| panic!("`{text}` is not in: {refused:?}"));
    assert!(
        place("send the bytes that were sent first") < place("new key")
            && place("`GrpcLayer::compare`") < place("new key")
    );
    assert_eq!(world.shop.runs(), 1);
}

#[tokio::test]
async fn a_panic_is_internal() {
    let world = World::new().await;
    expect(&world.pay("a", "panic").await.unwrap_err(), Code::Internal, "HANDLER_PANICKED", false);
}

/// Starts a server whose store can be unavailable.
async fn with_faults(set: impl FnOnce(GrpcLayer) -> GrpcLayer) -> (FaultStore, World) {
    let clock = VirtualClock::new();
    let store = FaultStore::new(MemoryStore::builder().clock(Arc::new(clock.clone())).build(), &clock);
    let world = World::of(Executor::new(store.clone()), Principal::none(), set).await;
    (store, world)
}

#[tokio::test]
async fn nothing_runs_while_the_store_is_unavailable() {
    let (store, world) = with_faults(|layer| layer).await;
    store.down();
    expect(&world.pay("a", "tea").await.unwrap_err(), Code::Unavailable, "STORE_UNAVAILABLE", true);
    assert_eq!(world.shop.runs(), 0);
    store.up();
    assert_eq!(world.pay("a", "tea").await.unwrap().get_ref().run, 1);
}

#[tokio::test]
async fn a_method_runs_without_protection_if_the_layer_fails_open() {
    let (store, world) = with_faults(|layer| layer.fail_open(true)).await;
    store.down();
    for run in 1..=2 {
        assert_eq!(world.pay("a", "tea").await.unwrap().get_ref().run, run);
    }
}

#[tokio::test]
async fn a_draining_executor_refuses_calls() {
    let world = World::new().await;
    world.executor.drain(Duration::ZERO).await;
    expect(&world.pay("a", "tea").await.unwrap_err(), Code::Unavailable, "DRAINING", true);
}

/// Returns the code of a name in the tables, such as INVALID_ARGUMENT.
fn code(name: &str) -> Option<Code> {
    let is_named = |code: &Code| format!("{code:?}").to_ascii_uppercase() == name.replace('_', "");
    (0..=16).map(Code::from).find(is_named)
}

/// Returns the rows of the table in a text, as pairs of a problem and its code.
fn rows(text: &str) -> HashMap<&str, Code> {
    let mut all = HashMap::new();
    for row in text.lines().filter_map(|line| line.trim_start_matches("///").trim().strip_prefix("| `")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let Some(code) = cells.get(1).and_then(|cell| code(cell)) else { continue };
        all.extend(cells[0].split(", ").map(|kind| (kind.trim_matches('`'), code)));
    }
    all
}

#[test]
fn each_problem_has_the_code_of_the_tables() {
    for text in [include_str!("../../src/problem_status.rs"), include_str!("../../../../guides/grpc.md")] {
        let mut rows = rows(text);
        for kind in ProblemKind::ALL {
            assert_ne!(problem_code(kind), Code::Unknown, "{kind:?}");
            assert_eq!(rows.remove(kind.code()), Some(problem_code(kind)), "{kind:?}");
        }
        assert!(rows.is_empty(), "{rows:?}");
    }
}
