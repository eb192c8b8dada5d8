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

/// Broken uploads hold no key, and a body in chunks is the same request as a body in one piece.
#[test]
fn each_scenario_of_the_client_holds() {
    for scenario in ["one_connection", "chunks", "threads", "broken_upload", "pipeline"] {
        python(&Service::start(), scenario);
    }
}
