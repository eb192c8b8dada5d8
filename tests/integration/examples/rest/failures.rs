//! Failures, and their records.
use crate::rest::service::Service;
use crate::wait::until;

#[test]
fn a_failure_frees_the_key_and_a_retry_runs() {
    let service = Service::start();
    for (sku, fail, status) in [("five", "500", 500), ("four", "400", 400), ("panic", "panic", 500)] {
        let key = format!("Idempotency-Key: {sku}");
        let body = format!(r#"{{"sku":"{sku}","qty":1,"fail":"{fail}","fail_times":2}}"#);
        for _ in 0..2 {
            let failed = service.post("/orders", &[&key], &body);
            assert_eq!((failed.status, failed.is_replay()), (status, false));
            if fail == "panic" {
                failed.is_problem(500, "handler-panicked");
            }
        }
        let placed = service.post("/orders", &[&key], &body).ran();
        service.post("/orders", &[&key], &body).replays(&placed);
        assert_eq!(service.executions(sku), 3, "{sku}");
    }
}

#[test]
fn a_body_that_is_no_order_holds_no_key() {
    let service = Service::start();
    for body in ["", "{", r#"{"sku":"tea"}"#, r#"{"sku":"tea","qty":1,"fail":"never"}"#] {
        let answer = service.post("/orders", &["Idempotency-Key: k1"], body);
        assert!((400..500).contains(&answer.status) && answer.status != 409, "{answer:?}");
    }
    service.post("/orders", &["Idempotency-Key: k1"], r#"{"sku":"tea","qty":1}"#).ran();
    assert_eq!(service.executions("tea"), 1);
}

#[test]
fn an_answer_that_the_handler_compressed_is_replayed_as_it_was() {
    let service = Service::start();
    let body = r#"{"sku":"gzip","qty":1,"gzip":true}"#;
    let first = service.post("/orders", &["Idempotency-Key: k1"], body).ran();
    assert_eq!(first.header("content-encoding"), Some("gzip"));
    assert_eq!(first.body[..2], [0x1f, 0x8b]);
    service.post("/orders", &["Idempotency-Key: k1"], body).replays(&first);
}

#[test]
fn answers_are_kept_for_as_long_as_was_said() {
    let service = Service::with(&["--store", "memory", "--ttl", "200ms"]);
    let body = r#"{"sku":"tea","qty":1}"#;
    let first = service.post("/orders", &["Idempotency-Key: k1"], body).ran();
    until("its record is gone", || {
        let answer = service.post("/orders", &["Idempotency-Key: k1"], body);
        answer.order_id() != first.order_id()
    });
    assert_eq!(service.executions("tea"), 2);
}
