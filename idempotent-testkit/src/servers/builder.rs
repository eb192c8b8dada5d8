//! How a Redis is to be started.
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::clock;
use super::cluster::RedisCluster;
use super::files::Folder;
use super::replicas::RedisReplicas;
use super::sentinels::RedisSentinels;
use super::single::RedisServer;
use super::tls::Certificates;
use super::{SERVER, or_panic};

/// Settings of a Redis; [`start`](Self::start) starts it.
///
/// # Default
/// No snapshots, no append-only file, no TLS, no password, the system's clock; the program that [`SERVER`] names, else
/// `redis-server`.
#[derive(Clone, Debug, Default)]
pub struct RedisBuilder {
    arguments: Vec<OsString>,
    program: Option<PathBuf>,
    tls: Option<Tls>,
    faketime: bool,
    password: Option<String>,
    /// Of a server that goes by a file: a sentinel.
    config: Option<String>,
    bus: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Tls {
    Server,
    Mutual,
}

impl RedisBuilder {
    /// One more argument of the program's, such as `--maxmemory`; its value is the next.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Several arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// The program to start: another flavour or version. Goes before [`SERVER`].
    #[must_use]
    pub fn binary(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Keeps an append-only file, written before each answer: [`RedisServer::kill`] and [`RedisServer::restart`] lose
    /// nothing that was answered.
    #[must_use]
    pub fn aof(self) -> Self {
        self.args(["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Asks for this password, of the default user, and has it in the URL.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Speaks TLS only, with a certificate of its own authority ([`RedisServer::certificates`]). It does not ask
    /// clients for one.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = Some(Tls::Server);
        self
    }

    /// As [`tls`](Self::tls), and lets only clients in that show a certificate of the same authority.
    #[must_use]
    pub fn mutual_tls(mut self) -> Self {
        self.tls = Some(Tls::Mutual);
        self
    }

    /// Its clock can be shifted: [`RedisServer::shift_clock`]. By a small C library that the system's compiler builds.
    #[must_use]
    pub fn faketime(mut self) -> Self {
        self.faketime = true;
        self
    }

    /// Starts one server; it answers when this returns.
    ///
    /// # Panics
    /// Where it cannot be started, with why and, where something is not installed, what to do.
    #[must_use]
    pub fn start(self) -> RedisServer {
        or_panic(RedisServer::new(self))
    }

    /// Starts a primary and so many replicas of it, which are in step when this returns. Nobody fails over.
    ///
    /// # Panics
    /// As [`start`](Self::start); with TLS, which is for single servers.
    #[must_use]
    pub fn start_replicas(self, replicas: usize) -> RedisReplicas {
        or_panic(self.without_tls().and_then(|builder| RedisReplicas::new(&builder, replicas)))
    }

    /// Starts a primary and a replica with these settings, and three sentinels, of which two decide. They all know of
    /// each other when this returns.
    ///
    /// # Panics
    /// As [`start`](Self::start); with TLS, which is for single servers.
    #[must_use]
    pub fn start_sentinels(self) -> RedisSentinels {
        or_panic(self.without_tls().and_then(|builder| RedisSentinels::new(&builder)))
    }

    /// Starts a cluster: so many primaries, which share the slots evenly, each with so many replicas. All of them know
    /// of each other when this returns.
    ///
    /// # Panics
    /// As [`start`](Self::start); with TLS, which is for single servers; without a primary.
    #[must_use]
    pub fn start_cluster(self, primaries: usize, replicas: usize) -> RedisCluster {
        or_panic(self.without_tls().and_then(|builder| RedisCluster::new(&builder, primaries, replicas)))
    }

    fn without_tls(self) -> Result<Self, String> {
        if self.has_tls() { Err("TLS is for a single server, `start()`".to_owned()) } else { Ok(self) }
    }

    pub(super) fn program(&self) -> PathBuf {
        let named = || std::env::var_os(SERVER).filter(|name| !name.is_empty()).map(PathBuf::from);
        self.program.clone().or_else(named).unwrap_or_else(|| "redis-server".into())
    }

    pub(super) fn needs_bus(&self) -> bool {
        self.bus
    }

    pub(super) fn has_clock(&self) -> bool {
        self.faketime
    }

    pub(super) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(super) fn asks_for_certificate(&self) -> bool {
        self.tls == Some(Tls::Mutual)
    }

    pub(super) fn secret(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// A sentinel: what it does is in a file, which it rewrites.
    pub(super) fn config(mut self, config: String) -> Self {
        self.config = Some(config);
        self
    }

    /// A node of a cluster: it has a second port.
    pub(super) fn bus(mut self) -> Self {
        self.bus = true;
        self
    }

    /// # Errors
    /// Where a file cannot be written or the clock's library is missing.
    pub(super) fn command(
        &self,
        folder: &Folder,
        port: u16,
        certificates: Option<&Certificates>,
    ) -> Result<Command, String> {
        let mut command = Command::new(self.program());
        if self.config.is_some() {
            command.arg(folder.file("sentinel.conf")).arg("--sentinel");
        }
        command.args(["--bind", "127.0.0.1"]).arg("--dir").arg(folder.path());
        command.arg("--unixsocket").arg(folder.file("socket")).args(["--unixsocketperm", "700"]);
        let port = port.to_string();
        match certificates {
            Some(files) => {
                command.args(["--port", "0", "--tls-port", &port]);
                command.arg("--tls-cert-file").arg(files.server_certificate());
                command.arg("--tls-key-file").arg(files.server_key()).arg("--tls-ca-cert-file").arg(files.ca());
                command.args(["--tls-auth-clients", if self.asks_for_certificate() { "yes" } else { "no" }]);
            }
            None => {
                command.args(["--port", &port]);
            }
        }
        if self.config.is_none() {
            command.args(["--save", "", "--repl-diskless-sync-delay", "0"]);
            if let Some(password) = &self.password {
                command.args(["--requirepass", password, "--masterauth", password]);
            }
        }
        command.args(&self.arguments);
        if self.faketime {
            clock::preload(&mut command, folder)?;
        }
        Ok(command)
    }

    /// Once, before the first start: a sentinel keeps what it learnt in it.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub(super) fn write_config(&self, folder: &Folder) -> Result<(), String> {
        let Some(config) = &self.config else { return Ok(()) };
        std::fs::write(folder.file("sentinel.conf"), config).map_err(|e| e.to_string())
    }
}

/// The name a folder gets.
pub(super) fn name(program: &Path) -> String {
    program.file_name().map_or_else(|| "server".to_owned(), |name| name.to_string_lossy().into_owned())
}
