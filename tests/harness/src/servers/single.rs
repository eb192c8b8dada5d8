//! A single Redis server.
use std::fs;
use std::io;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::builder::{RedisBuilder, name};
use super::clock;
use super::files::Folder;
use super::port::{self, Reserved};
use super::process::Process;
use super::resp::{Connection, Value};
use super::tls::Certificates;
use super::{missing, or_panic, until};

/// The number of tries, since another program may take a port that was free.
const TRIES: usize = 20;

/// A private Redis server. Dropping the value stops the server and removes its folder.
#[derive(Debug)]
pub struct RedisServer {
    // The fields are dropped in this order: a process must not outlive its folder.
    process: Mutex<Process>,
    builder: RedisBuilder,
    certificates: Option<Certificates>,
    port: u16,
    _reserved: Box<Reserved>,
    folder: Folder,
}

impl RedisServer {
    /// Starts a server with the defaults of [`RedisBuilder`]. It answers when this method returns.
    ///
    /// # Panics
    /// Like [`RedisBuilder::start`].
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Returns a builder for a server with other settings.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    pub(super) fn new(builder: RedisBuilder) -> Result<Self, String> {
        let folder = Folder::new(&name(&builder.program()))?;
        let certificates = if builder.has_tls() { Some(Certificates::make(folder.path())?) } else { None };
        builder.write_config(&folder)?;
        for _ in 0..TRIES {
            let reserved = port::free(builder.needs_bus())?;
            let port = reserved.number;
            let command = builder.command(&folder, port, certificates.as_ref())?;
            let mut process = Process::start(command, folder.path(), &folder.log())?;
            match ready(&mut process, &folder) {
                Ok(()) => {
                    return Ok(Self {
                        process: Mutex::new(process),
                        builder,
                        certificates,
                        port,
                        _reserved: Box::new(reserved),
                        folder,
                    });
                }
                // Another program has taken the port. The log must not be read a second time.
                Err(why) if why.contains("Address already in use") => {
                    fs::remove_file(folder.log()).map_err(|e| e.to_string())?;
                }
                Err(why) => return Err(why),
            }
        }
        Err(format!("{TRIES} ports were free and then taken"))
    }

    /// Returns `redis://127.0.0.1:PORT`, with the password if there is one, or `rediss://…` with TLS.
    pub fn url(&self) -> String {
        let scheme = if self.certificates.is_some() { "rediss" } else { "redis" };
        let password = self.builder.secret().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("{scheme}://{password}{}", self.address())
    }

    /// Returns `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the port, which stays the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the process id, which [`restart`](Self::restart) changes.
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// Returns whether the process exists, paused or not.
    pub fn is_running(&self) -> bool {
        self.process().ended().is_none()
    }

    /// Returns the certificates.
    ///
    /// # Panics
    /// If the server was started without TLS.
    pub fn certificates(&self) -> &Certificates {
        or_panic(self.certificates.as_ref().ok_or_else(|| "started without `tls()`".to_owned()))
    }

