//! A PgBouncer in front of a PostgreSQL server.
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::daemon::{Daemon, Kind, Place};
use super::postgres::first_byte;
use super::{PostgresServer, or_panic};

/// The environment variable that names the program to start instead of `pgbouncer`: a path or a name on the `PATH`.
pub const PGBOUNCER: &str = "IDEMPOTENT_PGBOUNCER";

/// The first version that keeps named prepared statements in transaction mode by default.
const PREPARES: (u32, u32) = (1, 24);

/// A private PgBouncer for all databases of one [`PostgresServer`]. The bouncer asks for no password. Dropping the value
/// stops the process and removes its folder.
pub type PgBouncer = Daemon<Bouncer>;

/// The settings of a pooler.
#[derive(Debug)]
pub struct Bouncer {
    program: PathBuf,
    settings: String,
}

impl Daemon<Bouncer> {
    /// Starts a pooler for all databases of `server`. `settings` are additional lines of `pgbouncer.ini`, such as
    /// `pool_mode = transaction`.
    ///
    /// # Panics
    /// If the pooler cannot start, e.g. because of an unknown setting.
    #[must_use]
    pub fn start(server: &PostgresServer, settings: &str) -> Self {
        let address = server.address();
        let (host, port) = address.split_once(':').unwrap_or((&address, "5432"));
        // With `auth_type = any`, the pooler logs in as the user in the database's line.
        let settings = format!(
            "[databases]\n* = host={host} port={port} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             unix_socket_dir =\nauth_type = any\n{settings}\n"
        );
        or_panic(Self::of(Bouncer { program: program(), settings }, "pgbouncer"))
    }

    /// Returns true if this version keeps named prepared statements in transaction mode by default: 1.24 and later.
    ///
    /// # Panics
    /// If the program does not report its version.
    #[must_use]
    pub fn keeps_prepared_statements() -> bool {
        let output = Command::new(program()).arg("--version").output();
        let output = or_panic(output.map_err(|e| super::missing("pgbouncer", &e)));
        let text = String::from_utf8_lossy(&output.stdout);
        or_panic(version(&text).ok_or_else(|| format!("not a version of PgBouncer: {text:?}"))) >= PREPARES
    }

    /// Returns the URL of a database of this name, which the pooler forwards:
    /// `postgres://postgres@127.0.0.1:PORT/NAME`.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@{}/{database}", self.address())
    }
}

impl Kind for Bouncer {
    const NAME: &'static str = "PgBouncer";
    const USERS: [&'static str; 2] = ["postgres", "nobody"];
    const FAST: &'static str = "KILL";
    const VARIABLES: &'static str = "PG";
    const TAKEN: &'static str = "Address already in use";

    fn init(&self, _: &Place) -> Result<(), String> {
        Ok(())
    }

    fn server(&self, place: &Place, port: u16) -> Command {
        let file = place.folder.file("pgbouncer.ini");
        // If the folder is not writable, the pooler's log shows it.
        let _ = fs::write(&file, format!("{}listen_port = {port}\n", self.settings));
        let mut command = place.command::<Self>(&self.program);
        command.arg(file);
        command
    }

    fn greets(port: u16) -> bool {
        first_byte(port) == Some(b'R')
    }
}

/// Returns the program, which Debian installs in a folder that is only on the `PATH` of administrators.
fn program() -> PathBuf {
    if let Some(named) = std::env::var_os(PGBOUNCER) {
        return named.into();
    }
    let debian = PathBuf::from("/usr/sbin/pgbouncer");
    if debian.is_file() { debian } else { "pgbouncer".into() }
}

/// Parses a version such as `PgBouncer 1.18.0`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("PgBouncer ")?.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
