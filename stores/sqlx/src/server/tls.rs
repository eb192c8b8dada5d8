//! Checks of the TLS parameters of a URL: rejects parameters that would have no effect.
use std::fs::File;

use idempotent_core::__private::url::decoded;

/// The TLS parameters of a server's URLs, and their values in one URL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlsSettings {
    /// The cargo feature for TLS. `built` is true if this feature is enabled.
    pub(crate) feature: &'static str,
    pub(crate) built: bool,
    /// True if the URL requires TLS.
    pub(crate) required: bool,
    /// True if the server's certificate is verified.
    pub(crate) verified: bool,
    /// The parameter for verified TLS.
    pub(crate) full: &'static str,
    /// The parameters that name the certificate of an authority.
    pub(crate) authority: &'static [&'static str],
}

/// The parameters that name a client's certificate and its key.
const CLIENT: [&str; 4] = ["sslcert", "ssl-cert", "sslkey", "ssl-key"];

impl TlsSettings {
    /// Returns the reason to reject the URL, with a remedy.
    pub(crate) fn refusal(&self, url: &str) -> Option<String> {
        let Self { feature, full, .. } = self;
        let settings: Vec<_> = settings(url).collect();
        let named = |names: &[&str]| settings.iter().find(|(name, _)| names.contains(name));
        let (authority, client) = (named(self.authority), named(&CLIENT));
        if !self.built && (self.required || authority.is_some() || client.is_some()) {
            return Some(format!(
                "requires TLS, but this program was built without TLS: enable the feature `{feature}`"
            ));
        }
        if let Some((name, _)) = authority.filter(|_| !self.verified) {
            return Some(format!("names `{name}`, but does not verify the server's certificate: add `{full}`"));
        }
        settings.iter().filter(|(name, _)| self.authority.contains(name) || CLIENT.contains(name)).find_map(unreadable)
    }
}

/// Selects the cryptography of rustls, unless the program has selected one. Where several are compiled in, for example for the SDK of
/// AWS, sqlx 0.9 panics at a URL that verifies only the authority of the server.
pub(crate) fn select_cryptography() {
    #[cfg(any(feature = "mysql-tls", feature = "postgres-tls"))]
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// Returns why a URL cannot be read. Lists the values of the parameter for TLS if its value is wrong.
pub(crate) fn unparsed(error: &sqlx::Error, parameter: &str, values: &str) -> String {
    let text = error.to_string();
    let known = if text.contains("ssl_mode") { format!("; `{parameter}` is one of {values}") } else { String::new() };
    format!("cannot be read ({text}){known}")
}

/// Returns the parameters after the question mark.
fn settings(url: &str) -> impl Iterator<Item = (&str, &str)> {
    let all = url.split_once('?').map_or("", |(_, all)| all);
    all.split('&').filter_map(|setting| setting.split_once('='))
}

/// Returns the error of a file that cannot be read. Without this check, the error would appear as a failed connection.
fn unreadable((name, file): &(&str, &str)) -> Option<String> {
    let file = decoded(&file.replace('+', " "))?;
    // The value is the certificate itself.
    if file.trim_start().starts_with("-----BEGIN") {
        return None;
    }
    let error = File::open(file).err()?;
    Some(format!("names `{name}`, a file that cannot be read ({error}): use an absolute path"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const PLAIN: TlsSettings = TlsSettings {
        feature: "postgres-tls",
        built: true,
        required: false,
        verified: false,
        full: "sslmode=verify-full",
        authority: &["sslrootcert"],
    };
    const REQUIRED: TlsSettings = TlsSettings { required: true, ..PLAIN };

    #[test]
    fn a_url_that_asks_for_tls_is_refused_where_there_is_none() {
        let without = |tls: TlsSettings| TlsSettings { built: false, ..tls };
        for (tls, url) in [
            (REQUIRED, "postgres://db/shop?sslmode=require"),
            (PLAIN, "postgres://db/shop?sslrootcert=ca.pem"),
            (PLAIN, "postgres://db/shop?application_name=a&sslkey=me.key"),
        ] {
            let told = without(tls).refusal(url).unwrap();
            assert!(told.contains("enable the feature `postgres-tls`"), "{told}");
        }
        assert_eq!(without(PLAIN).refusal("postgres://db/shop?application_name=sslrootcert"), None);
        assert_eq!(REQUIRED.refusal("postgres://db/shop?sslmode=require"), None);
    }

    #[test]
    fn an_authority_that_would_not_be_asked_is_refused() {
        for tls in [PLAIN, REQUIRED] {
            let told = tls.refusal("postgres://db/shop?sslrootcert=ca.pem").unwrap();
            assert!(told.contains("`sslrootcert`") && told.contains("add `sslmode=verify-full`"), "{told}");
        }
    }

    #[test]
    fn a_certificate_is_an_existing_file_or_part_of_the_url() {
        let verified = TlsSettings { verified: true, ..REQUIRED };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("our ca.pem");
        let url = format!("postgres://db/shop?sslrootcert={}", file.display()).replace(' ', "%20");
        let told = verified.refusal(&url).unwrap();
        assert!(told.contains("`sslrootcert`") && told.contains("cannot be read"), "{told}");
        std::fs::write(&file, "").unwrap();
        assert_eq!(verified.refusal(&url), None);
        assert_eq!(verified.refusal("postgres://db/shop?sslrootcert=-----BEGIN+CERTIFICATE-----"), None);
    }
}
