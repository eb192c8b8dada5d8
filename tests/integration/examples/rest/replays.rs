//! Responses to duplicates.
use crate::rest::client::{ask, curl};
use crate::rest::service::Service;
use crate::wait::until;

const TEA: &str = r#"{"sku":"tea","qty":2}"#;

#[test]
fn a_duplicate_gets_the_first_answer_byte_for_byte_and_nothing_runs() {
    let service = Service::start();
    let body = r#"{"sku":"tea","qty":2,"cookie":true}"#;
    let first = service.post("/orders", &["Idempotency-Key: k1"], body).ran();
    assert_eq!(first.status, 201);
    assert_eq!(first.header("location"), Some(format!("/orders/{}", first.order_id()).as_str()));
    assert!(first.header("set-cookie").is_some());
    for _ in 0..3 {
        let again = service.post("/orders", &["Idempotency-Key: k1"], body);
        again.replays(&first);
        assert_eq!(again.header("set-cookie"), None);
    }
    assert_eq!(service.executions("tea"), 1);
    // The handler's order of names, and another order for another key.
    assert!(String::from_utf8_lossy(&first.body).starts_with(r#"{"order_id":""#));
    let other = service.post("/orders", &["Idempotency-Key: k2"], body).ran();
    assert_ne!(other.order_id(), first.order_id());
    assert_eq!(service.executions("tea"), 2);
}

#[test]
fn an_annotated_handler_keeps_the_same_promise() {
    let service = Service::start();
    let first = service.post("/charges", &["Idempotency-Key: k1"], TEA).ran();
    service.post("/charges", &["Idempotency-Key: k1"], TEA).replays(&first);
    service.post("/charges", &["Idempotency-Key: k1"], r#"{"sku":"tea","qty":3}"#).is_problem(422, "key-reused");
    service.post("/charges", &["Idempotency-Key: k1", "X-User: other"], TEA).ran();
    service.post("/charges", &[], TEA).is_problem(400, "missing-key");
    // Another handler, another record.
    service.post("/orders", &["Idempotency-Key: k1"], TEA).ran();
    assert_eq!(service.executions("tea"), 3);
}

/// Runs until its process ends.
const LONG: &str = r#"{"sku":"long","qty":1,"delay_ms":3600000}"#;

#[test]
fn a_duplicate_of_an_active_run_receives_a_retry_delay() {
    let service = Service::start();
    let running = ask(&service.post_arguments("/orders", &["Idempotency-Key: k1"], LONG));
    until("it runs", || service.executions("long") == 1);
    for _ in 0..3 {
        let told = service.post("/orders", &["Idempotency-Key: k1"], LONG);
        assert_eq!(told.is_problem(409, "in-flight")["retryable"], true);
        assert!(told.retry_after() <= 30);
    }
    assert_eq!(service.executions("long"), 1);
    running.leave();
}

#[test]
fn another_order_under_the_same_key_is_refused_also_while_the_first_runs() {
    let service = Service::start();
    let running = ask(&service.post_arguments("/orders", &["Idempotency-Key: k1"], LONG));
    until("it runs", || service.executions("long") == 1);
    let problem = service.post("/orders", &["Idempotency-Key: k1"], TEA).is_problem(422, "key-reused");
    assert_eq!(problem["retryable"], false);
    running.leave();
    service.post("/orders", &["Idempotency-Key: k2"], TEA).ran();
    service.post("/orders", &["Idempotency-Key: k2"], r#"{"sku":"tea","qty":3}"#).is_problem(422, "key-reused");
    assert_eq!(service.executions("tea"), 1);
}

#[test]
fn in_wait_mode_a_duplicate_waits_for_the_answer() {
    let service = Service::with(&["--store", "memory", "--wait", "60s"]);
    let slow = r#"{"sku":"slow","qty":1,"delay_ms":500}"#;
    let all: Vec<_> = (0..5).map(|_| ask(&service.post_arguments("/orders", &["Idempotency-Key: k1"], slow))).collect();
    let answers: Vec<_> = all.into_iter().map(|asking| asking.answer()).collect();
    let (first, others): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| !answer.is_replay());
    assert_eq!((first.len(), others.len()), (1, 4));
    others.iter().for_each(|answer| answer.replays(first[0]));
    assert_eq!(service.executions("slow"), 1);
}

#[test]
fn a_client_that_goes_away_does_not_stop_its_order() {
    let service = Service::start();
    let slow = r#"{"sku":"slow","qty":1,"delay_ms":300}"#;
    let running = ask(&service.post_arguments("/orders", &["Idempotency-Key: k1"], slow));
    until("it runs", || service.executions("slow") == 1);
    running.leave();
    until("a replay", || service.post("/orders", &["Idempotency-Key: k1"], slow).is_replay());
    assert_eq!(service.executions("slow"), 1);
}

#[test]
fn a_request_of_another_caller_with_the_same_key_is_another_request() {
    let service = Service::start();
    let as_user = |who: &str| service.post("/orders", &["Idempotency-Key: k1", who], TEA);
    let first = as_user("X-User: anna").ran();
    let others = [as_user("X-User: ben").ran(), as_user("X-Other: none").ran()];
    assert!(others.iter().all(|other| other.order_id() != first.order_id()));
    // The same subject in different headers, with a scheme in any case.
    for who in ["X-User: anna", "Authorization: Bearer anna", "Authorization: bearer anna"] {
        as_user(who).replays(&first);
    }
    // Who is not understood is not everybody.
    for who in ["X-User;", "Authorization: Bearer ", "Authorization: Basic YTpi"] {
        assert_eq!(as_user(who).status, 401, "{who}");
    }
    assert_eq!(service.executions("tea"), 3);
}

#[test]
fn a_route_with_an_optional_key_runs_each_time_without_one() {
    let service = Service::start();
    let first = service.post("/optional", &[], TEA).ran();
    assert_ne!(service.post("/optional", &[], TEA).ran().order_id(), first.order_id());
    let keyed = service.post("/optional", &["Idempotency-Key: k1"], TEA).ran();
    service.post("/optional", &["Idempotency-Key: k1"], TEA).replays(&keyed);
    // Never silently unprotected.
    service.post("/optional", &["Idempotency-Key: a,b"], TEA).is_problem(400, "invalid-key");
    assert_eq!(service.executions("tea"), 3);
}

#[test]
fn bytes_come_back_as_they_went_in() {
    let service = Service::start();
    let folder = tempfile::tempdir().unwrap();
    let send = |bytes: &[u8], key: &str| {
        let file = folder.path().join("blob");
        std::fs::write(&file, bytes).unwrap();
        let arguments = [&format!("{}/blob", service.url()), "--data-binary", &format!("@{}", file.display())];
        let key = ["--header", &format!("Idempotency-Key: {key}")].map(str::to_owned);
        curl(&[&arguments.map(str::to_owned)[..], &key].concat())
    };
    let all: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let first = send(&all, "all").ran();
    assert_eq!(first.body, all);
    send(&all, "all").replays(&first);
    // More than is kept of an answer: a duplicate learns that it is done.
    let large = vec![0xff; (1 << 20) + 1];
    assert_eq!(send(&large, "large").ran().body, large);
    send(&large, "large").is_problem(409, "response-not-retained");
    assert_eq!(service.executions("blob"), 2);
    // More than is taken of a request.
    send(&vec![0; (2 << 20) + 1], "too-large").is_problem(413, "body-too-large");
    assert_eq!(service.executions("blob"), 2);
}

#[test]
fn over_http_2_it_is_the_same_request() {
    let service = Service::start();
    let first = service.post("/orders", &["Idempotency-Key: k1"], TEA).ran();
    let http2 = ["--http2-prior-knowledge".to_owned()];
    let arguments = service.post_arguments("/orders", &["Idempotency-Key: k1"], TEA);
    curl(&[&arguments[..], &http2].concat()).replays(&first);
    let arguments = service.post_arguments("/orders", &["Idempotency-Key: k1"], r#"{"sku":"tea","qty":3}"#);
    curl(&[&arguments[..], &http2].concat()).is_problem(422, "key-reused");
    assert_eq!(service.executions("tea"), 1);
}

#[test]
fn the_numbers_of_a_key_are_its_callers() {
    let service = Service::start();
    let numbers = |user: &str| {
        let url = format!("{}/numbers", service.url());
        let headers = ["--header", "Idempotency-Key: k1", "--header", user].map(str::to_owned);
        let told = curl(&[&[url][..], &headers].concat()).json();
        ["executions", "replays", "conflicts", "mismatches"].map(|name| told[name].as_u64().unwrap())
    };
    let (anna, ben) = ("X-User: anna", "X-User: ben");
    assert_eq!(numbers(anna), [0; 4]);
    for body in [TEA, TEA, TEA, r#"{"sku":"tea","qty":3}"#] {
        service.post("/orders", &["Idempotency-Key: k1", anna], body);
    }
    assert_eq!((numbers(anna), numbers(ben)), ([1, 2, 0, 1], [0; 4]));
    let running = ask(&service.post_arguments("/orders", &["Idempotency-Key: k1", ben], LONG));
    until("it runs", || service.executions("long") == 1);
    service.post("/orders", &["Idempotency-Key: k1", ben], LONG).is_problem(409, "in-flight");
    assert_eq!(numbers(ben), [1, 0, 1, 0]);
    running.leave();
}
