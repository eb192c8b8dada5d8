//! Signed requests, and TLS.
use std::sync::Arc;
use std::time::Duration;

use idempotent_harness::servers::RocketServer;
use idempotent_mq::{
    DeadLetters, OutboundMessage, PublishErrorKind, Settlement, Source, SourceErrorKind, StoredLetter,
};
use idempotent_rocketmq::{
    RocketDeadLetters, RocketDeadLettersBuilder, RocketPublisher, RocketPublisherBuilder, RocketSource,
    RocketSourceBuilder,
};

use crate::broker::world::{ManualConsumer, until};

const KEYS: [&str; 2] = ["ledger", "secret-17"];

async fn started(start: impl FnOnce() -> RocketServer + Send + 'static) -> Arc<RocketServer> {
    Arc::new(tokio::task::spawn_blocking(start).await.unwrap())
}

fn publisher(server: &RocketServer) -> RocketPublisherBuilder {
    RocketPublisher::builder(server.name_server()).give_up_after(Duration::from_secs(2))
}

fn source(server: &RocketServer) -> RocketSourceBuilder {
    RocketSource::builder(server.name_server(), "orders", "billing")
}

fn message(id: &str) -> OutboundMessage {
    OutboundMessage::new("orders", id, "b")
}

fn dead_letters(server: &RocketServer) -> RocketDeadLettersBuilder {
    RocketDeadLetters::builder(server.name_server(), "orders", "billing")
}

/// Receives the message, dead-letters it, and puts the dead letter back.
async fn consume(source: RocketSource, mut dead: RocketDeadLetters) {
    let mut consumer = ManualConsumer(source);
    let held = consumer.next().await;
    let reason = idempotent_mq::DeadLetter::because("a reason", idempotent_core::Timestamp(0));
    consumer.settle(&held, &Settlement::DeadLetter(reason)).await.unwrap();
    until("the dead letter", async || (dead.count().await.unwrap() == 1).then_some(())).await;
    let StoredLetter { delivery, letter, .. } = dead.next().await.unwrap().unwrap();
    assert_eq!((delivery.id.as_deref(), &*letter.unwrap().reason), (Some("m"), "a reason"));
    assert!(dead.put_back().await.unwrap());
    assert_eq!(dead.count().await.unwrap(), 0);
    dead.close().await;
    let held = consumer.next().await;
    assert_eq!((held.0.id.as_deref(), held.0.deaths), (Some("m"), 1));
    consumer.settle(&held, &Settlement::Ack).await.unwrap();
}

#[tokio::test]
async fn a_broker_with_authentication_accepts_the_right_keys_and_refuses_others_with_the_remedy() {
    let server = started(|| RocketServer::with_credentials(KEYS[0], KEYS[1])).await;
    let signed = |source: RocketSourceBuilder| source.credentials(KEYS[0], KEYS[1]).build().unwrap();
    signed(source(&server)).declare(1).await.unwrap();
    let right = publisher(&server).credentials(KEYS[0], KEYS[1]).build().unwrap();
    right.publish(&message("m")).await.unwrap();
    let letters = dead_letters(&server).credentials(KEYS[0], KEYS[1]).build().unwrap();
    consume(signed(source(&server)), letters).await;
    for wrong in [dead_letters(&server), dead_letters(&server).credentials(KEYS[0], "secret-18")] {
        let mut wrong = wrong.build().unwrap();
        let error = wrong.count().await.unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Fatal, "{error}");
        assert!(!format!("{error:?} {wrong:?}").contains("secret"), "{error:?}");
        wrong.close().await;
    }

    for wrong in [publisher(&server), publisher(&server).credentials(KEYS[0], "secret-18")] {
        let error = wrong.build().unwrap().publish(&message("n")).await.unwrap_err();
        assert_eq!(error.kind(), PublishErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("credentials"), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    // A new group needs topics, which only a client with the right keys may create.
    let other = || RocketSource::builder(server.name_server(), "orders", "shipping");
    for wrong in [other(), other().credentials(KEYS[0], "secret-18")] {
        let error = wrong.build().unwrap().receive(1).await.unwrap_err();
        assert!(error.to_string().contains("creating a missing topic failed"), "{error}");
    }
}

#[tokio::test]
async fn a_client_with_tls_trusts_only_the_configured_authority() {
    let server = started(RocketServer::with_tls).await;
    let certificates = server.certificates();
    source(&server).tls_ca(certificates.ca()).build().unwrap().declare(1).await.unwrap();
    let right = publisher(&server).tls_ca(certificates.ca()).build().unwrap();
    right.publish(&message("m")).await.unwrap();
    let encrypted = |source: RocketSourceBuilder| source.tls_ca(certificates.ca()).build().unwrap();
    consume(encrypted(source(&server)), dead_letters(&server).tls_ca(certificates.ca()).build().unwrap()).await;

    let wrong = publisher(&server).tls_ca(certificates.other_ca()).build().unwrap();
    let error = wrong.publish(&message("n")).await.unwrap_err();
    assert_eq!(error.kind(), PublishErrorKind::Unsent, "{error}");
    let mut wrong = source(&server).tls_ca(certificates.other_ca()).build().unwrap();
    assert_eq!(wrong.receive(1).await.unwrap_err().kind(), SourceErrorKind::Transient);
    let mut wrong = dead_letters(&server).tls_ca(certificates.other_ca()).build().unwrap();
    assert_eq!(wrong.count().await.unwrap_err().kind(), SourceErrorKind::Transient);
}

#[test]
fn invalid_keys_and_certificates_are_refused_before_a_connection() {
    let builder = || RocketPublisher::builder("localhost:9876");
    let error = builder().credentials("", "s").build().unwrap_err().to_string();
    assert!(error.contains("credentials: the access key or the secret key is empty; set both"), "{error}");
    let error = builder().tls_ca("missing.pem").build().unwrap_err().to_string();
    assert!(error.contains("tls_ca: missing.pem cannot be read"), "{error}");
    let shown = format!("{:?}", builder().credentials("ledger", "secret-17"));
    assert!(!shown.contains("ledger") && !shown.contains("secret"), "{shown}");
}
