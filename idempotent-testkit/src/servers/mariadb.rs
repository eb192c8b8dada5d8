//! One MariaDB.
use std::ffi::OsString;
use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::daemon::{Daemon, Kind, Place};
use super::tls::Certificates;
use super::{option, or_panic};

/// The environment variable that names the folder with `mariadbd`, `mariadb` and `mariadb-install-db` to use instead of
/// those that are installed.
pub const MARIADB_BIN: &str = "IDEMPOTENT_MARIADB_BIN";

/// Where Debian's packages have them, in case a user's `PATH` lacks the second.
const DEBIAN: [&str; 2] = ["/usr/bin", "/usr/sbin"];

/// A MariaDB of this test's own: its folder, its port, the user `root` without a password. Takes a few seconds to start,
/// so a test binary shares one, with a [database](Self::database) for each test. Stopped, and its folder removed, when
/// dropped.
///
/// What was committed outlives [`kill`](Self::kill), but a commit does not wait for the disk
/// (`innodb_flush_log_at_trx_commit` is 2): the machine of a test does not crash, and a busy disk would make seconds of
/// some commits. Where the wait belongs to what is measured: [`start_durable`](Self::start_durable).
#[derive(Debug)]
pub struct MariaDbServer(Daemon<MariaDb>);

#[derive(Debug)]
struct MariaDb {
    /// The folder of its programs, where it is not Debian's.
    bin: Option<PathBuf>,
    tls: bool,
    options: Vec<String>,
}

impl MariaDbServer {
    /// One with its defaults, and room for 200 connections; it takes connections when this returns.
    ///
    /// # Panics
    /// Where it cannot start; says what to install.
    #[must_use]
    pub fn start() -> Self {
        Self::new(false, &[])
    }

    /// One with these options of `mariadbd` as well, for what can only be set at its start.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with(options: &[&str]) -> Self {
        Self::new(false, options)
    }

    /// One whose commits wait for the disk, as a server in production has them: for benchmarks.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_durable() -> Self {
        Self::start_with(&["--innodb-flush-log-at-trx-commit=1"])
    }

    /// One that takes TLS only, with a certificate of its own authority. It does not ask for a client's.
    ///
    /// # Panics
    /// As [`start`](Self::start), and without the `openssl` program.
    #[must_use]
    pub fn start_with_tls() -> Self {
        Self::new(true, &[])
    }

    /// Its certificates.
    ///
    /// # Panics
    /// Where it was started without TLS.
    pub fn certificates(&self) -> Certificates {
        assert!(self.0.kind.tls, "started without TLS");
        self.0.place.certificates()
    }

    fn new(tls: bool, options: &[&str]) -> Self {
        let bin = std::env::var_os(MARIADB_BIN).map(PathBuf::from);
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let server = Self(or_panic(Daemon::start(MariaDb { bin, tls, options }, "mariadb")));
        // `localhost` is the socket's name alone.
        let root = "CREATE OR REPLACE USER root@'127.0.0.1'; GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION; \
                    CREATE DATABASE IF NOT EXISTS test";
        server.sql("mysql", root);
        server
    }

    /// `mysql://root@127.0.0.1:PORT/test`.
    pub fn url(&self) -> String {
        self.url_of("test")
    }

    /// The same for a database of this name, which it does not make.
    pub fn url_of(&self, database: &str) -> String {
        format!("mysql://root@{}/{database}", self.address())
    }

    /// `127.0.0.1:PORT`, the same after a restart.
    pub fn address(&self) -> String {
        self.0.address()
    }

    /// The number of its process, which [`restart`](Self::restart) changes.
    pub fn pid(&self) -> u32 {
        self.0.server().pid()
    }

    /// Whether its process is there, paused or not.
    pub fn is_running(&self) -> bool {
        self.0.server().ended().is_none()
    }

    /// Runs statements as `root`, by `mariadb`. What it wrote: rows without heads, a tab between columns.
    ///
    /// # Panics
    /// Where one of them fails.
    pub fn sql(&self, database: &str, statements: &str) -> String {
        self.run(database, statements, ";")
    }

    fn run(&self, database: &str, statements: &str, delimiter: &str) -> String {
        let mut client = Command::new(self.0.kind.program("mariadb"));
        client.args(["--no-defaults", "--user=root", "--batch", "--skip-column-names", "--raw", "--protocol=socket"]);
        client.arg(option("--socket", &socket(&self.0.place))).arg(format!("--delimiter={delimiter}"));
        let output = client.args(["--database", database, "--execute", statements]).output();
        let output = or_panic(output.map_err(|e| super::missing("mariadb", &e)));
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "mariadb {statements:?}: {stdout}{stderr}");
        stdout.trim_end().to_owned()
    }

    /// An empty database of this name; its URL.
    ///
    /// # Panics
    /// Where it cannot be made: because it is there already, for instance.
    pub fn database(&self, name: &str) -> String {
        self.sql("mysql", &format!("CREATE DATABASE `{}`", name.replace('`', "``")));
        self.url_of(name)
    }

    /// Ends every connection but its own, from the server's side.
    ///
    /// # Panics
    /// Where the server does not take the order.
    pub fn close_all_connections(&self) {
        let others = "SELECT id FROM information_schema.processlist \
                      WHERE id <> connection_id() AND command <> 'Daemon' AND user <> 'system user'";
        for id in self.sql("mysql", others).lines() {
            // One may have gone by itself meanwhile.
            let kill = format!("BEGIN NOT ATOMIC DECLARE CONTINUE HANDLER FOR 1094 BEGIN END; KILL {id}; END");
            self.run("mysql", &kill, "//");
        }
    }

    /// Stops its process where it is (SIGSTOP): connections stay, nothing is answered.
    ///
    /// # Panics
    /// Where it does not stop.
    pub fn pause(&self) {
        or_panic(self.0.server().pause_all());
    }

    /// Lets a paused one go on (SIGCONT).
    ///
    /// # Panics
    /// Where it does not.
    pub fn resume(&self) {
        or_panic(self.0.server().resume_all());
    }

    /// Kills its process (SIGKILL). It stays away until [`restart`](Self::restart).
    ///
    /// # Panics
    /// Where it is left.
    pub fn kill(&self) {
        or_panic(self.0.server().kill_all());
    }

    /// Ends it, if it is there, and starts it on the same port and folder.
    ///
    /// # Panics
    /// Where it does not come back.
    pub fn restart(&self) {
        or_panic(self.0.restart());
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
}

