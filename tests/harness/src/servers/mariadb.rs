//! A MariaDB or MySQL server.
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use super::daemon::{Daemon, Kind, Place};
use super::{option, or_panic};

/// The environment variable that names the folder with `mariadbd`, `mariadb` and `mariadb-install-db`, or with MySQL's `mysqld` and
/// `mysql`, in place of the installed programs.
pub const MARIADB_BIN: &str = "IDEMPOTENT_MARIADB_BIN";

/// The folders of Debian's packages, since the `PATH` of a user may lack the second one.
const DEBIAN: [&str; 2] = ["/usr/bin", "/usr/sbin"];

/// A private MariaDB or MySQL server with its own folder and port. The user `root` has no password. The server takes a few
/// seconds to start, so a test binary shares one, with a [database](Self::database) for each test. Dropping the value
/// stops the server and removes its folder.
///
/// Committed data survives [`kill`](Daemon::kill), but a commit does not wait for the disk
/// (`innodb_flush_log_at_trx_commit` is 2): the machine of a test does not crash, and on a busy disk some commits would
/// take seconds. For measurements that include the wait, use [`start_durable`](Self::start_durable).
pub type MariaDbServer = Daemon<MariaDb>;

/// The settings of a server.
#[derive(Debug)]
pub struct MariaDb {
    /// The folder of the programs, if it is not Debian's.
    bin: Option<PathBuf>,
    tls: bool,
    options: Vec<String>,
}

impl Daemon<MariaDb> {
    /// Starts a server with default settings and room for 200 connections. It accepts connections when this method
    /// returns.
    ///
    /// # Panics
    /// If the server cannot start. The message shows what to install.
    #[must_use]
    pub fn start() -> Self {
        Self::new(false, &[])
    }

    /// Starts a server with additional options of `mariadbd`, for settings that can only be set at start.
    ///
    /// # Panics
    /// Like [`start`](Self::start).
    #[must_use]
    pub fn start_with(options: &[&str]) -> Self {
        Self::new(false, options)
    }

    /// Starts a server whose commits wait for the disk, like a production server, for benchmarks.
    ///
    /// # Panics
    /// Like [`start`](Self::start).
    #[must_use]
    pub fn start_durable() -> Self {
        Self::start_with(&["--innodb-flush-log-at-trx-commit=1"])
    }

    /// Starts a server that accepts only TLS connections, with a certificate of a private authority. Clients need no
    /// certificate.
    ///
    /// # Panics
    /// Like [`start`](Self::start), and if the `openssl` program is missing.
    #[must_use]
    pub fn start_with_tls() -> Self {
        Self::new(true, &[])
    }

    fn new(tls: bool, options: &[&str]) -> Self {
        let bin = std::env::var_os(MARIADB_BIN).map(PathBuf::from);
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let server = or_panic(Self::of(MariaDb { bin, tls, options }, "mariadb"));
        server.sql("mysql", &format!("{ROOT}; CREATE DATABASE IF NOT EXISTS test"));
        server
    }

    /// Returns `mysql://root@127.0.0.1:PORT/test`.
    pub fn url(&self) -> String {
        self.url_of("test")
    }

    /// Returns the URL for a database of this name, without creating it.
    pub fn url_of(&self, database: &str) -> String {
        format!("mysql://root@{}/{database}", self.address())
    }

    /// Returns true if the server is MySQL.
    pub fn is_mysql(&self) -> bool {
        self.kind.is_mysql()
    }

    /// Runs statements as `root` with the command-line client. Returns the output: rows without headers, columns separated
    /// by tabs.
    ///
    /// # Panics
    /// If a statement fails.
    pub fn sql(&self, database: &str, statements: &str) -> String {
        let output = self.output(database, statements);
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{statements:?}: {stdout}{stderr}");
        stdout.trim_end().to_owned()
    }

    fn output(&self, database: &str, statements: &str) -> Output {
        let program = if self.is_mysql() { "mysql" } else { "mariadb" };
        let mut client = Command::new(self.kind.program(program));
        client.args(["--no-defaults", "--user=root", "--batch", "--skip-column-names", "--raw", "--protocol=socket"]);
        client.arg(option("--socket", &socket(&self.place)));
        let output = client.args(["--database", database, "--execute", statements]).output();
        or_panic(output.map_err(|e| super::missing(program, &e)))
    }

    /// Creates an empty database of this name, and returns its URL.
    ///
    /// # Panics
    /// If the database cannot be created, e.g. because it exists.
    pub fn database(&self, name: &str) -> String {
        self.sql("mysql", &format!("CREATE DATABASE `{}`", name.replace('`', "``")));
        self.url_of(name)
    }

