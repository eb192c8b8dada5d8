//! The command line.
use std::net::TcpListener;

use crate::rest::service::{Service, command};

fn refused(arguments: &[&str]) -> String {
    let output = command(arguments).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn invalid_settings_are_refused_before_the_service_listens() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (arguments, told) in [
        (&["--store", ""][..], "--store is empty"),
        (&["--store", "redsi://127.0.0.1"], "redsi"),
        (&["--store", "memory", "--listen", &taken], "in use"),
        (&["--store", "memory", "--listen", "nowhere"], "nowhere"),
        (&["--store", "memory", "--ttl", "1s", "--lease", "5s"], "lease"),
        (&["--store", "memory", "--lease", "0s"], "lease"),
        (&["--lease", "soon"], "--lease"),
        (&["--leese", "5s"], "--lease"),
    ] {
        let stderr = refused(arguments);
        assert!(stderr.contains(told), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_password_of_the_store_is_not_shown() {
    let stderr = refused(&["--store", "redis://:hunter2@127.0.0.1:1"]);
    assert!(!stderr.contains("hunter2"), "{stderr}");
}

#[test]
fn the_service_prints_its_address_and_no_requests() {
    let service = Service::start();
    assert!(service.address().starts_with("127.0.0.1:") && !service.address().ends_with(":0"));
    for body in [r#"{"sku":"hunter2","qty":2}"#, r#"{"sku":"hunter2","qty":3}"#, "hunter2"] {
        service.post("/orders", &["Idempotency-Key: hunter2", "X-User: hunter2"], body);
    }
    let ended = service.terminate();
    assert_eq!(ended.stdout, "");
    assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
}