impl Kind for MariaDb {
    const NAME: &'static str = "MariaDB";
    const USERS: [&'static str; 2] = ["mysql", "nobody"];
    const FAST: &'static str = "TERM";
    const VARIABLES: &'static str = "MYSQL";
    const TAKEN: &'static str = "Can't start server: Bind on TCP/IP port";

    fn init(&self, place: &Place) -> Result<(), String> {
        let mut init = place.command::<Self>(self.program("mariadb-install-db"));
        init.args([
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
        ]);
        init.args(SMALL).arg(option("--datadir", &place.folder.file("data"))).arg(own_tables(place));
        let output = init.output().map_err(|e| super::missing("mariadb-install-db", &e))?;
        let told = || format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        match output.status.success() {
            true if self.tls => place.certify(),
            true => Ok(()),
            false => Err(format!("mariadb-install-db failed:\n{}", told())),
        }
    }

    fn server(&self, place: &Place, port: u16) -> Command {
        let mut command = place.command::<Self>(self.program("mariadbd"));
        command.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve", "--max-connections=200"]);
        command.args(SMALL).arg("--innodb-flush-log-at-trx-commit=2").args(&self.options).arg(format!("--port={port}"));
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

    /// By the first packet, which the server sends unasked: the version of the protocol, where it is no error.
    fn greets(port: u16) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
        let patience = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let mut greeting = [0; 5];
        patience.and_then(|()| stream.read_exact(&mut greeting)).is_ok() && greeting[4] == 10
    }
}

/// Several of these stand on one machine.
const SMALL: [&str; 2] = ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M"];

/// A server that starts removes the temporary tables of all others that it shares a folder for them with.
fn own_tables(place: &Place) -> OsString {
    option("--tmpdir", place.folder.path())
}

fn socket(place: &Place) -> PathBuf {
    place.folder.file("socket")
}
