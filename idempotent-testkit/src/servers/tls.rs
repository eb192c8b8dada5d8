//! Certificates of an authority that exists for one server only.
use std::path::{Path, PathBuf};
use std::process::Command;

use super::missing;

/// Names and addresses under which a loopback server is reached.
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

/// The files of a server with TLS, all in PEM and valid for 30 days. Keys are PKCS #8, on the curve P-256.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// The authority that signed the server's and the client's certificates.
    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// An authority that signed none of them.
    pub fn other_ca(&self) -> PathBuf {
        self.folder.join("other.crt")
    }

    /// The server's, for 127.0.0.1 and localhost.
    pub fn server_certificate(&self) -> PathBuf {
        self.folder.join("server.crt")
    }

    /// The server's key.
    pub fn server_key(&self) -> PathBuf {
        self.folder.join("server.key")
    }

    /// One a client may show.
    pub fn client_certificate(&self) -> PathBuf {
        self.folder.join("client.crt")
    }

    /// The client's key.
    pub fn client_key(&self) -> PathBuf {
        self.folder.join("client.key")
    }

    /// Those that [`make`](Self::make) made there.
    pub(super) fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// All keys, which their server has to own.
    pub(super) fn keys(&self) -> [PathBuf; 2] {
        [self.server_key(), self.client_key()]
    }

    /// By the `openssl` program.
    ///
    /// # Errors
    /// Where it is missing or fails.
    pub(super) fn make(folder: &Path) -> Result<Self, String> {
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
