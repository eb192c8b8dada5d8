//! The shutdown of the service, and its next start.
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use crate::rest::client::ask;
use crate::rest::service::Service;
use crate::wait::until;

const KEY: &[&str] = &["Idempotency-Key: k1"];
const TEA: &str = r#"{"sku":"tea","qty":2}"#;

#[test]
fn a_stopped_service_refuses_connections_answers_open_requests_and_exits_with_0() {
    for signal in ["TERM", "INT"] {
        let service = Service::start();
        // Connections that say nothing, or nothing more, do not hold it up.
        let idle = TcpStream::connect(service.address()).unwrap();
        let mut kept = TcpStream::connect(service.address()).unwrap();
        kept.write_all(b"GET /executions?sku=tea HTTP/1.1\r\nHost: demo\r\n\r\n").unwrap();
        assert_eq!(BufReader::new(&kept).lines().next().unwrap().unwrap(), "HTTP/1.1 200 OK");
        let running = ask(&service.post_arguments("/orders", KEY, r#"{"sku":"slow","qty":1,"delay_ms":1500}"#));
        until("it runs", || service.executions("slow") == 1);
        service.signal(signal);
        until("nobody listens", || TcpStream::connect(service.address()).is_err());
        running.answer().ran();
        let ended = service.ended();
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), ""), "{}", ended.stderr);
        drop((idle, kept));
    }
}

#[test]
fn a_second_stop_signal_ends_the_service_at_once_with_a_message() {
    let service = Service::start();
    let running = ask(&service.post_arguments("/orders", KEY, r#"{"sku":"long","qty":1,"delay_ms":3600000}"#));
    until("it runs", || service.executions("long") == 1);
    service.signal("TERM");
    until("nobody listens", || TcpStream::connect(service.address()).is_err());
    service.signal("TERM");
    let ended = service.ended();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("second signal"), "{}", ended.stderr);
    assert!(running.try_answer().is_err());
}

#[test]
fn an_order_with_a_disconnected_client_is_placed_before_the_end_and_replayed_by_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    let on = ["--store", store.to_str().unwrap()];
    let slow = r#"{"sku":"slow","qty":1,"delay_ms":700}"#;
    let service = Service::with(&on);
    let running = ask(&service.post_arguments("/orders", KEY, slow));
    until("it runs", || service.executions("slow") == 1);
    running.leave();
    assert_eq!(service.terminate().status.code(), Some(0));
    let next = Service::with(&on);
    assert!(next.post("/orders", KEY, slow).is_replay());
    assert_eq!(next.executions("slow"), 0);
}

#[test]
fn a_file_keeps_answers_and_tokens_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    let on = ["--store", store.to_str().unwrap()];
    let service = Service::with(&on);
    let first = service.post("/orders", KEY, TEA).ran();
    let charged = service.post("/charges", KEY, TEA).ran();
    let token = service.get("/token").json()["token"].as_str().unwrap().to_owned();
    let token = format!("X-Idempotent-Token: {token}");
    assert_eq!(service.terminate().status.code(), Some(0));

    let service = Service::with(&on);
    service.post("/orders", KEY, TEA).replays(&first);
    service.post("/charges", KEY, TEA).replays(&charged);
    assert_eq!(service.executions("tea"), 0);
    service.post("/submit", &[&token], TEA).ran();
    service.kill();

    let service = Service::with(&on);
    service.post("/orders", KEY, TEA).replays(&first);
    service.post("/submit", &[&token], TEA).is_problem(409, "duplicate-request");
}

#[test]
fn after_a_kill_in_the_handler_a_retry_runs_when_the_lease_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store.db");
    let on = ["--store", store.to_str().unwrap(), "--lease", "1s"];
    let service = Service::with(&on);
    let running = ask(&service.post_arguments("/orders", KEY, r#"{"sku":"slow","qty":1,"delay_ms":3600000}"#));
    until("it runs", || service.executions("slow") == 1);
    service.kill();
    assert!(running.try_answer().is_err());

    let service = Service::with(&on);
    // The same request would be as slow again: what is asked here is whether it runs.
    let mut again = Vec::new();
    until("it runs again", || {
        again.push(ask(&service.post_arguments("/orders", KEY, r#"{"sku":"slow","qty":1,"delay_ms":3600000}"#)));
        service.executions("slow") == 1
    });
    again.into_iter().for_each(|asking| asking.leave());
    assert_eq!(service.executions("slow"), 1);
}