    /// Runs `redis-cli` with these arguments on the server, with the password and certificates of a client. Returns the
    /// output without the last line break, including errors of the server.
    ///
    /// # Panics
    /// If `redis-cli` is missing, or could not connect.
    pub fn cli(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        if let Some(files) = &self.certificates {
            command.arg("--tls").arg("--cacert").arg(files.ca());
            command.arg("--cert").arg(files.client_certificate()).arg("--key").arg(files.client_key());
        }
        if let Some(password) = self.builder.secret() {
            command.env("REDISCLI_AUTH", password);
        }
        let output = command.args(arguments).output();
        let output = or_panic(output.map_err(|e| missing("redis-cli", &e)));
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "redis-cli {arguments:?}: {stdout}{stderr}");
        stdout.trim_end_matches(['\r', '\n']).to_owned()
    }

    /// Sends one command with the password, on a separate connection by the server's socket file, which is faster than
    /// [`cli`](Self::cli) and needs no TLS. A refusal is a [`Value::Error`].
    ///
    /// # Panics
    /// If the server does not answer within 20 s.
    pub fn command<A: AsRef<[u8]>>(&self, arguments: &[A]) -> Value {
        or_panic(self.try_command(arguments).map_err(|e| format!("{} does not answer: {e}", self.address())))
    }

    /// Sends a command like [`command`](Self::command) to a server that may be down.
    ///
    /// # Errors
    /// If the server does not answer: at once without a process, and after 20 s if it is paused.
    pub fn try_command<A: AsRef<[u8]>>(&self, arguments: &[A]) -> io::Result<Value> {
        self.try_connect()?.ask(arguments)
    }

    /// Connects by the socket file, for related commands such as a write and its `WAIT`.
    ///
    /// # Panics
    /// If the server does not answer within 20 s.
    pub fn connect(&self) -> Connection {
        or_panic(self.try_connect().map_err(|e| format!("{} does not answer: {e}", self.address())))
    }

    /// Returns a line of `INFO`, such as `used_memory`, or an empty text if there is none.
    ///
    /// # Panics
    /// Like [`command`](Self::command).
    pub fn info(&self, name: &str) -> String {
        let info = self.command(&["INFO", "everything"]).text();
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }

    /// Returns the product and version: `redis 7.0.15`, `valkey 8.1.4`, `redict 7.3.6`. For other products than Redis, this
    /// is not the compatible Redis version, which they also report.
    ///
    /// # Panics
    /// Like [`command`](Self::command).
    pub fn version(&self) -> String {
        let info = self.command(&["INFO", "server"]).text();
        let version = |name| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("_version:"));
        let versions = ["valkey", "redict", "redis"].into_iter().filter_map(|name| Some((name, version(name)?)));
        versions.map(|(name, version)| format!("{name} {}", version.trim())).next().unwrap_or_default()
    }

    /// Stops the process (SIGSTOP): connections stay open, but nothing is answered.
    ///
    /// # Panics
    /// If the process does not stop.
    pub fn pause(&self) {
        or_panic(self.process().pause());
    }

    /// Continues a paused process (SIGCONT).
    ///
    /// # Panics
    /// If the process does not continue.
    pub fn resume(&self) {
        or_panic(self.process().resume());
    }

    /// Kills the process (SIGKILL). The server stays down until [`restart`](Self::restart).
    pub fn kill(&self) {
        self.process().kill();
    }

    /// Stops the server in order (SIGTERM) if it runs, and starts it with the same port and folder. Its data is lost,
    /// except for data in an [append-only file](RedisBuilder::aof) or stored by `SAVE`.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn restart(&self) {
        let mut process = self.process();
        process.stop();
        or_panic(self.again(&mut process));
    }

    /// Sets the clock to this many seconds ahead of the system's clock (negative if it is slow), at once. Durations that the
    /// server measures, such as the timeout of a blocking command, do not change.
    ///
    /// # Panics
    /// If the server was started without [`RedisBuilder::faketime`].
    pub fn shift_clock(&self, seconds: f64) {
        assert!(self.builder.has_clock(), "started without `faketime()`");
        or_panic(clock::shift(&self.folder, seconds));
        // Valkey 9.1 reads the clock once in a millisecond.
        std::thread::sleep(Duration::from_millis(2));
    }

    fn try_connect(&self) -> io::Result<Connection> {
        let mut connection = Connection::by(&self.folder.file("socket"))?;
        if let Some(password) = self.builder.secret() {
            connection.ask(&["AUTH", password])?;
        }
        Ok(connection)
    }

    fn again(&self, process: &mut Process) -> Result<(), String> {
        let command = self.builder.command(&self.folder, self.port, self.certificates.as_ref())?;
        *process = Process::start(command, self.folder.path(), &self.folder.log())?;
        ready(process, &self.folder)
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for any answer, since a server that first asks for a password is running, too.
fn ready(process: &mut Process, folder: &Folder) -> Result<(), String> {
    let socket = folder.file("socket");
    let mut ended = false;
    let answers = || {
        let answer = Connection::by(&socket).and_then(|mut connection| connection.ask(&["PING"]));
        answer.is_ok_and(|answer| !answer.text().starts_with("LOADING"))
    };
    let done = until("the server answers", || {
        ended = process.ended().is_some();
        ended || answers()
    });
    match done {
        Ok(()) if !ended => Ok(()),
        Ok(()) => Err(format!("the server ended at once:\n{}", folder.tail())),
        Err(why) => Err(format!("{why}:\n{}", folder.tail())),
    }
}
