//! A PostgreSQL server.
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::daemon::{Daemon, Kind, Place};
use super::{option, or_panic, unpacked};

/// The environment variable that names the folder with `postgres` and `initdb`, in place of Debian's newest version.
pub const POSTGRES_BIN: &str = "IDEMPOTENT_POSTGRES_BIN";

/// The folder of Debian's packages, with a folder for each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// A private PostgreSQL server with its own folder and port. The superuser `postgres` has no password. The server takes
/// about a second to start, so a test binary shares one, with a [database](Self::database) for each test. Dropping the
/// value stops the server and removes its folder.
///
/// Committed data survives [`kill`](Daemon::kill), but a commit does not wait for the disk (`fsync` is off): the machine
/// of a test does not crash, and on a busy disk some commits would take seconds. For measurements that include the
/// wait, use [`start_durable`](Self::start_durable).
pub type PostgresServer = Daemon<Postgres>;

/// The settings of a server.
#[derive(Debug)]
pub struct Postgres {
    /// The folder of the programs.
    bin: PathBuf,
    tls: bool,
    /// True if a commit waits for the disk.
    durable: bool,
}

impl Daemon<Postgres> {
    /// Starts a server with default settings and room for 200 connections. It accepts connections when this method
    /// returns.
    ///
    /// # Panics
    /// If the server cannot start. The message shows what to install.
    #[must_use]
    pub fn start() -> Self {
        or_panic(Self::new(false, false))
    }

    /// Starts a server whose commits wait for the disk, like a production server, for benchmarks.
    ///
    /// # Panics
    /// Like [`start`](Self::start).
    #[must_use]
    pub fn start_durable() -> Self {
        or_panic(Self::new(false, true))
    }

    /// Starts a server that also accepts TLS connections, with a certificate of a private authority. Clients need no
    /// certificate.
    ///
    /// # Panics
    /// Like [`start`](Self::start), and if the `openssl` program is missing.
    #[must_use]
    pub fn start_with_tls() -> Self {
        or_panic(Self::new(true, false))
    }

    fn new(tls: bool, durable: bool) -> Result<Self, String> {
        Self::of(Postgres { bin: bin()?, tls, durable }, "postgres")
    }

    /// Returns `postgres://postgres@127.0.0.1:PORT/postgres`.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// Returns the URL for a database of this name, without creating it.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@{}/{database}", self.address())
    }

    /// Runs statements as the superuser with `psql`. Returns the output: rows without headers, columns separated by
    /// `|`.
    ///
    /// # Panics
    /// If a statement fails.
    pub fn psql(&self, database: &str, statements: &str) -> String {
        let mut psql = Command::new(self.kind.bin.join("psql"));
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set", "ON_ERROR_STOP=1"]);
        psql.args(["--dbname", &self.url_of(database), "--command", statements]);
        let output = or_panic(psql.output().map_err(|e| missing(&e)));
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "psql {statements:?}: {stdout}{stderr}");
        stdout.trim_end().to_owned()
    }

    /// Creates an empty database of this name, and returns its URL.
    ///
    /// # Panics
    /// If the database cannot be created, e.g. because it exists.
    pub fn database(&self, name: &str) -> String {
        self.psql("postgres", &format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\"")));
        self.url_of(name)
    }

    /// Installs the schema of PGMQ 1.11.1 in this database, from the crate `pgmq`.
    ///
    /// # Panics
    /// If `cargo xtask setup` has not unpacked the file, or a statement fails, e.g. because the schema exists.
    pub fn install_pgmq(&self, database: &str) {
        let file = unpacked("pgmq/pgmq-1.11.1.sql");
        let sql = fs::read_to_string(&file);
        self.psql(
            database,
            &or_panic(sql.map_err(|e| format!("{}: {e}: `cargo xtask setup` unpacks it", file.display()))),
        );
    }

    /// Installs the schema of PGMQ 1.5.2, an old version. No package contains its SQL file, which is in the folder `pgmq` with its
    /// license.
    ///
    /// # Panics
    /// If a statement fails, e.g. because the schema exists.
    pub fn install_old_pgmq(&self, database: &str) {
        self.psql(database, include_str!("pgmq/pgmq-1.5.2.sql"));
    }

    /// Ends every other connection from the server's side.
    ///
    /// # Panics
    /// If the server does not execute the order.
    pub fn close_all_connections(&self) {
        let others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                      WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        self.psql("postgres", others);
    }
}

impl Kind for Postgres {
    const NAME: &'static str = "PostgreSQL";
    const USERS: [&'static str; 2] = ["postgres", "nobody"];
    // After a kill, a shared memory segment remains.
    const FAST: &'static str = "INT";
    const VARIABLES: &'static str = "PG";
    const TAKEN: &'static str = "could not bind";

    fn init(&self, place: &Place) -> Result<(), String> {
        let mut initdb = place.command::<Self>(self.bin.join("initdb"));
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--pgdata"]);
        let output = initdb.arg(place.folder.file("data")).output().map_err(|e| missing(&e))?;
        match output.status.success() {
            true if self.tls => place.certify(),
            true => Ok(()),
            false => Err(format!("initdb failed:\n{}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    fn server(&self, place: &Place, port: u16) -> Command {
        let mut command = place.command::<Self>(self.bin.join("postgres"));
        command.arg("-D").arg(place.folder.file("data")).args(["-p", &port.to_string(), "-h", "127.0.0.1"]);
        command.arg("-k").arg(place.folder.path());
        // Small buffers, since several servers run on one machine.
        for setting in ["max_connections=200", "shared_buffers=32MB", "dynamic_shared_memory_type=mmap"] {
            command.args(["-c", setting]);
        }
        if !self.durable {
            command.args(["-c", "fsync=off"]);
        }
        if self.tls {
            let files = place.certificates();
            command.args(["-c", "ssl=on"]);
            command.arg("-c").arg(option("ssl_cert_file", &files.server_certificate()));
            command.arg("-c").arg(option("ssl_key_file", &files.server_key()));
        }
        command
    }

    fn greets(port: u16) -> bool {
        first_byte(port) == Some(b'R')
    }
}

/// Returns the folder of the newest installed version.
fn bin() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(POSTGRES_BIN) {
        return Ok(named.into());
    }
    let versions = fs::read_dir(DEBIAN).map_err(|e| missing(&e))?;
    let version = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest = versions.flatten().map(|entry| entry.path()).filter(|path| path.join("bin/postgres").is_file());
    let newest = newest.max_by_key(version).ok_or_else(|| missing(&io::ErrorKind::NotFound.into()))?;
    Ok(newest.join("bin"))
}

fn missing(e: &io::Error) -> String {
    super::missing("postgres", e)
}

/// Returns the first byte of the server's answer: `R` requests authentication of any client, and `E` is an error during
/// the start.
pub(super) fn first_byte(port: u16) -> Option<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let words = b"user\0postgres\0database\0postgres\0\0";
    let length = u32::try_from(8 + words.len()).ok()?;
    let greeting = [&length.to_be_bytes()[..], &196_608_u32.to_be_bytes(), words].concat();
    stream.write_all(&greeting).ok()?;
    let mut first = [0];
    stream.read_exact(&mut first).ok()?;
    Some(first[0])
}
