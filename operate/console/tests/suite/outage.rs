//! Targets that do not answer.
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::StatusCode;
use idempotent::MemoryStore;
use idempotent::mq::DeadLetters;
use idempotent_console::Role;
use idempotent_testkit::{FaultStore, StoreOperation, VirtualClock};

use crate::site::{Site, request, send, store};

#[tokio::test]
async fn a_queue_that_cannot_be_opened_is_an_error_in_its_panel() {
    let open = || async { Err::<Box<dyn DeadLetters>, _>("amqp://localhost: connection refused") };
    let site = Site::for_role(Role::Admin, store(1, 0).await, |builder| builder.queue("payments", open)).await;
    let answer = site.get("", "/dead-letters?queue=payments&read=1").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(answer.body.contains("Not available") && answer.body.contains("connection refused"), "{}", answer.body);
    assert!(!answer.body.contains("<strong>0</strong>"), "an unknown count is not zero");
    let site_ok = site.get("", "/dead-letters?queue=orders").await;
    assert!(!site_ok.body.contains("Not available"));
}

#[tokio::test(start_paused = true)]
async fn a_target_that_does_not_answer_is_an_error_in_its_panel_and_the_others_are_shown() {
    let open = || std::future::pending::<Result<Box<dyn DeadLetters>, String>>();
    let site = Site::for_role(Role::Admin, store(1, 0).await, |builder| builder.queue("payments", open)).await;
    let answer = site.get("", "/dead-letters?queue=payments&read=1").await;
    assert!(answer.status == StatusCode::OK && answer.body.contains("no answer within 15 s"), "{}", answer.body);
    let overview = site.get("", "/overview").await;
    assert_eq!(overview.status, StatusCode::OK);
    assert!(
        overview.body.contains(">unknown</a>") && overview.body.contains("no answer within 2 s"),
        "{}",
        overview.body
    );
}

/// Requests `/readyz` by a hundred anonymous callers at once, and returns their statuses.
fn anonymous(site: &Site) -> tokio::task::JoinSet<StatusCode> {
    let caller = |_| {
        let (router, ready) = (site.router.clone(), request("GET", "", "/readyz").body(Body::empty()).unwrap());
        async move { send(&router, ready).await.status }
    };
    (0..100).map(caller).collect()
}

fn readings(store: &FaultStore) -> usize {
    store.log().iter().filter(|call| call.verb == StoreOperation::Line).count()
}

#[tokio::test(start_paused = true)]
async fn anonymous_callers_of_a_store_that_hangs_hold_no_permit_of_a_page_and_ask_once() {
    let store = FaultStore::new(MemoryStore::new(), &VirtualClock::new());
    store.hang(StoreOperation::Line, u32::MAX);
    let site = Site::for_role(Role::Admin, Arc::new(store.clone()), |builder| builder).await;
    let callers = anonymous(&site);
    while readings(&store) == 0 {
        tokio::task::yield_now().await;
    }
    for page in ["/keys", "/overview", "/health"] {
        assert_eq!(site.get("", page).await.status, StatusCode::OK, "{page}");
    }
    let answers = callers.join_all().await;
    assert!(answers.len() == 100 && answers.iter().all(|status| *status == StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(readings(&store), 1, "one answer for all callers");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_is_ready_for_all_callers_and_asked_once_a_second() {
    let store = FaultStore::new(MemoryStore::new(), &VirtualClock::new());
    let site = Site::for_role(Role::Admin, Arc::new(store.clone()), |builder| builder).await;
    for second in 1..=3 {
        for _ in 0..20 {
            assert!(anonymous(&site).join_all().await.iter().all(|status| *status == StatusCode::OK));
        }
        assert_eq!(readings(&store), second);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_that_wait_for_their_queue_hold_no_permit_of_its_page() {
    let open = || std::future::pending::<Result<Box<dyn DeadLetters>, String>>();
    let site = Site::for_role(Role::Admin, store(1, 0).await, |builder| builder.queue("payments", open)).await;
    let token = site.token("").await;
    for _ in 0..20 {
        let fields = [("token", token.as_str()), ("target", "payments"), ("action", "redrive"), ("entry", "m-1")];
        let plan = site.post("", "/plan", &fields).await;
        let applied = site.try_apply("", &plan, &[("reason", "why")]).await;
        assert_eq!(applied.status, StatusCode::SEE_OTHER, "{}", applied.body);
        tokio::task::yield_now().await;
    }
    assert_eq!(site.get("", "/dead-letters?queue=payments").await.status, StatusCode::OK);
}
