//! The settings of a Redis server.
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

/// A builder for Redis servers. [`start`](Self::start) starts one.
///
/// # Default
/// By default, a server has no snapshots, no append-only file, no TLS, no password, and the system's clock. Its program
/// is the one that [`SERVER`] names, or `redis-server`.
#[derive(Clone, Debug, Default)]
pub struct RedisBuilder {
    arguments: Vec<OsString>,
    program: Option<PathBuf>,
    tls: Option<Tls>,
    faketime: bool,
    password: Option<String>,
    /// The configuration file of a sentinel.
    config: Option<String>,
    bus: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Tls {
    Server,
    Mutual,
}

impl RedisBuilder {
    /// Adds an argument of the program, such as `--maxmemory`. Its value is the next argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds several arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets the program, e.g. of another version. Overrides [`SERVER`].
    #[must_use]
    pub fn binary(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Enables an append-only file that is written before each answer: [`RedisServer::kill`] and
    /// [`RedisServer::restart`] lose no answered write.
    #[must_use]
    pub fn aof(self) -> Self {
        self.args(["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Requires this password for the default user, and puts it into the URL.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Accepts only TLS connections, with a certificate of a private authority ([`RedisServer::certificates`]). Clients
    /// need no certificate.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = Some(Tls::Server);
        self
    }

    /// Accepts only TLS connections like [`tls`](Self::tls), from clients with a certificate of the same authority.
    #[must_use]
    pub fn mutual_tls(mut self) -> Self {
        self.tls = Some(Tls::Mutual);
        self
    }

    /// Makes the clock adjustable by [`RedisServer::shift_clock`], with a small C library that the system's compiler
    /// builds.
    #[must_use]
    pub fn faketime(mut self) -> Self {
        self.faketime = true;
        self
    }

    /// Starts one server, which answers when this method returns.
    ///
    /// # Panics
    /// If the server cannot start. The message shows the reason, and how to install a missing program.
    #[must_use]
    pub fn start(self) -> RedisServer {
        or_panic(RedisServer::new(self))
    }

    /// Starts a primary and `replicas` replicas, which are in sync when this method returns. There is no failover.
    ///
    /// # Panics
    /// Like [`start`](Self::start), and with TLS, which only single servers support.
    #[must_use]
    pub fn start_replicas(self, replicas: usize) -> RedisReplicas {
        or_panic(self.without_tls().and_then(|builder| RedisReplicas::new(&builder, replicas)))
    }

    /// Starts a primary and a replica with these settings, and three sentinels with a quorum of two. All know each
    /// other when this method returns.
    ///
    /// # Panics
    /// Like [`start`](Self::start), and with TLS, which only single servers support.
    #[must_use]
    pub fn start_sentinels(self) -> RedisSentinels {
        or_panic(self.without_tls().and_then(|builder| RedisSentinels::new(&builder)))
    }

    /// Starts a cluster of `primaries` primaries, which share the slots evenly, each with `replicas` replicas. All
    /// nodes know each other when this method returns.
    ///
    /// # Panics
    /// Like [`start`](Self::start), and with TLS, which only single servers support, or without a primary.
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

    /// Makes the server a sentinel, whose configuration is in a file that it rewrites.
    pub(super) fn config(mut self, config: String) -> Self {
        self.config = Some(config);
        self
    }

    /// Makes the server a node of a cluster, which has a second port.
    pub(super) fn bus(mut self) -> Self {
        self.bus = true;
        self
    }

    /// Returns the command that starts the server.
    ///
    /// # Errors
    /// If a file cannot be written, or the library for the clock is missing.
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

    /// Writes the configuration once, before the first start, since a sentinel stores its state in it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn write_config(&self, folder: &Folder) -> Result<(), String> {
        let Some(config) = &self.config else { return Ok(()) };
        std::fs::write(folder.file("sentinel.conf"), config).map_err(|e| e.to_string())
    }
}

/// Returns the name for a folder.
pub(super) fn name(program: &Path) -> String {
    program.file_name().map_or_else(|| "server".to_owned(), |name| name.to_string_lossy().into_owned())
}
