//! Signed requests, and TLS.
use std::path::Path;
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

fn publisher(url: &str) -> RocketPublisherBuilder {
    RocketPublisher::builder(url).give_up_after(Duration::from_secs(2))
}

fn source(url: &str) -> RocketSourceBuilder {
    RocketSource::builder(url, "orders", "billing")
}

fn message(id: &str) -> OutboundMessage {
    OutboundMessage::new("orders", id, "b")
}

fn dead_letters(url: &str) -> RocketDeadLettersBuilder {
    RocketDeadLetters::builder(url, "orders", "billing")
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
    let with = |secret: &str| server.url().replace("://", &format!("://{}:{secret}@", KEYS[0]));
    let (signed, wrong) = (with(KEYS[1]), [server.url(), with("secret-18")]);
    source(&signed).build().unwrap().declare(1).await.unwrap();
    publisher(&signed).build().unwrap().publish(&message("m")).await.unwrap();
    consume(source(&signed).build().unwrap(), dead_letters(&signed).build().unwrap()).await;
    for url in &wrong {
        let mut wrong = dead_letters(url).build().unwrap();
        let error = wrong.count().await.unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Fatal, "{error}");
        assert!(!format!("{error:?} {wrong:?}").contains("secret-"), "{error:?}");
        wrong.close().await;
    }

    for url in &wrong {
        let error = publisher(url).build().unwrap().publish(&message("n")).await.unwrap_err();
        assert_eq!(error.kind(), PublishErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("credentials"), "{error}");
        assert!(!error.to_string().contains("secret-"), "{error}");
    }
    for url in &wrong {
        for (topic, group, remedy) in [
            ("orders", "billing", "check the access key and the secret key in the URL"),
            ("orders", "shipping", "check the access key and the secret key in the URL"),
            // Only a client with the right keys may create topics.
            ("new", "shipping", "or create the topic with the broker's tools"),
        ] {
            let source = RocketSource::builder(&**url, topic, group).build().unwrap();
            let error = source.declare(1).await.unwrap_err();
            assert_eq!(error.kind(), SourceErrorKind::Fatal, "{error}");
            assert!(error.to_string().contains(remedy) && !format!("{error:?}").contains("secret-"), "{error:?}");
        }
        let error = source(url).build().unwrap().receive(1).await.unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Fatal, "{error}");
    }
}

#[tokio::test]
async fn a_client_with_tls_trusts_only_the_configured_authority() {
    let server = started(RocketServer::with_tls).await;
    let certificates = server.certificates();
    let with = |authority: &Path| {
        format!("{}?tls_ca={}", server.url().replace("rocketmq:", "rocketmqs:"), authority.display())
    };
    let right = with(certificates.ca().as_ref());
    source(&right).build().unwrap().declare(1).await.unwrap();
    publisher(&right).build().unwrap().publish(&message("m")).await.unwrap();
    consume(source(&right).build().unwrap(), dead_letters(&right).build().unwrap()).await;

    let wrong = with(certificates.other_ca().as_ref());
    let error = publisher(&wrong).build().unwrap().publish(&message("n")).await.unwrap_err();
    assert_eq!(error.kind(), PublishErrorKind::Unsent, "{error}");
    let mut untrusting = source(&wrong).build().unwrap();
    assert_eq!(untrusting.receive(1).await.unwrap_err().kind(), SourceErrorKind::Transient);
    let mut untrusting = dead_letters(&wrong).build().unwrap();
    assert_eq!(untrusting.count().await.unwrap_err().kind(), SourceErrorKind::Transient);
}

#[test]
fn invalid_keys_and_certificates_are_refused_before_a_connection() {
    for (url, rule) in [
        ("rocketmq://:s@localhost", "the access key or the secret key is empty; set both"),
        ("rocketmqs://localhost?tls_ca=missing.pem", "tls_ca: missing.pem cannot be read"),
    ] {
        let error = RocketPublisher::builder(url).build().unwrap_err().to_string();
        assert!(error.contains(rule), "{error}");
    }
    let shown = format!("{:?}", RocketPublisher::builder("rocketmq://ledger:secret-17@localhost"));
    assert!(!shown.contains("ledger") && !shown.contains("secret"), "{shown}");
}
