//! TLS, over a proxy that terminates it in front of the broker.
use std::path::Path;
use std::sync::Arc;

use idempotent_harness::servers::{Certificates, HTTP, KafkaServer, stranger};
use idempotent_kafka::{KafkaDeadLetters, KafkaPublisher, KafkaSource, Server};
use idempotent_mq::{OutboundMessage, Publish, Redrive, Settlement, SourceError, SourceErrorKind};
use rdkafka::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::world::{one, settle};

/// A broker whose clients connect by TLS.
struct Secured {
    url: String,
    certificates: Certificates,
    _server: KafkaServer,
    _folder: tempfile::TempDir,
}

impl Secured {
    /// Starts a broker and its proxy, which requires the certificate of a client on request.
    async fn start(verifies_clients: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = Certificates::make(folder.path()).unwrap();
        let (server, at) = KafkaServer::for_proxy();
        let acceptor = TlsAcceptor::from(Arc::new(config(&certificates, verifies_clients)));
        terminate(TcpListener::bind(at).await.unwrap(), acceptor, server.address());
        Self { url: format!("kafkas://{at}"), certificates, _server: server, _folder: folder }
    }

    /// Returns a URL that trusts this authority.
    fn trusting(&self, authority: impl AsRef<Path>) -> String {
        format!("{}?tls_ca={}", self.url, authority.as_ref().display())
    }
}

fn certificate(file: impl AsRef<Path>) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(file).unwrap()
}

fn config(certificates: &Certificates, verifies_clients: bool) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let key = PrivateKeyDer::from_pem_file(certificates.server_key()).unwrap();
    let clients = if verifies_clients {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(certificates.ca())).unwrap();
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap()
    } else {
        WebPkiClientVerifier::no_client_auth()
    };
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_client_cert_verifier(clients);
    config.with_single_cert(vec![certificate(certificates.server_certificate())], key).unwrap()
}

/// Forwards the data of TLS connections to the broker, until the runtime ends.
fn terminate(listener: TcpListener, acceptor: TlsAcceptor, broker: String) {
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (acceptor, broker) = (acceptor.clone(), broker.clone());
            tokio::spawn(async move {
                // A client that does not trust the certificate ends the handshake.
                let Ok(mut client) = acceptor.accept(client).await else { return };
                let Ok(mut server) = TcpStream::connect(broker).await else { return };
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
}

async fn connect(url: impl Into<Server>) -> Result<KafkaSource, SourceError> {
    KafkaSource::builder(url, "orders", "billing").declare(1).connect().await
}

/// Checks that a message passes from a publisher to a source.
async fn exchanges_a_message(mut source: KafkaSource, publisher: KafkaPublisher) {
    publisher.publish(&[OutboundMessage::new("orders", "m-1", "body")]).await.pop().unwrap().unwrap();
    let held = one(&mut source).await;
    assert_eq!(held.0.body, b"body");
    settle(&source, &held, Settlement::Ack).await;
}

#[tokio::test]
async fn a_broker_whose_authority_is_trusted_is_accepted() {
    let secured = Secured::start(false).await;
    let url = secured.trusting(secured.certificates.ca());
    exchanges_a_message(connect(url.clone()).await.unwrap(), KafkaPublisher::new(url)).await;
}

#[tokio::test]
async fn the_configuration_of_other_clients_connects_a_source_a_publisher_and_the_dead_letters() {
    let secured = Secured::start(false).await;
    let ca = secured.certificates.ca().display().to_string();
    let mut own = ClientConfig::new();
    own.set("bootstrap.servers", secured.url.strip_prefix("kafkas://").unwrap());
    own.set("security.protocol", "ssl").set("ssl.ca.location", ca).set("client.id", "shop");
    let own = Server::on_client(own);
    let source = connect(own.clone()).await.unwrap();
    exchanges_a_message(source, KafkaPublisher::new(own.clone())).await;
    let redriven = Redrive::new().run(&mut KafkaDeadLetters::new(own, "orders")).await;
    assert!(redriven.failed.is_none(), "{redriven:?}");
}

#[tokio::test]
async fn a_broker_of_another_authority_is_refused_with_the_remedy() {
    let secured = Secured::start(false).await;
    for url in [secured.trusting(secured.certificates.other_ca()), secured.url.clone()] {
        let error = connect(url).await.map(drop).unwrap_err();
        assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains("(`tls_ca`)"), "{error}");
    }
    let missing = connect(secured.trusting("missing.pem")).await.map(drop).unwrap_err();
    assert!(missing.kind() == SourceErrorKind::Fatal && missing.to_string().contains("ssl.ca.location"), "{missing}");
}

#[tokio::test]
async fn a_broker_that_verifies_clients_accepts_the_certificate_of_the_url() {
    let secured = Secured::start(true).await;
    let url = secured.trusting(secured.certificates.ca());
    let identity = (secured.certificates.client_certificate(), secured.certificates.client_key());
    let identity = format!("tls_certificate={}&tls_key={}", identity.0.display(), identity.1.display());
    let known = format!("{url}&{identity}");
    exchanges_a_message(connect(known.clone()).await.unwrap(), KafkaPublisher::new(known)).await;
    let error = connect(url).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("connecting"), "{error}");
}

#[tokio::test]
async fn tls_on_one_side_only_is_named_with_the_scheme_of_the_other() {
    let (secured, server) = (Secured::start(false).await, KafkaServer::start());
    let (at, plain) = (secured.url.strip_prefix("kafkas://").unwrap(), server.address());
    let http = stranger(HTTP);
    for (url, words) in [
        (format!("kafkas://{plain}"), [&*plain, "requires TLS (`kafkas://`)"]),
        (format!("kafkas://{http}"), [&*http, "use `kafka://`"]),
        (format!("kafka://{at}"), [at, "requires TLS (`kafkas://`)"]),
    ] {
        let error = connect(url).await.map(drop).unwrap_err();
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{words:?}: {error}");
    }
}
