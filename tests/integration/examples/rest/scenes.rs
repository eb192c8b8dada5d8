//! Requests without an `Idempotency-Key`: tokens, and requests with equal parameters.
use crate::rest::client::{Answer, ask, curl};
use crate::rest::service::Service;
use crate::wait::until;

const TEA: &str = r#"{"sku":"tea","qty":2}"#;

fn token(service: &Service, user: &str) -> String {
    let arguments = [&format!("{}/token", service.url()), "--header", &format!("X-User: {user}")];
    let answer = curl(&arguments.map(str::to_owned));
    assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")));
    answer.json()["token"].as_str().unwrap().to_owned()
}

fn submit(service: &Service, user: &str, token: &str, body: &str) -> Answer {
    service.post("/submit", &[&format!("X-User: {user}"), &format!("X-Idempotent-Token: {token}")], body)
}

#[test]
fn a_token_is_good_for_one_order() {
    let service = Service::start();
    let spent = token(&service, "anna");
    // 192 bits.
    assert_eq!(spent.len(), 32);
    submit(&service, "anna", &spent, TEA).ran();
    submit(&service, "anna", &spent, TEA).is_problem(409, "duplicate-request");
    submit(&service, "anna", &spent, r#"{"sku":"tea","qty":3}"#).is_problem(409, "duplicate-request");
    service.post("/submit", &["X-User: anna"], TEA).is_problem(400, "missing-token");
    assert_eq!(service.executions("tea"), 1);
    let fresh = token(&service, "anna");
    assert_ne!(fresh, spent);
    submit(&service, "anna", &fresh, TEA).ran();
}

#[test]
fn a_foreign_token_is_as_unknown_as_one_made_up() {
    let service = Service::start();
    let annas = token(&service, "anna");
    let foreign = submit(&service, "ben", &annas, TEA);
    let made_up = submit(&service, "ben", &"x".repeat(32), TEA);
    assert_eq!(foreign.is_problem(409, "unknown-token"), made_up.is_problem(409, "unknown-token"));
    assert_eq!(service.executions("tea"), 0);
    submit(&service, "anna", &annas, TEA).ran();
}

#[test]
fn a_failure_gives_the_token_back() {
    let service = Service::start();
    let token = token(&service, "anna");
    let body = r#"{"sku":"tea","qty":2,"fail":"500","fail_times":1}"#;
    assert_eq!(submit(&service, "anna", &token, body).status, 500);
    submit(&service, "anna", &token, body).ran();
    submit(&service, "anna", &token, body).is_problem(409, "duplicate-request");
}

#[test]
fn equal_orders_are_one_while_the_first_runs_and_for_the_window_after_it() {
    let service = Service::with(&["--store", "memory", "--param-window", "60s"]);
    let slow = r#"{"sku":"slow","qty":2,"delay_ms":1000}"#;
    let running = ask(&service.post_arguments("/param", &[], slow));
    until("it runs", || service.executions("slow") == 1);
    let told = service.post("/param", &[], slow);
    assert_eq!(told.status, 409, "{told:?}");
    running.answer().ran();
    let told = service.post("/param", &[], slow);
    let problem = told.is_problem(409, "duplicate-request");
    assert_eq!(problem["detail"], "The same order was placed a moment ago.");
    assert!((1..=60).contains(&told.retry_after()));
    assert_eq!(service.executions("slow"), 1);
    // Another order, and another caller's.
    service.post("/param", &[], TEA).ran();
    service.post("/param", &["X-User: anna"], TEA).ran();
    assert_eq!(service.executions("tea"), 2);
}

#[test]
fn after_the_window_an_equal_order_is_another_and_a_failure_needs_no_window() {
    let service = Service::with(&["--store", "memory", "--param-window", "50ms"]);
    service.post("/param", &[], TEA).ran();
    until("the window is over", || service.post("/param", &[], TEA).status == 201);
    assert_eq!(service.executions("tea"), 2);
    let failing = r#"{"sku":"fail","qty":2,"fail":"500","fail_times":1}"#;
    let service = Service::with(&["--store", "memory", "--param-window", "1h"]);
    assert_eq!(service.post("/param", &[], failing).status, 500);
    service.post("/param", &[], failing).ran();
    service.post("/param", &[], failing).is_problem(409, "duplicate-request");
}
