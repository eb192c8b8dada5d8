//! One Redis.
use std::fs;
use std::io;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::builder::{RedisBuilder, name};
use super::clock;
use super::files::Folder;
use super::port::{self, Reserved};
use super::process::Process;
use super::resp::{Connection, Value};
use super::tls::Certificates;
use super::{missing, or_panic, until};

/// Ports tried: each was free a moment before.
const TRIES: usize = 20;

/// A Redis of this test's own. Stopped, and its folder removed, when dropped.
#[derive(Debug)]
pub struct RedisServer {
    // Dropped in this order: a process does not outlive its folder.
    process: Mutex<Process>,
    builder: RedisBuilder,
    certificates: Option<Certificates>,
    port: u16,
    _reserved: Box<Reserved>,
    folder: Folder,
}

impl RedisServer {
    /// One with the defaults of [`RedisBuilder`]; it answers when this returns.
    ///
    /// # Panics
    /// As [`RedisBuilder::start`].
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// One with settings.
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
                // Somebody else took the port first. What the log says of it must not be read a second time.
                Err(why) if why.contains("Address already in use") => {
                    fs::remove_file(folder.log()).map_err(|e| e.to_string())?;
                }
                Err(why) => return Err(why),
            }
        }
        Err(format!("{TRIES} ports were free and then taken"))
    }

    /// `redis://127.0.0.1:PORT`, with its password if it has one; `rediss://…` with TLS.
    pub fn url(&self) -> String {
        let scheme = if self.certificates.is_some() { "rediss" } else { "redis" };
        let password = self.builder.secret().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("{scheme}://{password}{}", self.address())
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its port; the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of its process, which [`restart`](Self::restart) changes.
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// Whether its process is there, paused or not.
    pub fn is_running(&self) -> bool {
        self.process().ended().is_none()
    }

    /// Its certificates.
    ///
    /// # Panics
    /// Without TLS.
    pub fn certificates(&self) -> &Certificates {
        or_panic(self.certificates.as_ref().ok_or_else(|| "started without `tls()`".to_owned()))
    }

    /// Runs `redis-cli` with these arguments against it: as a client would, with its password and its certificates.
    /// What it wrote, without the last line's end; an error of the server's is among it.
    ///
    /// # Panics
    /// Where `redis-cli` is missing, or could not connect.
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

    /// Sends one command, on a connection of its own by the server's socket file, which is quicker than
    /// [`cli`](Self::cli) and needs no TLS; under its password. A refusal is a [`Value::Error`].
    ///
    /// # Panics
    /// Where it does not answer in 20 s.
    pub fn command<A: AsRef<[u8]>>(&self, arguments: &[A]) -> Value {
        or_panic(self.try_command(arguments).map_err(|e| format!("{} does not answer: {e}", self.address())))
    }

    /// As [`command`](Self::command), of a server that may be gone.
    ///
    /// # Errors
    /// Where it does not answer: at once where there is no process, after 20 s where it is paused.
    pub fn try_command<A: AsRef<[u8]>>(&self, arguments: &[A]) -> io::Result<Value> {
        self.try_connect()?.ask(arguments)
    }

    /// A connection by its socket file, for commands that belong together, such as a write and its `WAIT`.
    ///
    /// # Panics
    /// Where it does not answer in 20 s.
    pub fn connect(&self) -> Connection {
        or_panic(self.try_connect().map_err(|e| format!("{} does not answer: {e}", self.address())))
    }

    /// One line of `INFO`, such as `used_memory`; empty where there is none.
    ///
    /// # Panics
    /// As [`command`](Self::command).
    pub fn info(&self, name: &str) -> String {
        let info = self.command(&["INFO", "everything"]).text();
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }

    /// What it is: `redis 7.0.15`, `valkey 8.1.4`. A Valkey names the Redis it is compatible with, too; that is not it.
    ///
    /// # Panics
    /// As [`command`](Self::command).
    pub fn version(&self) -> String {
        match self.info("valkey_version") {
            none if none.is_empty() => format!("redis {}", self.info("redis_version")),
            version => format!("valkey {version}"),
        }
    }

    /// Stops it where it is (SIGSTOP): connections stay, nothing is answered.
    ///
    /// # Panics
    /// Where it does not stop.
    pub fn pause(&self) {
        or_panic(self.process().pause());
    }

    /// Lets a paused one go on (SIGCONT).
    ///
    /// # Panics
    /// Where it does not.
    pub fn resume(&self) {
        or_panic(self.process().resume());
    }

    /// Kills it (SIGKILL). It stays away until [`restart`](Self::restart).
    pub fn kill(&self) {
        self.process().kill();
    }

    /// Stops it in good order (SIGTERM), if it is there, and starts it on the same port and folder. What it held is
    /// lost, but for what it has in an [append-only file](RedisBuilder::aof) or was told to `SAVE`.
    ///
    /// # Panics
    /// Where it does not come back.
    pub fn restart(&self) {
        let mut process = self.process();
        process.stop();
        or_panic(self.again(&mut process));
    }

    /// Sets its clock this many seconds before (negative: behind) the system's, at once. Time spans it measures, such
    /// as the wait of a blocking command, stay as they are.
    ///
    /// # Panics
    /// Without [`RedisBuilder::faketime`].
    pub fn shift_clock(&self, seconds: f64) {
        assert!(self.builder.has_clock(), "started without `faketime()`");
        or_panic(clock::shift(&self.folder, seconds));
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

/// Until it answers, with whatever: one that asks for a password first is there, too.
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
