//! moto, an emulator of the services of AWS.
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::daemon::{Daemon, Kind, Place};
use super::stranger::{CLOSED, HTTP, REDIS, SILENT, stranger};
use super::{or_panic, unpacked};

/// The environment variable that names the program to start instead of the package that `cargo xtask setup` installs: a
/// `moto_server`.
pub const MOTO: &str = "IDEMPOTENT_MOTO_SERVER";

/// The program that starts moto, with conditional writes of DynamoDB in one step. A program that [`MOTO`] names has two steps.
const PROGRAM: &str = include_str!("moto.py");

/// A private emulator of AWS. Dropping the value stops the process. The emulator keeps everything in memory, so it cannot be
/// restarted.
pub type MotoServer = Daemon<Moto>;

/// The settings of an emulator.
#[derive(Debug)]
pub struct Moto {
    tls: bool,
}

/// An endpoint of a client, a word of the cause why the client cannot use it, and the remedy.
pub type UnusableEndpoint = (String, &'static str, String);

/// Starts servers that clients of this service cannot use, and returns their endpoints, and emulators to keep until the end. Blocks.
///
/// # Panics
/// If a server cannot start.
#[must_use]
pub fn unusable_endpoints(service: &str) -> (Vec<UnusableEndpoint>, [MotoServer; 2]) {
    let servers = [MotoServer::without_users(), MotoServer::start_with_tls()];
    let [server, secured] = [&servers[0], &servers[1]].map(MotoServer::address);
    let [http, redis, closed, silent] = [HTTP, REDIS, CLOSED, SILENT].map(stranger);
    let other = format!("check that the endpoint of the client is one of {service}");
    let endpoint = "check the region and the endpoint";
    let cases = [
        ("http", &*server, "status 403", "check the credentials"),
        ("https", &server, "corrupt message", "use an endpoint with `http://`"),
        ("http", &secured, "onnection", "with `https://` if it requires TLS"),
        ("https", &secured, "invalid peer certificate", "trust the authority"),
        ("http", "127.0.0.1:1", "onnection refused", endpoint),
        ("http", "no.such.host.invalid:7", "lookup", endpoint),
        ("http", &http, "", &other),
        ("http", &redis, "client error", &other),
        ("http", &closed, "client error", &other),
        ("http", &silent, "no answer within", endpoint),
    ];
    let cases =
        cases.map(|(scheme, address, cause, remedy)| (format!("{scheme}://{address}"), cause, remedy.to_owned()));
    (cases.into(), servers)
}

impl Daemon<Moto> {
    /// Starts an emulator, which accepts any credentials.
    ///
    /// # Panics
    /// If the emulator cannot start.
    #[must_use]
    pub fn start() -> Self {
        or_panic(Self::of(Moto { tls: false }, "moto"))
    }

    /// Starts an emulator that accepts only HTTPS, with a certificate of a private authority.
    ///
    /// # Panics
    /// If the emulator cannot start.
    #[must_use]
    pub fn start_with_tls() -> Self {
        or_panic(Self::of(Moto { tls: true }, "moto"))
    }

    /// Starts an emulator that verifies the credentials of each request, and knows none.
    ///
    /// # Panics
    /// If the emulator cannot start or does not answer.
    #[must_use]
    pub fn without_users() -> Self {
        let server = Self::start();
        or_panic(server.verify_users().map_err(|error| format!("moto does not verify users: {error}")));
        server
    }

    fn verify_users(&self) -> std::io::Result<()> {
        let mut connection = TcpStream::connect(self.address())?;
        // The body is the number of requests that are not verified.
        let head = "POST /moto-api/reset-auth HTTP/1.1\r\nHost: moto\r\nContent-Length: 1\r\nConnection: close";
        connection.write_all(format!("{head}\r\n\r\n0").as_bytes())?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(std::io::Error::other(answer)) }
    }
}

impl Kind for Moto {
    const NAME: &'static str = "moto";
    const USERS: [&'static str; 2] = ["root", "nobody"];
    const FAST: &'static str = "KILL";
    const VARIABLES: &'static str = "MOTO";
    const TAKEN: &'static str = "Address already in use";

    fn init(&self, place: &Place) -> Result<(), String> {
        if program().is_none() && !unpacked("moto").is_dir() {
            return Err("moto is not installed: `cargo xtask setup` installs it".to_owned());
        }
        if self.tls { place.certify() } else { Ok(()) }
    }

    fn server(&self, place: &Place, port: u16) -> Command {
        let mut command = match program() {
            Some(program) => place.command::<Self>(program),
            None => {
                let mut command = place.command::<Self>("python3");
                command.args(["-c", PROGRAM]).env("PYTHONPATH", unpacked("moto"));
                command
            }
        };
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        if self.tls {
            let files = place.certificates();
            command.arg("--ssl-cert").arg(files.server_certificate()).arg("--ssl-key").arg(files.server_key());
        }
        command
    }

    /// Requests the page of the emulator. One with HTTPS closes the connection.
    fn greets(port: u16) -> bool {
        let Ok(mut connection) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
        let limit = connection.set_read_timeout(Some(Duration::from_secs(5)));
        if limit.is_err() || connection.write_all(b"GET /moto-api/ HTTP/1.0\r\n\r\n").is_err() {
            return false;
        }
        let mut answer = [0; 5];
        match connection.read(&mut answer) {
            Ok(0) => true,
            Ok(_) => b"HTTP/".starts_with(&answer[..1]),
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

/// Returns the program that the environment names.
fn program() -> Option<OsString> {
    std::env::var_os(MOTO).filter(|program| !program.is_empty())
}
