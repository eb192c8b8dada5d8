//! Users and TLS: who is accepted, and the remedy for all others.
mod accounts;

use std::path::PathBuf;

use async_nats::ConnectOptions;
use idempotent_core::StoreErrorKind;
use idempotent_harness::servers::NatsServer;
use idempotent_mq::{OutboundMessage, PublishErrorKind, Redrive, SourceError, SourceErrorKind};
use idempotent_nats::{JetStreamDeadLetters, JetStreamPublisher, JetStreamSource, KvBackend, Server};
use nkeys::KeyPair;
use tempfile::TempDir;

use self::accounts::Operator;
use crate::publisher::publish;

const CHECK: &str = "check the user and the password in the URL, the token, the NKey, or the credentials file";

/// Declares the stream and its consumer.
async fn opened(url: impl Into<Server>) -> Result<(), SourceError> {
    let builder = JetStreamSource::builder(url, "ORDERS", "billing").declare(["orders.>"]);
    builder.connect().await.map(drop)
}

/// Checks that a permanent error contains a text.
#[track_caller]
fn refused(opened: Result<(), SourceError>, part: &str) {
    let error = opened.unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains(part), "{error}");
}

/// Writes a file, and returns its path.
fn file(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test]
async fn a_user_with_the_right_password_is_accepted_and_no_error_shows_a_wrong_one() {
    let server = NatsServer::with(r#"authorization { user: ann, password: "ses@me" }"#);
    let address = server.address();
    for url in [format!("nats://{address}"), format!("nats://ann:hush@{address}")] {
        let error = opened(&*url).await.unwrap_err();
        assert!(!format!("{error:?}").contains("hush"), "{error:?}");
        refused(Err(error), CHECK);
    }
    opened(format!("nats://ann:ses%40me@{address}")).await.unwrap();
}

#[tokio::test]
async fn the_options_of_other_clients_connect_a_source_a_publisher_the_dead_letters_and_a_bucket() {
    let server = NatsServer::with(r#"authorization { user: ann, password: "hush" }"#);
    let ann = ConnectOptions::with_user_and_password("ann".into(), "hush".into()).name("shop");
    let client = (ann, vec![server.url().parse().unwrap()]);
    let own = || Server::on_client(client.clone());
    opened(own()).await.unwrap();
    publish(&JetStreamPublisher::new(own()), OutboundMessage::new("orders.new", "m", "")).await.unwrap();
    let redriven = Redrive::new().run(&mut JetStreamDeadLetters::new(own(), "ORDERS")).await;
    assert!(redriven.failed.is_none(), "{redriven:?}");
    KvBackend::create(own(), "idempotent", 1).await.unwrap();
    assert!(!format!("{:?}", own()).contains("hush"));
}

#[tokio::test]
async fn the_publisher_and_the_bucket_of_a_rejected_user_fail_with_the_same_remedy() {
    let server = NatsServer::with(r#"authorization { token: "ses@me" }"#);
    let address = server.address();
    opened(format!("nats://ses%40me@{address}")).await.unwrap();
    let wrong = format!("nats://hush@{address}");
    refused(opened(&*wrong).await, CHECK);
    let message = OutboundMessage::new("orders.new", "m", "");
    let error = publish(&JetStreamPublisher::new(&*wrong), message).await.unwrap_err();
    assert!(error.kind() == PublishErrorKind::Refused && error.to_string().contains(CHECK), "{error}");
    let error = KvBackend::open(&*wrong, "idempotent").await.map(drop).unwrap_err();
    assert!(error.kind() == StoreErrorKind::Schema && error.to_string().contains(CHECK), "{error}");
}

#[tokio::test]
async fn an_nkey_is_accepted_and_another_one_refused() {
    let (known, other, folder) = (KeyPair::new_user(), KeyPair::new_user(), tempfile::tempdir().unwrap());
    let server = NatsServer::with(&format!("authorization {{ users: [ {{ nkey: {} }} ] }}", known.public_key()));
    let with = |path: PathBuf| format!("{}?nkey={}", server.url(), path.display());
    let seed = format!("{}\n{}\n", known.seed().unwrap(), known.public_key());
    opened(with(file(&folder, "known.nk", &seed))).await.unwrap();
    refused(opened(with(file(&folder, "other.nk", &other.seed().unwrap()))).await, CHECK);
    refused(opened(server.url()).await, CHECK);
    refused(opened(with(file(&folder, "damaged.nk", "SUABC"))).await, CHECK);
    for missing in [file(&folder, "public.nk", &known.public_key()), folder.path().join("missing.nk")] {
        refused(opened(with(missing)).await, "of a seed that `nk -gen user` wrote");
    }
}

#[tokio::test]
async fn a_credentials_file_is_accepted_and_one_of_another_operator_refused() {
    let (operator, folder) = (Operator::new(), tempfile::tempdir().unwrap());
    let server = NatsServer::with(&operator.settings());
    let with = |path: PathBuf| format!("{}?credentials={}", server.url(), path.display());
    opened(with(file(&folder, "billing.creds", &operator.credentials()))).await.unwrap();
    refused(opened(with(file(&folder, "other.creds", &Operator::new().credentials()))).await, CHECK);
    refused(opened(server.url()).await, CHECK);
    let damaged = operator.credentials().replace("NKEY SEED-----\nSU", "NKEY SEED-----\nXX");
    for text in ["", "no credentials", &damaged] {
        refused(opened(with(file(&folder, "damaged.creds", text))).await, "`nsc generate creds`");
    }
}

#[tokio::test]
async fn a_user_without_the_rights_of_jetstream_gets_the_names_of_the_subjects() {
    let rights = r#"users: [ { user: ann, password: ann, permissions: { publish: { deny: "$JS.API.>" } } } ]"#;
    let server = NatsServer::with(&format!("authorization {{ {rights} }}"));
    let error = opened(format!("nats://ann:ann@{}", server.address())).await.unwrap_err();
    assert!(error.to_string().contains("may the user publish to `$JS.API.>`?"), "{error}");
}

#[tokio::test]
async fn a_client_with_tls_trusts_only_the_given_authority() {
    let server = NatsServer::tls();
    let (files, trusting) = (server.certificates(), |ca: PathBuf| format!("{}?tls_ca={}", server.url(), ca.display()));
    opened(trusting(files.ca())).await.unwrap();
    KvBackend::create(trusting(files.ca()), "idempotent", 1).await.unwrap();
    refused(opened(trusting(files.other_ca())).await, "`tls_ca`");
    refused(opened(server.url()).await, "`tls_ca`");
    let plain = format!("nats://{}", server.address());
    refused(opened(&*plain).await, "`tls_ca`");
}

#[tokio::test]
async fn a_server_that_verifies_clients_accepts_a_certificate_of_its_authority_only() {
    let server = NatsServer::mutual_tls();
    let files = server.certificates();
    let trusting = format!("{}?tls_ca={}", server.url(), server.certificate_authority().display());
    let with = |certificate: PathBuf| {
        format!("{trusting}&tls_certificate={}&tls_key={}", certificate.display(), files.client_key().display())
    };
    opened(with(files.client_certificate())).await.unwrap();
    refused(opened(&*trusting).await, "`tls_certificate`");
    refused(opened(with(files.ca())).await, "`tls_certificate`");
    refused(opened(format!("{trusting}&tls_key=key.pem")).await, "set both `tls_certificate` and `tls_key`");
}
