//! The TLS options of a URL for MariaDB and MySQL.
use std::path::Path;
use std::sync::LazyLock;

use idempotent_core::StoreErrorKind::Denied;
use idempotent_harness::servers::MariaDbServer;
use idempotent_sqlx::MySqlStore;

use crate::mysql::by_tls::url;
use crate::mysql::setup::refused;

/// A server that accepts only TLS connections.
pub(super) static SERVER: LazyLock<MariaDbServer> = LazyLock::new(MariaDbServer::start_with_tls);

pub(super) const MODE: &str = "ssl-mode";
pub(super) const AUTHORITY: &str = "ssl-ca";
pub(super) const STRICT: &str = "VERIFY_IDENTITY";
/// Modes that look at no certificate.
pub(super) const LAX: [&str; 2] = ["PREFERRED", "REQUIRED"];

/// URLs by which the server can be used.
pub(super) fn accepted(ca: &Path) -> [String; 4] {
    let plain = SERVER.url();
    [url(STRICT, ca), url("VERIFY_CA", ca), format!("{plain}?ssl-mode=REQUIRED"), plain]
}

#[tokio::test]
async fn a_server_that_takes_tls_only_is_named_where_it_is_disabled() {
    let disabled = MySqlStore::connect(format!("{}?ssl-mode=DISABLED", SERVER.url())).await;
    refused(disabled, Denied, &["takes TLS only", "`ssl-mode`", &SERVER.address()]);
}
