//! Accepted keys, by method.
use crate::rest::client::curl;
use crate::rest::service::Service;

const TEA: &str = r#"{"sku":"tea","qty":2}"#;

#[test]
fn a_request_without_a_key_is_refused_with_a_link_to_the_documentation_of_keys() {
    let service = Service::start();
    let answer = service.post("/orders", &[], TEA);
    answer.is_problem(400, "missing-key");
    assert_eq!(answer.header("link"), Some(r#"</>; rel="describedby""#));
    assert_eq!(service.executions("tea"), 0);
}

#[test]
fn malformed_and_long_keys_are_refused_and_never_shown() {
    let service = Service::start();
    let long = format!("Idempotency-Key: {}", "x".repeat(256));
    for header in [
        "Idempotency-Key;",
        "Idempotency-Key: hunter2,b",
        "Idempotency-Key: hunter2 b",
        "Idempotency-Key: hunter2;b",
        "Idempotency-Key: hunter\u{e9}",
        "Idempotency-Key: \"hunter2",
        r#"Idempotency-Key: "hunter\2""#,
        "Idempotency-Key: \"\"",
        &long,
    ] {
        let answer = service.post("/orders", &[header], TEA);
        answer.is_problem(400, "invalid-key");
        assert!(!String::from_utf8_lossy(&answer.body).contains("hunter"), "{answer:?}");
    }
    assert_eq!(service.executions("tea"), 0);
}

/// A request for a missing resource needs no key.
#[test]
fn an_unknown_route_is_reported_as_such_and_needs_no_key() {
    let service = Service::start();
    assert_eq!(service.post("/nowhere", &[], TEA).status, 404);
    assert_eq!(service.post("/executions", &[], TEA).status, 405);
}

#[test]
fn a_key_that_comes_twice_is_refused_also_where_both_are_equal() {
    let service = Service::start();
    for second in ["Idempotency-Key: a", "Idempotency-Key: b"] {
        service.post("/orders", &["Idempotency-Key: a", second], TEA).is_problem(400, "invalid-key");
    }
    assert_eq!(service.executions("tea"), 0);
}

#[test]
fn a_key_is_the_same_key_bare_and_quoted() {
    let service = Service::start();
    let first = service.post("/orders", &["Idempotency-Key: 8e03978e"], TEA).ran();
    for header in ["Idempotency-Key: \"8e03978e\"", "idempotency-key:  \"8e03978e\";v=1 "] {
        service.post("/orders", &[header], TEA).replays(&first);
    }
    let longest = format!("Idempotency-Key: {}", "x".repeat(255));
    service.post("/orders", &[&longest], TEA).ran();
}

#[test]
fn a_patch_has_keys_of_its_own_and_a_get_passes_whatever_its_key() {
    let service = Service::start();
    let key = "Idempotency-Key: k1";
    let placed = service.post("/orders", &[key], TEA).ran();
    let patch = |path: &str| {
        curl(&[service.post_arguments(path, &[key], TEA), vec!["-X".to_owned(), "PATCH".to_owned()]].concat())
    };
    let patched = patch("/orders/17").ran();
    assert_eq!(patched.status, 200);
    assert_ne!(patched.order_id(), placed.order_id());
    patch("/orders/17").replays(&patched);
    // One route, one set of keys: another path is another request.
    patch("/orders/18").is_problem(422, "key-reused");
    let get = [&format!("{}/executions?sku=tea", service.url()), "--header", "Idempotency-Key: a,b"];
    assert_eq!(curl(&get.map(str::to_owned)).json()["count"], 2);
}