    /// Ends every other connection from the server's side.
    ///
    /// # Panics
    /// If the server does not execute the order.
    pub fn close_all_connections(&self) {
        // The view of MySQL in `information_schema` fails on statements with binary text.
        let others = "SELECT id FROM /*M!100000 information_schema.processlist */ \
                      /*!80022 performance_schema.processlist */ \
                      WHERE id <> connection_id() AND command <> 'Daemon' AND user <> 'system user'";
        for id in self.sql("mysql", others).lines() {
            let output = self.output("mysql", &format!("KILL {id}"));
            let told = String::from_utf8_lossy(&output.stderr);
            // 1094: the connection has ended by itself in the meantime.
            assert!(output.status.success() || told.contains("ERROR 1094"), "KILL {id}: {told}");
        }
    }
}

impl MariaDb {
    fn program(&self, name: &str) -> PathBuf {
        if let Some(folder) = &self.bin {
            return folder.join(name);
        }
        let found = DEBIAN.iter().map(|folder| Path::new(folder).join(name)).find(|program| program.is_file());
        found.unwrap_or_else(|| name.into())
    }

    fn is_mysql(&self) -> bool {
        self.bin.as_ref().is_some_and(|bin| bin.join("mysqld").is_file() && !bin.join("mariadbd").exists())
    }

    /// Returns the options for programs that are not in their installed place.
    fn base(&self) -> Vec<OsString> {
        let base = self.bin.as_deref().and_then(Path::parent);
        base.map(|base| option("--basedir", base)).into_iter().collect()
    }

    /// Returns the command that creates the data of a server.
    fn initialization(&self, place: &Place) -> Result<Command, String> {
        if !self.is_mysql() {
            let mut init = place.command::<Self>(self.program("mariadb-install-db"));
            init.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
            init.args(["--skip-name-resolve", MARIADB_LOG]);
            return Ok(init);
        }
        let first = place.folder.file("init.sql");
        fs::write(&first, format!("{};\n", ROOT.replace("; ", ";\n"))).map_err(|e| e.to_string())?;
        let mut init = place.command::<Self>(self.program("mysqld"));
        init.args(["--no-defaults", "--initialize-insecure"]).args(MYSQL).arg(option("--init-file", &first));
        Ok(init)
    }
}

/// Lets `root` in by TCP: `localhost` only matches connections by the socket.
const ROOT: &str = "CREATE USER IF NOT EXISTS root@'127.0.0.1'; GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION";

impl Kind for MariaDb {
    const NAME: &'static str = "MariaDB";
    const USERS: [&'static str; 2] = ["mysql", "nobody"];
    const FAST: &'static str = "TERM";
    const VARIABLES: &'static str = "MYSQL";
    const TAKEN: &'static str = "Can't start server: Bind on TCP/IP port";

    fn init(&self, place: &Place) -> Result<(), String> {
        let mut init = self.initialization(place)?;
        init.args(self.base()).arg(SMALL).arg(option("--datadir", &place.folder.file("data"))).arg(own_tables(place));
        let program = init.get_program().to_string_lossy().into_owned();
        let output = init.output().map_err(|e| super::missing(&program, &e))?;
        let told = || format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        match output.status.success() {
            true if self.tls => place.certify(),
            true => Ok(()),
            false => Err(format!("{program} failed:\n{}", told())),
        }
    }

    fn server(&self, place: &Place, port: u16) -> Command {
        let mut command = place.command::<Self>(self.program(if self.is_mysql() { "mysqld" } else { "mariadbd" }));
        command.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve", "--max-connections=200"]);
        command.args(self.base()).args([SMALL, "--innodb-flush-log-at-trx-commit=2"]);
        match self.is_mysql() {
            true => command.args(MYSQL).arg("--mysqlx=OFF"),
            false => command.arg(MARIADB_LOG),
        };
        command.args(&self.options).arg(format!("--port={port}"));
        command.arg(option("--datadir", &place.folder.file("data"))).arg(option("--socket", &socket(place)));
        command.arg(option("--pid-file", &place.folder.file("pid"))).arg(own_tables(place));
        if self.tls {
            let files = place.certificates();
            command.arg("--require-secure-transport=ON").arg(option("--ssl-ca", &files.ca()));
            command.arg(option("--ssl-cert", &files.server_certificate()));
            command.arg(option("--ssl-key", &files.server_key()));
        }
        command
    }

    /// Checks the first packet, which the server sends by itself: the protocol version, or an error.
    fn greets(port: u16) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
        let patience = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let mut greeting = [0; 5];
        patience.and_then(|()| stream.read_exact(&mut greeting)).is_ok() && greeting[4] == 10
    }
}

/// Small buffers, since several servers run on one machine.
const SMALL: &str = "--innodb-buffer-pool-size=32M";
const MARIADB_LOG: &str = "--innodb-log-file-size=16M";
const MYSQL: [&str; 2] = ["--innodb-redo-log-capacity=16M", "--secure-file-priv=NULL"];

/// Returns a private folder for temporary tables: a starting server removes the temporary tables of all servers that
/// share the folder.
fn own_tables(place: &Place) -> OsString {
    option("--tmpdir", place.folder.path())
}

fn socket(place: &Place) -> PathBuf {
    place.folder.file("socket")
}
