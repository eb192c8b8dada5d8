//! TLS connections, and the refusal to connect without TLS, on each server.
use std::path::Path;

use idempotent_core::StoreErrorKind::{Denied, Schema};
use idempotent_core::{Claim, Store};
use idempotent_harness::proxy::Proxy;

use super::fixture::{Store as ServerStore, creating, server};
use super::setup::refused;
use super::tls::{AUTHORITY, LAX, MODE, SERVER, STRICT, accepted};
use crate::support::{key, request};

pub(super) fn url(mode: &str, ca: &Path) -> String {
    format!("{}?{MODE}={mode}&{AUTHORITY}={}", SERVER.url(), ca.display())
}

#[tokio::test]
async fn a_server_with_tls_is_used_by_its_authority() {
    for (n, url) in accepted(&SERVER.certificates().ca()).iter().enumerate() {
        let store = creating(ServerStore::builder(url)).connect().await.unwrap();
        let claim = store.claim(&request(&key(&n.to_string()), 1)).await.unwrap();
        assert!(matches!(claim, Claim::Acquired(_)), "{url}");
    }
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused_with_the_way_to_name_it() {
    let words = ["TLS failed", "invalid peer certificate", MODE, &SERVER.address()];
    let other = ServerStore::connect(url(STRICT, &SERVER.certificates().other_ca())).await;
    refused(other, Denied, &words);
    let system = ServerStore::connect(format!("{}?{MODE}={STRICT}", SERVER.url())).await;
    refused(system, Denied, &[&words[..], &["UnknownIssuer"]].concat());
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_it_is_asked_for() {
    // A server of today may switch TLS on by itself; the proxy removes its offer.
    let proxy = Proxy::start(&server().address()).await;
    let url = server().url().replace(&server().address(), &proxy.address());
    let open = ServerStore::connect(format!("{url}?{MODE}={}", LAX[1])).await;
    refused(open, Denied, &["TLS failed", "does not support TLS", &proxy.address()]);
}

#[tokio::test]
async fn certificates_that_would_not_be_used_are_refused() {
    let (ca, authority) = (SERVER.certificates().ca(), format!("`{AUTHORITY}`"));
    for mode in LAX {
        let remedy = format!("add `{MODE}={STRICT}`");
        refused(ServerStore::connect(url(mode, &ca)).await, Schema, &[&authority, &remedy]);
    }
    let missing = ServerStore::connect(url(STRICT, Path::new("no/such/ca.pem"))).await;
    refused(missing, Schema, &[&authority, "cannot be read", "No such file"]);
}
