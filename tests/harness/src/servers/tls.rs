//! Certificates of an authority for a single server.
use std::path::{Path, PathBuf};
use std::process::Command;

use super::missing;

/// The names and addresses of a loopback server.
const CONFIG: &str = "\
[req]
distinguished_name = name
prompt = no
[name]
CN = idempotent test
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
[server]
basicConstraints = CA:FALSE
subjectAltName = IP:127.0.0.1, DNS:localhost
extendedKeyUsage = serverAuth
[client]
basicConstraints = CA:FALSE
subjectAltName = DNS:client.test
extendedKeyUsage = clientAuth
";

/// The files of a server with TLS, in PEM format and valid for 30 days. Keys are in PKCS #8, on the curve P-256.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Returns the authority that signed the certificates of the server and the client.
    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// Returns another authority, which signed neither of them.
    pub fn other_ca(&self) -> PathBuf {
        self.folder.join("other.crt")
    }

    /// Returns the server's certificate, for 127.0.0.1 and localhost.
    pub fn server_certificate(&self) -> PathBuf {
        self.folder.join("server.crt")
    }

    /// Returns the server's key.
    pub fn server_key(&self) -> PathBuf {
        self.folder.join("server.key")
    }

    /// Returns the certificate of a client.
    pub fn client_certificate(&self) -> PathBuf {
        self.folder.join("client.crt")
    }

    /// Returns the client's key.
    pub fn client_key(&self) -> PathBuf {
        self.folder.join("client.key")
    }

    /// Returns the certificates that [`make`](Self::make) created in the folder.
    pub(super) fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Returns all keys that the server must own.
    pub(super) fn keys(&self) -> [PathBuf; 2] {
        [self.server_key(), self.client_key()]
    }

    /// Creates the certificates in this folder with the `openssl` program.
    ///
    /// # Errors
    /// If the program is missing or fails.
    pub fn make(folder: &Path) -> Result<Self, String> {
        std::fs::write(folder.join("openssl.cnf"), CONFIG).map_err(|e| e.to_string())?;
        for authority in ["ca", "other"] {
            certificate(folder, authority, "authority", &[])?;
        }
        for name in ["server", "client"] {
            certificate(folder, name, name, &["-CA", "ca.crt", "-CAkey", "ca.key"])?;
        }
        Ok(Self::of(folder))
    }
}

fn certificate(folder: &Path, name: &str, kind: &str, signed_by: &[&str]) -> Result<(), String> {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-new", "-config", "openssl.cnf", "-extensions", kind, "-days", "30", "-nodes"]);
    command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]).args(signed_by);
    command.args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.crt")]).current_dir(folder);
    let output = command.output().map_err(|e| missing("openssl", &e))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("openssl made no certificate for {name}: {}", String::from_utf8_lossy(&output.stderr)))
}
