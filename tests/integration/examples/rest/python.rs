//! The HTTP client of Python's standard library, which reuses connections, sends chunks, and disconnects.
use std::process::{Command, Stdio};

use crate::rest::service::Service;

fn python(service: &Service, scenario: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/rest/client.py");
    let mut command = Command::new("python3");
    // Python uses only its standard library, and writes no files.
    command.args(["-I", "-B", script, service.address(), scenario]).stdin(Stdio::null());
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("`python3`: {error}: `cargo xtask setup` installs what the tests need"));
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stdout).trim(), format!("{scenario}: held"));
}

#[test]
fn one_connection_carries_the_first_answer_its_replays_and_its_problems() {
    python(&Service::start(), "one_connection");
}

#[test]
fn a_body_in_chunks_is_the_same_request_as_a_body_in_one_piece() {
    python(&Service::start(), "chunks");
}

#[test]
fn one_of_forty_threads_with_one_key_places_the_order() {
    python(&Service::start(), "threads");
}

#[test]
fn an_upload_that_is_broken_off_holds_no_key() {
    python(&Service::start(), "broken_upload");
}

#[test]
fn requests_in_a_pipeline_are_answered_in_their_order() {
    python(&Service::start(), "pipeline");
}
