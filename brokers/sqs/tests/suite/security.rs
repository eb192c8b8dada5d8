//! HTTPS: which servers a client trusts, and the remedy for all others.
use std::path::Path;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Config, Credentials, Region, SharedHttpClient};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use idempotent_harness::servers::MotoServer;
use idempotent_mq::{OutboundMessage, Publish, Settlement, Source, SourceErrorKind};
use idempotent_sqs::{SqsPublisher, SqsSource};

use crate::world::{REGION, one, settle};

/// Returns an HTTP client that trusts this authority only.
fn trusting(authority: &Path) -> SharedHttpClient {
    let store = TrustStore::empty().with_pem_certificate(std::fs::read(authority).unwrap());
    let context = TlsContext::builder().with_trust_store(store).build().unwrap();
    Builder::new().tls_provider(Provider::rustls(CryptoMode::AwsLc)).tls_context(context).build_https()
}

/// Returns a client with this HTTP client, or with the one of the SDK.
fn client(url: &str, http: Option<SharedHttpClient>) -> Client {
    let mut config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(REGION))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .endpoint_url(url);
    config.set_http_client(http);
    Client::from_conf(config.build())
}

#[tokio::test]
async fn a_client_with_https_trusts_only_the_given_authority() {
    let server = tokio::task::spawn_blocking(MotoServer::start_with_tls).await.unwrap();
    let (url, files) = (format!("https://{}", server.address()), server.certificates());
    let trusted = client(&url, Some(trusting(&files.ca())));
    let mut source = SqsSource::builder(trusted.clone(), "orders").declare().connect().await.unwrap();
    let sent = SqsPublisher::new(trusted).publish(&[OutboundMessage::new("orders", "m-1", "body")]).await;
    assert!(sent[0].is_ok(), "{sent:?}");
    let held = one(&mut source).await;
    assert_eq!((held.0.id.as_deref(), &*held.0.body), (Some("m-1"), &b"body"[..]));
    settle(&source.settler(), &held, Settlement::Ack).await;

    for http in [Some(trusting(&files.other_ca())), None] {
        let error = SqsSource::connect(client(&url, http), "orders").await.map(drop).unwrap_err();
        assert!(
            error.kind() == SourceErrorKind::Transient && error.to_string().contains("trust the authority"),
            "{error}"
        );
    }
    let plain = client(&format!("http://{}", server.address()), None);
    let error = SqsSource::connect(plain, "orders").await.map(drop).unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Transient, "{error}");
}
