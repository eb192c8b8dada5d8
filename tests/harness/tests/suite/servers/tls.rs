use std::path::Path;
use std::process::{Command, Output};

use idempotent_harness::servers::RedisServer;

fn ping(server: &RedisServer, ca: &Path, with_certificate: bool) -> Output {
    let files = server.certificates();
    let mut cli = Command::new("redis-cli");
    cli.args(["-p", &server.port().to_string(), "--tls", "--cacert"]).arg(ca);
    if with_certificate {
        cli.arg("--cert").arg(files.client_certificate()).arg("--key").arg(files.client_key());
    }
    cli.arg("PING").output().unwrap()
}

fn answered(output: &Output) -> bool {
    output.status.success() && output.stdout == b"PONG\n"
}

#[test]
fn with_tls_only_a_client_with_the_right_authority_gets_an_answer() {
    let server = RedisServer::builder().tls().start();
    assert!(server.url().starts_with("rediss://127.0.0.1:"));
    assert_eq!((server.cli(&["PING"]), server.command(&["PING"]).text()), ("PONG".to_owned(), "PONG".to_owned()));
    let files = server.certificates();
    assert!(answered(&ping(&server, &files.ca(), false)));
    let stranger = ping(&server, &files.other_ca(), false);
    assert!(!answered(&stranger));
    assert!(String::from_utf8_lossy(&stranger.stderr).contains("certificate verify failed"), "{stranger:?}");
    let plain = Command::new("redis-cli").args(["-p", &server.port().to_string(), "PING"]).output().unwrap();
    assert!(!answered(&plain));
}

#[test]
fn with_mutual_tls_only_a_client_with_a_certificate_gets_an_answer() {
    let server = RedisServer::builder().mutual_tls().start();
    let ca = server.certificates().ca();
    assert!(answered(&ping(&server, &ca, true)));
    assert!(!answered(&ping(&server, &ca, false)));
}
