//! By TLS, and not by mistake without.
use std::path::Path;
use std::sync::LazyLock;

use idempotent_core::StoreErrorKind::{Denied, Schema};
use idempotent_core::{Claim, Store};
use idempotent_sqlx::MySqlStore;
use idempotent_testkit::servers::MariaDbServer;

use crate::mysql::place::server;
use crate::mysql::setup::refused;
use crate::support::{key, request};

/// It takes nothing else.
static SERVER: LazyLock<MariaDbServer> = LazyLock::new(MariaDbServer::start_with_tls);

fn url(mode: &str, ca: &Path) -> String {
    format!("{}?ssl-mode={mode}&ssl-ca={}", SERVER.url(), ca.display())
}

#[tokio::test]
async fn a_server_with_tls_is_used_by_its_authority() {
    let ca = SERVER.certificates().ca();
    let plain = SERVER.url();
    for (n, url) in [url("VERIFY_IDENTITY", &ca), url("VERIFY_CA", &ca), format!("{plain}?ssl-mode=REQUIRED"), plain]
        .iter()
        .enumerate()
    {
        let store = MySqlStore::builder(url).create(true).open().await.unwrap();
        let claim = store.claim(&request(&key(&n.to_string()), 1)).await.unwrap();
        assert!(matches!(claim, Claim::Acquired(_)), "{url}");
    }
    let disabled = MySqlStore::open(format!("{}?ssl-mode=DISABLED", SERVER.url())).await;
    refused(disabled, Denied, &["takes TLS only", "`ssl-mode`", &SERVER.address()]);
}

#[tokio::test]
async fn n58_a_certificate_of_an_unknown_authority_is_refused_with_the_way_to_name_it() {
    let words = ["TLS failed", "invalid peer certificate", "ssl-mode", &SERVER.address()];
    let other = MySqlStore::open(url("VERIFY_IDENTITY", &SERVER.certificates().other_ca())).await;
    refused(other, Denied, &words);
    let system = MySqlStore::open(format!("{}?ssl-mode=VERIFY_IDENTITY", SERVER.url())).await;
    refused(system, Denied, &[&words[..], &["UnknownIssuer"]].concat());
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_it_is_asked_for() {
    let open = MySqlStore::open(format!("{}?ssl-mode=REQUIRED", server().url())).await;
    refused(open, Denied, &["TLS failed", "does not support TLS", &server().address()]);
}

#[tokio::test]
async fn certificates_that_would_not_be_used_are_refused() {
    let ca = SERVER.certificates().ca();
    for mode in ["PREFERRED", "REQUIRED"] {
        refused(MySqlStore::open(url(mode, &ca)).await, Schema, &["`ssl-ca`", "add `ssl-mode=VERIFY_IDENTITY`"]);
    }
    let missing = MySqlStore::open(url("VERIFY_IDENTITY", Path::new("no/such/ca.pem"))).await;
    refused(missing, Schema, &["`ssl-ca`", "cannot be read", "No such file"]);
}
