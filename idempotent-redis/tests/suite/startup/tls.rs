//! TLS, and errors for a mix of TLS and plain connections.
use idempotent_core::StoreErrorKind::{NotApplied, Schema};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::RedisStore;

use crate::startup::{cycle, quick, said};

#[tokio::test]
async fn a_tls_server_is_verified_with_the_given_authority() {
    let server = RedisServer::builder().password("hunter2").tls().start();
    let store = quick(server.url()).ca_file(server.certificates().ca()).connect().await.unwrap();
    cycle(&store, "tls").await.unwrap();
    let pem = std::fs::read(server.certificates().ca()).unwrap();
    let by_name = server.url().replace("127.0.0.1", "localhost");
    let store = quick(by_name).ca_pem(pem).connect().await.unwrap();
    cycle(&store, "by name").await.unwrap();
}

#[tokio::test]
async fn a_client_of_the_service_connects_a_store_and_a_delay_queue_with_its_authority_and_password() {
    let server = RedisServer::builder().password("hunter2").tls().start();
    let ca = std::fs::read(server.certificates().ca()).unwrap();
    let certificates = redis::TlsCertificates { client_tls: None, root_cert: Some(ca.clone()) };
    let client = redis::Client::build_with_tls(format!("{}/2", server.url()), certificates).unwrap();
    let store = RedisStore::on_client(client.clone()).connect().await.unwrap();
    cycle(&store, "own").await.unwrap();
    assert!(server.info("db2").contains("keys="));
    let queue = idempotent_mq::Server::on_client(client.clone());
    idempotent_redis::DelayQueue::connect(queue, "orders").await.unwrap();
    let twice = RedisStore::on_client(client).ca_pem(ca).connect().await;
    said(twice, Schema, &["certificates are given beside a client"]);
}

#[tokio::test]
async fn a_required_client_certificate_is_sent_or_requested_in_the_error() {
    let server = RedisServer::builder().mutual_tls().start();
    let files = server.certificates();
    let open = || quick(server.url()).ca_file(files.ca());
    let store = open().client_certificate(files.client_certificate(), files.client_key()).connect().await.unwrap();
    cycle(&store, "mutual").await.unwrap();
    said(open().connect().await, NotApplied, &[&server.address(), "client_certificate"]);
}

#[tokio::test]
async fn a_plain_url_for_a_tls_port_gets_a_remedy() {
    for server in [RedisServer::builder().tls().start(), RedisServer::builder().mutual_tls().start()] {
        let plain = server.url().replace("rediss://", "redis://u:hunter2@");
        said(RedisStore::connect(plain).await, NotApplied, &["this looks like TLS; use rediss://", &server.address()]);
    }
}

#[tokio::test]
async fn a_tls_url_for_a_plain_port_gets_a_remedy() {
    let server = RedisServer::start();
    let url = server.url().replace("redis://", "rediss://:hunter2@");
    said(RedisStore::connect(url).await, NotApplied, &["does not look like TLS", "redis://"]);
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_rejected_with_a_remedy() {
    let server = RedisServer::builder().password("hunter2").tls().start();
    let commands = || server.info("total_commands_processed").parse::<i64>().unwrap();
    let (first, second) = (commands(), commands());
    let unknown = ["invalid peer certificate", "UnknownIssuer", "ca_file", &server.address()];
    said(RedisStore::connect(server.url()).await, NotApplied, &unknown);
    let other = quick(server.url()).ca_file(server.certificates().other_ca()).connect().await;
    said(other, NotApplied, &["invalid peer certificate", "ca_file"]);
    // No command was sent before the certificate was verified.
    assert_eq!(commands() - second, second - first);
}

#[tokio::test]
async fn unusable_certificates_are_named() {
    let folder = RedisServer::builder().tls().start();
    let files = folder.certificates();
    let open = |url: &str| quick(url.to_owned());
    let missing = open("rediss://127.0.0.1:1").ca_file("no/such/ca.pem").connect().await;
    said(missing, Schema, &["cannot read the CA certificate no/such/ca.pem"]);
    let empty = open("rediss://127.0.0.1:1").ca_pem("no certificate found").connect().await;
    said(empty, Schema, &["no certificate found"]);
    let plain = open("redis://127.0.0.1:1").ca_file(files.ca()).connect().await;
    said(plain, Schema, &["certificates are given", "rediss://"]);
    let swapped = open(&folder.url()).client_certificate(files.client_certificate(), files.ca()).connect().await;
    said(swapped, Schema, &["private key"]);
}
